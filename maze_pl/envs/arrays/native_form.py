"""Vector forms that environments of gymnasium were registered with, for `vectorization: native`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, Final

import gymnasium
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from maze_pl.envs.arrays.gym_vector_array_env import GymVectorArrayEnv
from maze_pl.envs.gym_env import GymMazeEnv
from maze_pl.envs.structured_env import StructuredEnv

_SEQUENTIAL: Final = "use vectorization=sequential"


def make_native_array_env(env: Callable[[], Any], **kwargs: Any) -> GymVectorArrayEnv:
    """Make the vector form that an environment of gymnasium was registered with, for `vectorization: native`.

    Args:
        env: Makes the environment for single episodes, by name.
        kwargs: Passed to the vector entry point, besides the arguments of the environment.

    Raises:
        ValueError: It has no vector entry point, was not made by name, or has wrappers or no time limit.
    """
    with closing(env()) as single:
        spec = getattr(single, "spec", None)
        name = type(single).__name__ if spec is None else str(spec.id)
        if spec is None or spec.vector_entry_point is None:
            fault = f"a gymnasium environment with a vector entry point, which {name} does not have"
            raise ValueError(f"vectorization=native needs {fault}; {_SEQUENTIAL}")
        limit = _time_limit(single, name)
    arguments = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    if limit is not None:
        arguments["max_episode_steps"] = limit
    return GymVectorArrayEnv(spec.id, **arguments, **kwargs)


def single_form(env: Any) -> Any:
    """Return what makes single episodes of a vector form of `make_native_array_env`, other factories as they are."""
    is_native = isinstance(env, partial) and env.func is make_native_array_env
    return env.args[0] if is_native else env


def _time_limit(single: Any, name: str) -> int | None:
    """Return the time limit of an environment for single episodes; refuse other changes."""
    inner = single
    changes = []
    limits = []
    if isinstance(single, StructuredEnv):
        if type(single) is not GymMazeEnv:
            changes.append(type(single).__name__)
        inner = single.core_env.env  # type: ignore[attr-defined]
    while isinstance(inner, gymnasium.Wrapper):
        if type(inner) is TimeLimit:
            limits.append(inner._max_episode_steps)
        elif type(inner) not in (OrderEnforcing, PassiveEnvChecker):
            changes.append(type(inner).__name__)
        inner = inner.env
    if changes:
        fault = f"vectorization=native makes {name} without {', '.join(changes)}, which env puts around it"
        raise ValueError(f"{fault}; {_SEQUENTIAL}, or put maze_pl's wrappers into wrappers of the data module")
    if not limits and gymnasium.spec(name).max_episode_steps is not None:
        fault = f"vectorization=native makes {name} with a time limit, but env makes it without one"
        raise ValueError(f"{fault}; give max_episode_steps, or {_SEQUENTIAL}")
    return min(limits, default=None)

"""EnvPool's environments, which C++ threads step together, as array environments."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from maze_pl.envs.arrays.gym_vector_array_env import GymVectorArrayEnv
from maze_pl.envs.contract import EnvContractError

_ELSEWHERE: Final = {
    "num_envs": "set n_envs of the data module",
    "batch_size": "leave it out, as all environments step together (sync mode)",
    "seed": "set seed_everything",
    "env_seed": "set seed_everything",
    "gym_reset_return_info": "leave it out",
}
"""Options of a pool that `make_envpool_env` sets, and what to do instead."""


class EnvPoolVectorEnv(VectorEnv[Any, Any, Any]):
    """A pool of EnvPool whose `reset` takes the seeds of its environments.

    The seeds of a pool are fixed when it is made, so each `reset` makes a new one.

    Args:
        name: Name of the environment.
        options: Further options of the pool.
        n_envs: Number of environments.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  as gymnasium declares it

    def __init__(self, name: str, options: Mapping[str, Any], n_envs: int) -> None:
        self._name, self._options = name, options
        self._pool: Any = None
        self.num_envs = n_envs
        spec = import_module("envpool").make_spec(name, num_envs=n_envs, **options)
        with _double_precision_bounds():
            self.single_observation_space = _with_infinite_bounds(spec.gymnasium_observation_space)
            self.single_action_space = spec.gymnasium_action_space

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Start the episodes of a new pool.

        Args:
            seed: Seeds of the environments.
            options: EnvPool takes none.

        Raises:
            ValueError: There are options.
        """
        if options:
            raise ValueError(f"EnvPool's {self._name} takes no options in reset, but there are {sorted(options)}")
        self.close_extras()
        make = import_module("envpool").make_gymnasium
        self._pool = make(self._name, num_envs=self.num_envs, seed=seed, **self._options)
        with _double_precision_bounds():
            return self._pool.reset()

    def step(self, actions: Any) -> Any:
        """Step all environments.

        Raises:
            EnvContractError: The pool returned others, as in its asynchronous mode.
        """
        result = self._pool.step(actions)
        numbers = result[-1]["env_id"]
        if not np.array_equal(numbers, np.arange(self.num_envs)):
            expected = f"expected those from 0 to {self.num_envs - 1} in order"
            raise EnvContractError(f"EnvPool's {self._name} returned environments {numbers}; {expected}")
        return result

    def close_extras(self, **kwargs: Any) -> None:
        """Close the pool."""
        if self._pool is not None:
            self._pool.close()


def make_envpool_env(name: str, **kwargs: Any) -> GymVectorArrayEnv:
    """Make an environment of EnvPool by name, for configuration files.

    All environments of a pool step together, in C++ threads. Each has a separate seed for its
    first episode; further episodes follow from the same random stream.

    Args:
        name: Its name, such as `Pong-v5`; `envpool.list_all_envs()` has all of them.
        kwargs: Further options of the pool, such as `num_threads` and `max_episode_steps`.

    Raises:
        ImportError: EnvPool is not installed.
        ValueError: EnvPool has no environment of this name, or the environment no such option, or an
            option is set elsewhere.
    """
    try:
        envpool = import_module("envpool")
    except ImportError as error:
        remedy = 'pip install "maze-pl[envpool]"'
        raise ImportError(f"{name} needs EnvPool, which cannot be imported ({error}): {remedy}") from error
    names = envpool.list_all_envs()
    if name not in names:
        near = get_close_matches(name, names, 3)
        remedy = f"do you mean {' or '.join(near)}?" if near else "envpool.list_all_envs() has all names"
        raise ValueError(f"EnvPool has no environment {name!r}; {remedy}")
    for option, remedy in _ELSEWHERE.items():
        if option in kwargs:
            raise ValueError(f"{option}={kwargs[option]!r} cannot be given to an environment of EnvPool; {remedy}")
    known = envpool.make_spec(name).config._fields
    if unknown := sorted(set(kwargs) - set(known)):
        options = sorted(set(known) - set(_ELSEWHERE))
        raise ValueError(f"EnvPool's {name} has no options {unknown}; it has {options}")
    return GymVectorArrayEnv(partial(EnvPoolVectorEnv, name, kwargs), seed_each=True)


def _with_infinite_bounds(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Replace the bounds by which C++ declares none: the smallest and the largest positive number of a type."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(name, _with_infinite_bounds(part)) for name, part in space.spaces.items()])
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return space
    numbers = np.finfo(space.dtype)
    low = np.where((space.low == numbers.tiny) | (space.low == -numbers.max), -np.inf, space.low)
    high = np.where(space.high == numbers.max, np.inf, space.high)
    return spaces.Box(low, high, space.shape, space.dtype.type)


@contextmanager
def _double_precision_bounds() -> Iterator[None]:
    """Ignore that EnvPool states the bounds of float32 spaces in double precision."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*precision lowered by casting.*")
        yield

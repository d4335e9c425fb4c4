"""Refusal of factories that return an environment which they have made before."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import gymnasium

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.contract import name_of


class MadeEnvironments:
    """Knows the environments that a factory has made, without keeping them alive.

    It is empty in other processes, which have copies of the environments.
    """

    def __init__(self) -> None:
        self._made: WeakValueDictionary[int, Any] = WeakValueDictionary()

    def new(self, make_env: Callable[[], Any]) -> Any:
        """Make an environment.

        Args:
            make_env: Makes it.

        Raises:
            ValueError: It has been made before, perhaps with another wrapper around it.
        """
        env = make_env()
        if not isinstance(env, gymnasium.Env | ArrayEnv):  # which is refused where it is used
            return env
        inner = _innermost(env)
        if id(inner) in self._made:
            fault = f"the environment factory returned the same {name_of(env)} twice"
            effect = "whose episodes would interrupt each other"
            remedy = f"make a new one in each call, as lambda: {type(inner).__name__}(...) does"
            raise ValueError(f"{fault}, {effect}: {remedy}")
        with suppress(TypeError):  # of a class without weak references
            self._made[id(inner)] = inner
        return env

    def __reduce__(self) -> tuple[type["MadeEnvironments"], tuple[()]]:
        """Return an empty one for copies and for other processes."""
        return MadeEnvironments, ()


def _innermost(env: Any) -> Any:
    """Return the object in an environment that has the state of its episodes."""
    unwrapped = getattr(env, "unwrapped", env)
    simulation = getattr(unwrapped, "core_env", None)
    if simulation is None:
        return unwrapped
    inside = getattr(simulation, "env", None)
    return inside.unwrapped if isinstance(inside, gymnasium.Env | ArrayEnv) else simulation

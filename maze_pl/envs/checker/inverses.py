"""Check that conversions of actions and their inverses agree."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np

from maze_pl.envs.core_env import ActionConversionInterface
from maze_pl.envs.structured_env import Action
from maze_pl.system.time_limit import CallTimeoutError

_MOST: Final = 0.05
"""Share of actions that may differ, since rounding can separate a few."""
_TOLERANCE: Final = 1e-4
_BY_IDENTITY: Final[Any] = object.__eq__


class Inverses:
    """Compares actions of a simulation with those that their conversion back and forth gives.

    Conversions without an inverse take no part.
    """

    def __init__(self) -> None:
        self._n_compared: dict[str, int] = {}
        self._n_different: dict[str, int] = {}

    def add(self, conversion: ActionConversionInterface, action: Action, maze_state: Any) -> None:
        """Convert an action of an agent to the simulation's, back, and once more.

        Args:
            conversion: The conversion.
            action: Head -> action of the agent.
            maze_state: State in which the action is taken.
        """
        maze_action = conversion.space_to_maze(action, maze_state)
        if not is_alike(maze_action, conversion.space_to_maze(action, maze_state)):
            return  # it draws, or cannot be compared
        try:
            again = conversion.space_to_maze(conversion.maze_to_space(maze_action), maze_state)
        except CallTimeoutError:
            raise
        except Exception:  # there is no inverse, or none of this action, which it says
            return
        name = type(conversion).__name__
        self._n_compared[name] = self._n_compared.get(name, 0) + 1
        is_different = not is_alike(maze_action, again)
        self._n_different[name] = self._n_different.get(name, 0) + is_different

    def faults(self) -> Iterator[str]:
        """Yield a fault of each conversion with a wrong inverse."""
        for name, n_different in self._n_different.items():
            n_compared = self._n_compared[name]
            if n_different > _MOST * n_compared:
                fault = f"{name}.maze_to_space is not the inverse of space_to_maze"
                found = f"{n_different} of {n_compared} actions differ after both"
                yield f"{fault}: {found}; records of states would teach other actions"


def is_alike(one: Any, other: Any) -> bool:
    """True if two actions of a simulation are equal except for rounding, or cannot be compared."""
    if is_dataclass(one) and type(one) is type(other):
        names = [part.name for part in fields(one)]
        return all(is_alike(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_alike(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_alike, one, other))
    number, another = _number(one), _number(other)
    if number is None or another is None:
        is_by_identity = type(one) is type(other) and type(one).__eq__ is _BY_IDENTITY
        return is_by_identity or _is_equal(one, other)
    if number.shape != another.shape:
        return False
    return np.allclose(number, another, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)


def _is_equal(one: Any, other: Any) -> bool:
    """True if two objects are equal, or cannot be compared, such as those of arrays."""
    try:
        return bool(np.all(one == other))
    except CallTimeoutError:
        raise
    except Exception:
        return True


def _number(value: Any) -> np.ndarray | None:
    """Return a number or an array of numbers as an array; None for anything else."""
    if not isinstance(value, bool | int | float | np.generic | np.ndarray):
        return None
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.kind in "biuf" else None

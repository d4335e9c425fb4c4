"""Conversion of the observations of gymnasium environments, which only names them."""

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.exact_numbers import overflow_of
from maze_pl.envs.contract import check_observation
from maze_pl.envs.core_env import ObservationConversionInterface
from maze_pl.envs.named_parts import NamedParts
from maze_pl.envs.structured_env import Array, Observation


class GymObservationConversion(NamedParts, ObservationConversionInterface):
    """Names observations: `observation`, or the parts of a Dict or Tuple space.

    The parts of a Dict are named by their keys, joined by slashes if nested; those of a Tuple
    `observation_0`, `observation_1` and so on. Text is left out, with a warning.

    Observations are copied, in the dtype that their space declares: many environments reuse the
    same array.

    Args:
        space: The gymnasium environment's observation space.

    Raises:
        TypeError: The space or a part of it is of an unsupported type.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__(space, "observation", omits_text=True)
        self._dtypes = {name: np.dtype(part.dtype or np.float32) for name, part in self._space.items()}
        self._dtype = None if self._is_composed else self._dtypes["observation"]

    def maze_to_space(self, maze_state: Any) -> Observation:
        """Return the observation, or its parts, by name."""
        try:
            if self._dtype is not None:
                array = np.array(maze_state)
                return {"observation": array if array.dtype is self._dtype else _real(array, self._dtype)}
            parts = self.divided(maze_state).items()
            return {name: _real(np.array(part), self._dtypes[name]) for name, part in parts}
        except (IndexError, KeyError, TypeError, ValueError):
            check_observation(maze_state, self._original, "the observation that the environment returned")
            raise

    def space_to_maze(self, observation: Observation) -> Any:
        """Return the observation in the gymnasium environment's format."""
        return self.joined(observation)


def _real(array: Array, dtype: np.dtype[Any]) -> Array:
    """Convert numbers to another dtype.

    Raises:
        TypeError: The values are not real numbers, although NumPy could convert them.
        ValueError: The other dtype is one of integers that cannot hold them.
    """
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{array.dtype} is not a type of real numbers")
    if (fault := overflow_of(array, dtype)) is not None:
        raise ValueError(f"a part {fault}")
    return array.astype(dtype, copy=False)

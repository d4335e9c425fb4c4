"""Conversion of states from outside, checked before anything advances."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.exact_numbers import first_changed
from maze_pl.envs.contract import EnvContractError, bounds, check_observation, describe
from maze_pl.envs.core_env import ObservationConversionInterface
from maze_pl.envs.gym_observation_conversion import GymObservationConversion
from maze_pl.envs.structured_env import Array, Observation

_NOTHING = object()
_RETURNED: Final = "the observation that the environment returned"  # as conversions call a state


class PreparedConversion(ObservationConversionInterface):
    """Converts a state once and checks the result, so that a bad state is refused before it counts.

    Args:
        conversion: Conversion of the environment.
        space: Its observation space.
        step_key: The sub-step, for messages.
        refuses_nan: Whether a value that is not a number is an error already here, because no wrapper
            would replace it.
    """

    def __init__(
        self,
        conversion: ObservationConversionInterface,
        space: spaces.Space[Any],
        step_key: StepKey,
        refuses_nan: bool,
    ) -> None:
        self._conversion = conversion
        self._space = space
        self._step_key = step_key
        self._refuses_nan = refuses_nan
        self._expected: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        if isinstance(space, spaces.Dict):
            for name, part in space.spaces.items():
                self._expected[name] = tuple(part.shape or ()), np.dtype(part.dtype)
        self._has_integers = any(dtype.kind != "f" for _, dtype in self._expected.values())
        self._categories = _categories(space)
        self._state: Any = _NOTHING
        self._observation: Observation = {}

    def prepare(self, maze_state: Any) -> None:
        """Convert a state, for the next call of `maze_to_space`.

        Raises:
            EnvContractError: The conversion refuses the state, or the observation has a wrong shape
                or type, or holds a value that is not a number, or a category that its space lacks.
        """
        name = type(self._conversion).__name__
        self._state = _NOTHING
        try:
            observation = self._conversion.maze_to_space(maze_state)
        except EnvContractError as error:
            raise EnvContractError(str(error).replace(_RETURNED, "the state that was given")) from error
        except Exception as error:  # conversions are the user's code
            fault = f"{name} of sub-step {self._step_key!r} refuses the state {describe(maze_state)}"
            raise EnvContractError(f"{fault}: {type(error).__name__}: {error}") from error
        what = f"the observation of sub-step {self._step_key!r} by {name}"
        if not self._is_usual(observation):
            check_observation(observation, self._space, what)
            self._check_content(observation, what)
        self._check_categories(observation, what)
        if self._has_integers and type(self._conversion) is GymObservationConversion:
            self._check_precision(self._conversion.divided(maze_state))
        self._state = maze_state
        self._observation = observation

    def _is_usual(self, observation: Any) -> bool:
        """True if an observation is certainly valid; only then `check_observation` is not needed."""
        if type(observation) is not dict or len(observation) != len(self._expected):
            return False
        for name, (shape, dtype) in self._expected.items():
            array = observation.get(name)
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                return False
            if self._refuses_nan and dtype.kind == "f" and not is_finite(array):
                return False
        return True

    def _check_content(self, observation: Any, what: str) -> None:
        """Refuse types of another kind, fractions for integers, and values that are not a number."""
        for name, (_, dtype) in self._expected.items():
            array = np.asarray(observation[name])
            if not np.can_cast(array.dtype, dtype, "same_kind"):
                raise EnvContractError(f"entry {name!r} of {what} has type {array.dtype}; its space has {dtype}")
            if (number := first_changed(array, dtype)) is not None:
                fault = f"holds {number}, which {dtype} of its space cannot"
                raise EnvContractError(f"entry {name!r} of {what} {fault}")
            if self._refuses_nan and array.dtype.kind == "f" and np.isnan(array).any():
                at = np.argwhere(np.isnan(array))[0].tolist()
                raise EnvContractError(f"entry {name!r} of {what} is not a number (nan) at {at}; give another state")

    def _check_categories(self, observation: Observation, what: str) -> None:
        """Refuse categories that a space lacks; networks would take them for no category at all."""
        for name, (low, high) in self._categories.items():
            array = np.asarray(observation[name])
            outside = (array < low) | (array > high)
            if not outside.any():
                continue
            at = tuple(np.argwhere(outside)[0].tolist())
            place = f" at {[*at]}" if at else ""
            fault = f"holds the category {array[at]}{place}; its space has {low[at]} to {high[at]}"
            raise EnvContractError(f"entry {name!r} of {what} {fault}")

    def _check_precision(self, parts: Mapping[str, Any]) -> None:
        """Refuse parts of a state with fractions for integers, which the conversion has cut off."""
        for name, (_, dtype) in self._expected.items():
            if dtype.kind == "f":
                continue
            given = np.asarray(parts[name])
            if (number := first_changed(given, dtype)) is not None:
                fault = f"the state has type {given.dtype} for observation {name!r}"
                raise EnvContractError(f"{fault}, expected {dtype}, which cannot hold {number}")

    def space(self) -> spaces.Dict:
        """Return the observation space."""
        return self._conversion.space()

    def maze_to_space(self, maze_state: Any) -> Observation:
        """Return the observation of the prepared state, or convert another one."""
        if maze_state is self._state:
            return self._observation
        return self._conversion.maze_to_space(maze_state)

    def space_to_maze(self, observation: Observation) -> Any:
        """Convert an observation back to a state, if the conversion can."""
        return self._conversion.space_to_maze(observation)


def _categories(space: spaces.Space[Any]) -> dict[str, tuple[Array, Array]]:
    """First and last categories of the parts of a space that have any, in the shape of each."""
    found = {}
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            if isinstance(part, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
                low, high = bounds(part)
                shape = part.shape or ()
                found[name] = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    return found


def is_finite(array: Array) -> bool:
    """True if an array of floats holds neither infinities nor values that are not a number."""
    # The sum of squares is finite for all usual values, and takes a fraction of the time.
    return isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())

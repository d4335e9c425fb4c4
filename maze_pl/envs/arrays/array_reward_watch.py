"""Search for wrappers of array environments that change rewards, but not those attributed to single actors."""

from __future__ import annotations

from typing import Any

from maze_pl.envs.arrays.array_checks import as_numpy
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep, EnvIndex
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper
from maze_pl.envs.arrays.array_wrapper_statistics import array_wrappers_of
from maze_pl.envs.reward_watch import N_WATCHED, NO_LEARNING


class ArrayRewardWatch:
    """Compares the rewards inside and outside of each wrapper in the first steps.

    Args:
        env: The array environment with its wrappers, which tell the watch what they receive.
    """

    def __init__(self, env: ArrayWrapper) -> None:
        self._layers = list(array_wrappers_of(env))
        self._n_left = N_WATCHED
        self._inside: dict[int, tuple[AnyArray, AnyArray]] = {}  # of layers, by their places from the outside
        for place, layer in enumerate(self._layers):
            layer.watch_rewards(self, place)

    @property
    def is_done(self) -> bool:
        """True if nothing is left to find."""
        return self._n_left == 0

    def note(self, place: int, result: Any) -> None:
        """Note the rewards that a wrapper receives.

        Args:
            place: Place of the wrapper, from the outside.
            result: Result of the step of what is inside.
        """
        if isinstance(result, ArrayStep):
            self._inside[place] = (result.reward, result.actor_rewards)

    def end_step(self, result: ArrayStep, which: EnvIndex) -> str | None:
        """Return the fault of the innermost wrapper that changed rewards alone; None if there is none.

        Args:
            result: Result of the step of the outermost wrapper.
            which: The environments that acted.
        """
        fault: str | None = None
        outside = (result.reward, result.actor_rewards)
        for place, layer in enumerate(self._layers):
            inside = self._inside.get(place, outside)
            is_same = inside[1] is not None and inside[1] is outside[1]
            if is_same and inside[0] is not outside[0] and _differ(inside[0], outside[0], which):
                fault = f"{type(layer).__name__} {NO_LEARNING}; derive it from RewardArrayWrapper, or replace"
                fault += " actor_rewards, too"
            outside = inside
        self._inside = {}
        self._n_left = 0 if fault is not None else self._n_left - 1
        if self.is_done:
            for layer in self._layers:
                layer.watch_rewards(None, 0)
        return fault


def _differ(one: AnyArray, other: AnyArray, which: EnvIndex) -> bool:
    """True if rewards [N] of environments that acted are not equal."""
    return bool((as_numpy(one)[which] != as_numpy(other)[which]).any())

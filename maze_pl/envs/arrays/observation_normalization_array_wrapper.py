"""Normalisation of observations in arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.observation_array_wrapper import ObservationArrayWrapper
from maze_pl.envs.structured_env import Array

if TYPE_CHECKING:
    from maze_pl.envs.wrappers.observation_normalization_wrapper import ObservationNormalizationWrapper


class ObservationNormalizationArrayWrapper(ObservationArrayWrapper):
    """Normalises observations by the strategies and statistics of the wrapper for single episodes.

    Args:
        env: The environment to wrap.
        wrapper: The wrapper, which estimates, checks, saves and loads the statistics.
    """

    def __init__(self, env: ArrayEnv, wrapper: ObservationNormalizationWrapper) -> None:
        super().__init__(env, wrapper.observation_spaces_dict)
        self._wrapper = wrapper

    def observations(
        self, key: StepKey, observation: Mapping[str, Array], which: Array, agents: Array
    ) -> Mapping[str, Array]:
        """Normalise all observations that have a strategy."""
        return self._wrapper.normalized(observation, True)

    def shared_states(self) -> list[dict[str, Any]]:
        """Return the estimated statistics, which are the same for all environments."""
        state = self._wrapper.shared_state()
        return [state] * self.n_envs

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Use statistics that were estimated before."""
        self._wrapper.load_shared_state(dict(state))

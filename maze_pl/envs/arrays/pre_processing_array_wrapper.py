"""Pre-processing of observations in arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.observation_array_wrapper import ObservationArrayWrapper
from maze_pl.envs.structured_env import Array

if TYPE_CHECKING:
    from maze_pl.envs.wrappers.pre_processing_wrapper import PreProcessingWrapper


class PreProcessingArrayWrapper(ObservationArrayWrapper):
    """Transforms observations with the pre-processors of the wrapper for single episodes.

    Args:
        env: The environment to wrap.
        wrapper: The wrapper with the pre-processors.
    """

    def __init__(self, env: ArrayEnv, wrapper: PreProcessingWrapper) -> None:
        super().__init__(env, wrapper.observation_spaces_dict)
        self._wrapper = wrapper

    def observations(
        self, key: StepKey, observation: Mapping[str, Array], which: Array, agents: Array
    ) -> Mapping[str, Array]:
        """Apply the pre-processors."""
        return self._wrapper.processed(observation, True)

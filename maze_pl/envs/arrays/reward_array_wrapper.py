"""Base of wrappers of array environments that change rewards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep, EnvIndex
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper
from maze_pl.envs.contract import EnvContractError, describe


class RewardArrayWrapper(ArrayWrapper):
    """Wrapper that changes the agent's reward; the environment's reward is logged unchanged."""

    @abstractmethod
    def rewards(self, rewards: AnyArray) -> AnyArray:
        """Return changed rewards, number by number, without modifying the given ones.

        Args:
            rewards: Rewards of any shape in float64, an array or a tensor; also those of single actors.
        """

    def step(self, actions: Mapping[StepKey, Mapping[str, AnyArray]], which: EnvIndex) -> ArrayStep:
        """Step and change the rewards.

        Raises:
            EnvContractError: The changed rewards have another shape.
        """
        result = super().step(actions, which)
        if isinstance(result, ArrayStep) and is_numbers(result.reward):  # others are reported by the caller
            result.reward = self._changed(result.reward)
            if is_numbers(result.actor_rewards):
                result.actor_rewards = self._changed(result.actor_rewards)
        return result

    def _changed(self, rewards: AnyArray) -> AnyArray:
        """Change rewards, and refuse a result of another shape."""
        changed = self.rewards(in_float64(rewards))
        if getattr(changed, "shape", None) != rewards.shape:
            came = f"rewards of {type(self).__name__} returned {describe(changed)}"
            raise EnvContractError(f"{came} for rewards of shape {tuple(rewards.shape)}; return one number for each")
        return changed


def is_numbers(array: Any) -> bool:
    """True for an array or a tensor of numbers."""
    if isinstance(array, np.ndarray):
        return array.dtype.kind in "fiub"
    return hasattr(array, "double")


def in_float64(array: AnyArray) -> AnyArray:
    """Return an array or a tensor in float64."""
    return array.astype(np.float64) if isinstance(array, np.ndarray) else array.double()

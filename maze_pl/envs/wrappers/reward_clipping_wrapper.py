"""Clipping of rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.reward_clipping_array_wrapper import RewardClippingArrayWrapper
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import RewardWrapper

if TYPE_CHECKING:
    from maze_pl.envs.tensors.tensor_env import TensorEnv


class RewardClippingWrapper(RewardWrapper):
    """Clips the reward of each act to a range.

    Args:
        env: The environment to wrap.
        min_val: Lower end of the range.
        max_val: Upper end of the range.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = RewardClippingWrapper.wrap(GymMazeEnv("CartPole-v1"), min_val=-0.5, max_val=0.5)
        >>> _ = env.reset(seed=1)
        >>> env.step({"action": 1})[1]
        0.5
    """

    def __init__(self, env: StructuredEnv, min_val: float, max_val: float) -> None:
        super().__init__(env)
        if not min_val <= max_val:
            raise ValueError(f"min_val={min_val} must not be above max_val={max_val}")
        self.min_val, self.max_val = min_val, max_val

    def reward(self, reward: float) -> float:
        """The nearest reward within the range."""
        return min(max(reward, self.min_val), self.max_val)

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        """Return the form for array environments."""
        return RewardClippingArrayWrapper(env, self.min_val, self.max_val)

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        """Return the form for environments in tensors."""
        from maze_pl.envs.tensors.reward_clipping_tensor_wrapper import RewardClippingTensorWrapper

        return RewardClippingTensorWrapper(env, self.min_val, self.max_val)

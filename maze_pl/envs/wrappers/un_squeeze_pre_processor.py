"""Pre-processor that inserts a dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrappers.pre_processors import PreProcessor, Space

if TYPE_CHECKING:
    import torch

    from maze_pl.envs.wrappers.pre_processors import TensorFunction


class UnSqueezePreProcessor(PreProcessor):
    """Inserts a dimension of length 1: at -3, a gray image [height, width] becomes [1, height, width].

    Args:
        observation_space: A Box.
        dim: Index of the new dimension in the result, counted from the right if negative.
    """

    tag = "unsqueeze"

    def __init__(self, observation_space: Space, dim: int) -> None:
        super().__init__(observation_space)
        self._shape = np.expand_dims(self.box().low, dim).shape

    def process(self, observation: Array) -> Array:
        """[a, b] -> [1, a, b], for example."""
        return observation.reshape(self._shape)

    def process_many(self, observations: Array) -> Array:
        """[n, a, b] -> [n, 1, a, b], for example."""
        return observations.reshape(len(observations), *self._shape)

    def tensor_function(self, device: torch.device) -> TensorFunction:
        """Return `process_many` for tensors."""
        shape = self._shape
        return lambda observations: observations.reshape(len(observations), *shape)

"""Pre-processor that flattens dimensions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrappers.pre_processors import PreProcessor, Space

if TYPE_CHECKING:
    import torch

    from maze_pl.envs.wrappers.pre_processors import TensorFunction


class FlattenPreProcessor(PreProcessor):
    """Flattens the last dimensions to one: with two of them, [5, 3, 2] becomes [5, 6].

    Args:
        observation_space: A Box.
        num_flatten_dims: Number of dimensions to flatten, counted from the right.
    """

    tag = "flatten"

    def __init__(self, observation_space: Space, num_flatten_dims: int) -> None:
        super().__init__(observation_space)
        if num_flatten_dims < 1:
            raise ValueError(f"num_flatten_dims={num_flatten_dims} must be at least 1")
        shape = self.box(num_flatten_dims).shape
        self._shape = (*shape[:-num_flatten_dims], math.prod(shape[-num_flatten_dims:]))

    def process(self, observation: Array) -> Array:
        """[..., a, b] -> [..., a * b]."""
        return observation.reshape(self._shape)

    def process_many(self, observations: Array) -> Array:
        """[n, ..., a, b] -> [n, ..., a * b]."""
        return observations.reshape(len(observations), *self._shape)

    def tensor_function(self, device: torch.device) -> TensorFunction:
        """Return `process_many` for tensors."""
        shape = self._shape
        return lambda observations: observations.reshape(len(observations), *shape)

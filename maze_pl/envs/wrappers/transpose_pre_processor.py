"""Pre-processor that permutes dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrappers.pre_processors import PreProcessor, Space

if TYPE_CHECKING:
    import torch

    from maze_pl.envs.wrappers.pre_processors import TensorFunction


class TransposePreProcessor(PreProcessor):
    """Permutes dimensions: with axes 2, 0, 1, [height, width, 3] becomes [3, height, width].

    Args:
        observation_space: A Box.
        axes: For each new dimension, the index of the original one.

    Attributes:
        axes: As given.
    """

    tag = "transpose"

    def __init__(self, observation_space: Space, axes: Sequence[int]) -> None:
        super().__init__(observation_space)
        own = list(range(len(self.box().shape)))
        if sorted(axes) != own:
            raise ValueError(f"axes={list(axes)} must hold each of {own} once, in any order")
        self.axes = tuple(axes)

    def process(self, observation: Array) -> Array:
        """Return a view with the dimensions in their new order."""
        return observation.transpose(self.axes)

    def process_many(self, observations: Array) -> Array:
        """Return a view with the dimensions after the first in their new order."""
        return observations.transpose(0, *[axis + 1 for axis in self.axes])

    def tensor_function(self, device: torch.device) -> TensorFunction:
        """Return `process_many` for tensors."""
        order = (0, *[axis + 1 for axis in self.axes])
        return lambda observations: observations.permute(order)

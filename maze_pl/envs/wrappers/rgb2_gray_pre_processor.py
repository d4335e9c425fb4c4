"""Pre-processor that converts colours to grayscale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrappers.averaging_pre_processor import AveragingPreProcessor
from maze_pl.envs.wrappers.pre_processors import Space

if TYPE_CHECKING:
    import torch

    from maze_pl.envs.wrappers.pre_processors import TensorFunction

# 0.299, 0.587 and 0.114 (ITU-R BT.601) in 1/65536: their sum is 1, and in float32 grays of bytes are exact.
GRAY_WEIGHTS: Final = (np.array([19595, 38470, 7471]) / 65536).astype(np.float32)


class Rgb2GrayPreProcessor(AveragingPreProcessor):
    """Converts colours to their brightness 0.299 r + 0.587 g + 0.114 b; drops the colour dimension.

    Args:
        observation_space: A Box with a dimension of length 3.
        rgb_dim: Index of that dimension (red, green, blue), counted from the right if negative.

    Attributes:
        rgb_dim: As given.
    """

    tag = "rgb2gray"

    def __init__(self, observation_space: Space, rgb_dim: int = -1) -> None:
        super().__init__(observation_space)
        shape = self.box().shape
        if not -len(shape) <= rgb_dim < len(shape) or shape[rgb_dim] != 3:
            raise ValueError(f"the colours, dimension rgb_dim={rgb_dim}, must be 3, but the shape is {shape}")
        self.rgb_dim = rgb_dim

    def average(self, observation: Array) -> Array:
        """[..., 3, ...] -> [..., ...]."""
        return np.asarray(np.moveaxis(observation, self.rgb_dim, -1) @ GRAY_WEIGHTS)

    def average_function(self, device: torch.device) -> TensorFunction:
        """Return `average` for many observations in tensors."""
        import torch

        weights = torch.from_numpy(GRAY_WEIGHTS).to(device)
        dim = self.rgb_dim + 1 if self.rgb_dim >= 0 else self.rgb_dim
        # a product of matrices may be rounded to TF32
        return lambda observations: (observations.float().movedim(dim, -1) * weights).sum(-1)

"""Pre-processor that resizes images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrappers.averaging_pre_processor import AveragingPreProcessor
from maze_pl.envs.wrappers.pre_processors import Space

if TYPE_CHECKING:
    import torch

    from maze_pl.envs.wrappers.pre_processors import TensorFunction


class ResizeImgPreProcessor(AveragingPreProcessor):
    """Resizes an image bilinearly; when shrinking, the filter is as wide as a new pixel.

    This is the bilinear filter of Pillow, and of torch with `antialias=True`. It is separable, so
    an image costs two products with matrices that are computed once. For bytes these hold whole
    numbers, small enough for exact sums.

    Args:
        observation_space: A Box of [height, width], [height, width, channels] or [channels, height, width].
        target_size: New height and width.
        transpose: Whether channels come first.

    Attributes:
        channels_last: Whether there are channels, and they come last.
        rows: [new height, height] weights of the original rows.
        columns: [width, new width] weights of the original columns.
        totals: [new height, new width] sums of the weights of each new pixel; None if they are 1.
    """

    tag = "resize_img"

    def __init__(self, observation_space: Space, target_size: Sequence[int], transpose: bool = False) -> None:
        super().__init__(observation_space)
        shape = self.box(2).shape
        if len(target_size) != 2 or min(target_size) < 1 or len(shape) > 3:
            raise ValueError(f"{target_size=} must be [height, width], for 2 or 3 dimensions, not {shape}")
        self.channels_last = len(shape) == 3 and not transpose
        height, width = shape[:2] if self.channels_last else shape[-2:]
        self.rows = _weights(height, target_size[0])
        self.columns = _weights(width, target_size[1]).T
        row_totals = self.rows.sum(axis=1, keepdims=True)
        column_totals = self.columns.sum(axis=0, keepdims=True)
        self.totals: Array | None = None
        if self.is_bytes:
            totals = row_totals * column_totals
            is_exact = 255 * int(totals.max()) < _EXACT_IN_FLOAT32
            self.computed = np.float32 if is_exact else np.float64
            self.totals = totals.astype(self.computed)
        else:
            self.rows = self.rows / row_totals
            self.columns = self.columns / column_totals
        self.rows = self.rows.astype(self.computed)
        self.columns = self.columns.astype(self.computed)

    def average(self, observation: Array) -> Array:
        """[height, width], with channels before or after them, -> the same with the new height and width."""
        image = observation.transpose(2, 0, 1) if self.channels_last else observation
        image = self.rows @ image @ self.columns
        if self.totals is not None:
            image = image / self.totals
        return image.transpose(1, 2, 0) if self.channels_last else image

    def average_function(self, device: torch.device) -> TensorFunction:
        """Return `average` for many observations in tensors."""
        import torch

        rows, columns = (torch.from_numpy(matrix).to(device).double() for matrix in (self.rows, self.columns))
        totals = None if self.totals is None else torch.from_numpy(self.totals).to(device).double()
        channels_last = self.channels_last

        def average(observations: torch.Tensor) -> torch.Tensor:
            images = observations.double()  # products of matrices in float32 may be rounded to TF32
            images = images.movedim(-1, 1) if channels_last else images
            images = rows @ images @ columns
            if totals is not None:
                images = images / totals
            return images.movedim(1, -1) if channels_last else images

        return average


_EXACT_IN_FLOAT32: Final = 2**23
"""Limit of whole numbers up to which float32 has them, and distinguishes their quotients from those halfway."""


def _weights(size: int, target: int) -> Array:
    """[target, size] int64 weights of the original pixels in each new one: a triangle around its centre.

    The triangle is as wide as two pixels of the coarser image. If the unit of length is 1 / (2 * target) of an
    original pixel, all positions are whole numbers.
    """
    centres = (2 * np.arange(target, dtype=np.int64)[:, np.newaxis] + 1) * size
    places = (2 * np.arange(size, dtype=np.int64) + 1) * target
    weights = np.maximum(2 * max(size, target) - np.abs(places - centres), 0)
    return np.asarray(weights // np.gcd.reduce(weights, axis=None))

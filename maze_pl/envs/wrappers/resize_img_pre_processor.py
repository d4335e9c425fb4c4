"""Pre-processor that resizes images."""

from collections.abc import Sequence

import numpy as np

from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrappers.averaging_pre_processor import AveragingPreProcessor
from maze_pl.envs.wrappers.pre_processors import Space


class ResizeImgPreProcessor(AveragingPreProcessor):
    """Resizes an image bilinearly; when shrinking, the filter is as wide as a new pixel.

    This is the bilinear filter of Pillow, and of torch with `antialias=True`. It is separable, so
    an image costs two products with matrices that are computed once.

    Args:
        observation_space: A Box of [height, width], [height, width, channels] or [channels, height, width].
        target_size: New height and width.
        transpose: Whether channels come first.

    Attributes:
        channels_last: Whether there are channels, and they come last.
        rows: [new height, height] weights of the original rows.
        columns: [width, new width] weights of the original columns.
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

    def average(self, observation: Array) -> Array:
        """[height, width], with channels before or after them, -> the same with the new height and width."""
        image = observation.transpose(2, 0, 1) if self.channels_last else observation
        image = self.rows @ image @ self.columns
        return image.transpose(1, 2, 0) if self.channels_last else image


def _weights(size: int, target: int) -> Array:
    """[target, size] weights of the original pixels in each new one: a triangle around its centre."""
    scale = size / target
    centre = (np.arange(target)[:, np.newaxis] + 0.5) * scale - 0.5
    weights = np.maximum(0.0, 1.0 - np.abs(np.arange(size) - centre) / max(scale, 1.0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)

"""Block that scales numbers by their bounds."""

import math
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes
from maze_pl.perception.blocks.scaling import Bound, Scaling


class ScalingBlock(PerceptionBlock):
    """Scales numbers from their bounds to 0..1: [..., *shape] to vectors [..., n].

        y = (x - low) / (high - low)

    For bytes, other integers between bounds, and categories that are to count as numbers. Large
    integers, such as times in seconds since 1970, keep their differences.

    Args:
        in_keys: Name of the input, of any type.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        low: Lowest value; one for all numbers, or a list with one each, row by row.
        high: Highest value, likewise. Where it equals `low`, the output is x - low.

    Example:
        >>> import torch
        >>> block = ScalingBlock("memory", "vector", [2], low=0, high=255)
        >>> block({"memory": torch.tensor([0, 51], dtype=torch.uint8)})["vector"]
        tensor([0.0000, 0.2000])
    """

    takes_numbers: ClassVar[bool] = True

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, low: Bound, high: Bound) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(0)
        self._n_dims = len(self.in_shapes[0])
        self.scaling = Scaling(self, math.prod(self.in_shapes[0]), low, high)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the scaled numbers [..., n]."""
        numbers = block_input[self.in_keys[0]]
        flat = numbers.flatten(-self._n_dims) if self._n_dims else numbers.unsqueeze(-1)
        return {self.out_keys[0]: self.scaling(flat)}

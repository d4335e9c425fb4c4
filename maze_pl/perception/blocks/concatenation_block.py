"""Block that concatenates tensors."""

from collections.abc import Mapping

import torch
from torch import Tensor

from maze_pl.perception.blocks.one_output_block import from_right
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes


class ConcatenationBlock(PerceptionBlock):
    """Concatenates tensors along one dimension.

    Args:
        in_keys: Names of the inputs.
        out_keys: Name of the output.
        in_shapes: Shapes of the inputs, which differ at most in `concat_dim`.
        concat_dim: The dimension of concatenation.

    Example:
        >>> ConcatenationBlock(["inventory", "screen"], "joined", [[16], [32]]).out_shapes()
        [(48,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, concat_dim: int = -1) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.concat_dim = dim = from_right(self, "concat_dim", concat_dim, len(self.in_shapes[0]))
        others = {(len(shape), shape[:dim], shape[len(shape) + dim + 1 :]) for shape in self.in_shapes}
        good = len(others) == len(self.out_keys) == 1
        self.require(good, f"shapes that differ in dimension {concat_dim} at most, and one output")

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Concatenate the inputs in the order of `in_keys`."""
        tensors = [block_input[key] for key in self.in_keys]
        return {self.out_keys[0]: torch.cat(tensors, self.concat_dim)}

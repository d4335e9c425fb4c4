"""Block that inserts a dimension of size 1."""

from functools import partial

import torch

from maze_pl.perception.blocks.one_output_block import OneOutputBlock, from_right
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class UnsqueezeBlock(OneOutputBlock):
    """Inserts a dimension of size 1.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        unsqueeze_dim: Position of the new dimension in the output shape.

    Example:
        >>> UnsqueezeBlock("game", "row", [8], unsqueeze_dim=-2).out_shapes()
        [(1, 8)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, unsqueeze_dim: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(0)
        dim = from_right(self, "unsqueeze_dim", unsqueeze_dim, len(self.in_shapes[0]) + 1)
        self.func = partial(torch.unsqueeze, dim=dim)

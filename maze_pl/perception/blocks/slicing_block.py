"""Block that selects one entry of a dimension."""

from functools import partial

import torch

from maze_pl.perception.blocks.one_output_block import OneOutputBlock, from_right
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class SlicingBlock(OneOutputBlock):
    """Selects one entry of a dimension, which is then removed.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        slice_dim: The dimension to select from.
        slice_idx: The index; a negative one counts from the end.

    Example:
        >>> SlicingBlock("sequence", "last", [10, 4], slice_dim=-2, slice_idx=-1).out_shapes()
        [(4,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, slice_dim: int, slice_idx: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        dim = from_right(self, "slice_dim", slice_dim, len(self.in_shapes[0]))
        index = from_right(self, "slice_idx", slice_idx, self.in_shapes[0][dim])
        self.func = partial(torch.select, dim=dim, index=index)

"""Block that selects several entries of a dimension."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.one_output_block import from_right
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes


class MultiIndexSlicingBlock(PerceptionBlock):
    """Selects several entries of one dimension.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        select_dim: The dimension to select from.
        select_idxs: Indices in the order of the output; negative ones count from the end.

    Example:
        >>> MultiIndexSlicingBlock("state", "angles", [6], select_dim=-1, select_idxs=[1, -1]).out_shapes()
        [(2,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        select_dim: int,
        select_idxs: Sequence[int],
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        self.select_dim = from_right(self, "select_dim", select_dim, len(self.in_shapes[0]))
        size = self.in_shapes[0][self.select_dim]
        self.require_lists(None, select_idxs=select_idxs)
        indices = [from_right(self, "select_idxs", index, size) + size for index in select_idxs]
        self.select_idxs = nn.Buffer(torch.tensor(indices), persistent=False)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the input with only the selected entries in `select_dim`."""
        x = block_input[self.in_keys[0]]
        return {self.out_keys[0]: x.index_select(self.select_dim, self.select_idxs)}

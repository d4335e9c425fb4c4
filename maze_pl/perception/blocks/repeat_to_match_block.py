"""Block that repeats a tensor to the size of another one."""

from functools import partial

from torch import Tensor

from maze_pl.perception.blocks.one_output_block import OneOutputBlock, from_right
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class RepeatToMatchBlock(OneOutputBlock):
    """Repeats a tensor along a dimension of size 1 to match another tensor's size.

    Args:
        in_keys: Names of the tensor to repeat and of the tensor to match.
        out_keys: Name of the output.
        in_shapes: Shapes of the inputs.
        repeat_at_idx: The dimension in both tensors; its size in the first is 1.

    Example:
        >>> RepeatToMatchBlock(["game", "units"], "game_per_unit", [[1, 8], [5, 3]], repeat_at_idx=-2).out_shapes()
        [(5, 8)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, repeat_at_idx: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require(len(self.in_keys) == 2 and len(self.out_keys) == 1, "two inputs and one output")
        dim, match_dim = (from_right(self, "repeat_at_idx", repeat_at_idx, len(shape)) for shape in self.in_shapes)
        is_single = self.in_shapes[0][dim] == 1
        self.require(is_single, f"a first input of size 1 in dimension {repeat_at_idx}, where it is repeated")
        self.func = partial(_repeated, dim=dim, match_dim=match_dim)


def _repeated(x: Tensor, match: Tensor, dim: int, match_dim: int) -> Tensor:
    return x.repeat_interleave(match.shape[match_dim], dim)

"""Base of blocks that compute one tensor by a function, and indices from the right."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes, is_whole


def from_right(block: PerceptionBlock, option: str, index: int, size: int) -> int:
    """Return an index counted from the right, which leading dimensions require."""
    good = is_whole(index) and -size <= index < size
    block.require(good, f"{option} from {-size} to {size - 1}, not {index!r}")
    return index if index < 0 else index - size


class OneOutputBlock(PerceptionBlock):
    """A function `func` from tensors to one tensor.

    Args:
        in_keys: Name or names of the input tensors.
        out_keys: Name of the output.
        in_shapes: The shape of the input, or one shape for each of `in_keys`.
    """

    func: Callable[..., Tensor]

    n_computed: ClassVar[int] = 0
    """Number of inputs, the first ones, that the function computes with, as floats; others keep their type."""

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        if self.n_computed:
            self.one = nn.Buffer(torch.ones(()), persistent=False)  # has the type of the network

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the results of the function by the names in `out_keys`."""
        tensors = [block_input[key] for key in self.in_keys]
        tensors[: self.n_computed] = map(self.as_floats, tensors[: self.n_computed])
        return {self.out_keys[0]: self.func(*tensors)}

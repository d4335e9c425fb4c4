"""Base of blocks that compute one tensor by a function, and indices from the right."""

from collections.abc import Callable, Mapping

from torch import Tensor

from maze_pl.perception.blocks.perception_block import PerceptionBlock, is_whole


def from_right(block: PerceptionBlock, option: str, index: int, size: int) -> int:
    """Return an index counted from the right, which leading dimensions require."""
    good = is_whole(index) and -size <= index < size
    block.require(good, f"{option} from {-size} to {size - 1}, not {index!r}")
    return index if index < 0 else index - size


class OneOutputBlock(PerceptionBlock):
    """A function `func` from tensors to one tensor."""

    func: Callable[..., Tensor]

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the results of the function by the names in `out_keys`."""
        return {self.out_keys[0]: self.func(*(block_input[key] for key in self.in_keys))}

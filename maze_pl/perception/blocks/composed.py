"""Base of blocks composed of other blocks."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from maze_pl.perception.blocks.layer_options import Activations, Layers
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes, is_list


def divide_activations(block: str, non_lin: Activations, *parts: Layers) -> list[Activations]:
    """Divide an option `non_lin` of a block among its parts.

    Args:
        block: Name of the block.
        non_lin: One activation for all layers, or a list with one for each layer of all parts.
        parts: The layers of each part.

    Returns:
        The option of each part.

    Raises:
        ValueError: The list does not have one activation for each layer.
    """
    if not is_list(non_lin):
        return [non_lin] * len(parts)
    activations: Any = non_lin
    sizes = [len(part) if is_list(part) else 1 for part in parts]
    if len(activations) != sum(sizes):
        expected = f"one class, or a list of {' + '.join(map(str, sizes))}, one for each layer"
        raise ValueError(f"{block}: expected non_lin to be {expected}; not {non_lin!r}")
    divided: list[Activations] = []
    start = 0
    for size in sizes:
        divided.append(activations[start : start + size])
        start += size
    return divided


class JointBlock(PerceptionBlock):
    """A chain of blocks, each of which reads the output of the previous one.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        parts: Factories of the blocks, called with keys and shapes.
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        parts: Sequence[partial[Any]],
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        keys = self.in_keys
        shapes = self.in_shapes
        blocks: list[PerceptionBlock] = []
        for part in parts:
            out_keys = [f"{self.out_keys[0]}_{part.func.__name__}"]
            if part is parts[-1]:
                out_keys = self.out_keys
            block = part(keys, out_keys, shapes)
            blocks.append(block)
            keys = out_keys
            shapes = block.out_shapes()
        self.net = nn.Sequential(*blocks)

    def forward(self, block_input: Mapping[str, Tensor]) -> Any:
        """Map a dict with the tensor of `in_keys` to the one of `out_keys`, [..., *shape] each."""
        return self.net(block_input)

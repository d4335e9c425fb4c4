"""Block that flattens dimensions."""

from collections.abc import Mapping

from torch import Tensor

from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes


class FlattenBlock(PerceptionBlock):
    """Flattens the last dimensions into one.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        num_flatten_dims: Number of dimensions to flatten.

    Example:
        >>> FlattenBlock("screen", "vector", [3, 8, 8], num_flatten_dims=3).out_shapes()
        [(192,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, num_flatten_dims: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_numbers(num_flatten_dims=num_flatten_dims)
        self.require_single(num_flatten_dims)
        self.num_flatten_dims = num_flatten_dims

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the flattened input [..., product of the last dimensions]."""
        return {self.out_keys[0]: block_input[self.in_keys[0]].flatten(-self.num_flatten_dims)}

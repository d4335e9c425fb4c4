"""Block around a custom module."""

from collections.abc import Mapping

from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Dims, Keys, Shapes
from maze_pl.perception.blocks.shape_normalization_block import ShapeNormalizationBlock


class TorchModelBlock(ShapeNormalizationBlock):
    """Wraps a module from dict to dict of tensors [B, ...], for any number of leading dimensions.

    Args:
        in_keys: Name or names of the input tensors; the module gets only these.
        out_keys: Name or names of the output tensors; further outputs of the module are dropped.
        in_shapes: The shape of the input, or one shape for each of `in_keys`.
        in_num_dims: Number of dimensions of the module's inputs, including the batch; one number
            for all of `in_keys` or one for each.
        out_num_dims: Number of dimensions of its outputs, likewise.
        net: The module.

    Raises:
        ValueError: The module does not return the expected tensors.

    Example:
        >>> class Doubled(nn.Module):
        ...     def forward(self, tensors):
        ...         return {"doubled": 2 * tensors["observation"]}
        >>> block = TorchModelBlock("observation", "doubled", [4], in_num_dims=2, out_num_dims=2, net=Doubled())
        >>> block.out_shapes()
        [(4,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        in_num_dims: Dims,
        out_num_dims: Dims,
        net: nn.Module,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes, in_num_dims, out_num_dims)
        self.require(isinstance(net, nn.Module), f"net to be a torch.nn.Module, not {net!r}")
        self.net = net

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of `out_keys` [B, ...], given the tensors of `in_keys` [B, *shape]."""
        output = self.net(block_input)
        is_dict = isinstance(output, Mapping)
        self.require(is_dict, f"a dict from {type(self.net).__name__}, got {type(output).__name__}")
        found = {key: output[key].dim() for key in self.out_keys if key in output}
        expected = dict(zip(self.out_keys, self.out_num_dims, strict=True))
        self.require(
            found == expected,
            f"tensors of {expected} dimensions from {type(self.net).__name__}, got {found}",
        )
        return {key: output[key] for key in self.out_keys}

"""Dense layers."""

from abc import ABC
from collections.abc import Mapping, Sequence
from itertools import pairwise

from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes
from maze_pl.perception.module_class import ModuleClass, module_class

Layers = Sequence[int]
"""One number for each layer."""


def dense_layers(widths: Layers, non_lin: ModuleClass) -> nn.Sequential:
    """Dense layers from each width to the next one, each followed by an activation."""
    activation = module_class(non_lin)
    return nn.Sequential(*(layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), activation())))


class _NetBlock(PerceptionBlock, ABC):
    """A module `net` for the last dimension of a single tensor."""

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """[..., width]."""
        net, x = self._modules["net"], block_input[self.in_keys[0]]  # as an attribute it takes a while to find
        if not x.is_floating_point():  # such as numbers and flags that an environment shows
            x = x.to(next(self.parameters()).dtype)
        return {self.out_keys[0]: net(x)}  # type: ignore[misc]


class DenseBlock(_NetBlock):
    """Dense layers, each followed by an activation: [..., n] to [..., hidden_units[-1]].

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape (n,), or (..., n).
        hidden_units: Width of each layer.
        non_lin: Activation, a class or its path.

    Example:
        >>> DenseBlock("observation", "latent", [4], hidden_units=[32, 16]).out_shapes()
        [(16,)]
    """

    def __init__(
        self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, hidden_units: Layers, non_lin: ModuleClass = nn.ReLU
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        self.require(len(hidden_units) > 0, "at least one entry of hidden_units")
        self.net = dense_layers([self.in_shapes[0][-1], *hidden_units], non_lin)


class LinearOutputBlock(_NetBlock):
    """One linear layer without activation, for logits and values: [..., n] to [..., output_units].

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape (n,), or (..., n).
        output_units: Number of outputs.

    Example:
        >>> LinearOutputBlock("latent", "value", [16], output_units=1).out_shapes()
        [(1,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, output_units: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        self.net = nn.Linear(self.in_shapes[0][-1], output_units)

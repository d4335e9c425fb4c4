"""Dense layers."""

from collections.abc import Mapping
from itertools import pairwise

from torch import Tensor, nn

from maze_pl.core.class_path import import_class
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass
from maze_pl.perception.blocks.perception_block import (
    Keys,
    PerceptionBlock,
    Shapes,
)


def dense_layers(widths: Layers, non_lin: ModuleClass) -> nn.Sequential:
    """Make dense layers between consecutive widths, each followed by an activation."""
    activation = import_class(non_lin, nn.Module, "non_lin: ")
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out), activation()]
    return nn.Sequential(*layers)


class _NetBlock(PerceptionBlock):
    """A module `net` applied to the last dimension of a single tensor."""

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [..., width]."""
        net, x = self._modules["net"], block_input[self.in_keys[0]]  # attribute access is slower
        if not x.is_floating_point():  # such as integers and flags in observations
            x = x.to(next(self.parameters()).dtype)
        return {self.out_keys[0]: net(x)}  # type: ignore[misc]


class DenseBlock(_NetBlock):
    """Dense layers, each followed by an activation: [..., n] to [..., hidden_units[-1]].

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input (n,), or (..., n).
        hidden_units: Width of each layer.
        non_lin: Activation, a class or its path.

    Example:
        >>> DenseBlock("observation", "latent", [4], hidden_units=[32, 16]).out_shapes()
        [(16,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_units: Layers,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        self.require_lists(hidden_units=hidden_units)
        widths = [self.in_shapes[0][-1], *hidden_units]
        self.net = dense_layers(widths, self.module_class(non_lin=non_lin))


class LinearOutputBlock(_NetBlock):
    """One linear layer without activation, for logits and values: [..., n] to [..., output_units].

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input (n,), or (..., n).
        output_units: Number of outputs.

    Example:
        >>> LinearOutputBlock("latent", "value", [16], output_units=1).out_shapes()
        [(1,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, output_units: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        self.require_numbers(output_units=output_units)
        self.net = nn.Linear(self.in_shapes[0][-1], output_units)

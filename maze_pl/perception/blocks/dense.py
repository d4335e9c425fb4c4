"""Dense layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes
from maze_pl.perception.module_class import ModuleClass, module_class


class DenseBlock(PerceptionBlock):
    """Dense layers, each followed by an activation: [..., n] to [..., hidden_units[-1]].

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape (n,).
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
        hidden_units: Sequence[int],
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require(len(self.in_shapes) == len(self.in_shapes[0]) == 1, "one vector")
        activation, layers = module_class(non_lin), list[nn.Module]()
        for n_in, n_out in zip([self.in_shapes[0][0], *hidden_units[:-1]], hidden_units, strict=True):
            layers += [nn.Linear(n_in, n_out), activation()]
        self.net = nn.Sequential(*layers)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """[..., hidden_units[-1]]."""
        return {self.out_keys[0]: self.net(block_input[self.in_keys[0]])}


class LinearOutputBlock(PerceptionBlock):
    """One linear layer without activation, for logits and values: [..., n] to [..., output_units].

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape (n,).
        output_units: Number of outputs.

    Example:
        >>> LinearOutputBlock("latent", "value", [16], output_units=1).out_shapes()
        [(1,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, output_units: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require(len(self.in_shapes) == len(self.in_shapes[0]) == 1, "one vector")
        self.net = nn.Linear(self.in_shapes[0][0], output_units)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """[..., output_units]."""
        return {self.out_keys[0]: self.net(block_input[self.in_keys[0]])}

"""Block of dense layers."""

from torch import nn

from maze_pl.perception.blocks.dense import NetBlock, dense_layers
from maze_pl.perception.blocks.layer_options import Activations, Layers, Normalization
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class DenseBlock(NetBlock):
    """Dense layers, each followed by an activation: [..., n] to [..., hidden_units[-1]].

    A layer is a linear map, normalisation, activation and dropout, in this order.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input (n,), or (..., n).
        hidden_units: Width of each layer.
        non_lin: Activation, a class or its path; or a list with one for each layer.
        normalization: "batch" or "layer" normalises between the linear map and the activation; None
            does not.
        dropout: Probability of setting an output of a layer to 0 in training mode.

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
        non_lin: Activations = nn.ReLU,
        normalization: Normalization | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        self.require_lists(hidden_units=hidden_units)
        self.require_normalization(normalization)
        self.require_probability(dropout=dropout)
        widths = [self.in_shapes[0][-1], *hidden_units]
        activations = self.module_classes(len(hidden_units), non_lin=non_lin)
        self.net = dense_layers(widths, activations, normalization, dropout)

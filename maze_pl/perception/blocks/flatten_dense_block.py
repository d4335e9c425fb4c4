"""Block that flattens, followed by dense layers."""

from functools import partial

from torch import nn

from maze_pl.perception.blocks.composed import JointBlock
from maze_pl.perception.blocks.dense_block import DenseBlock
from maze_pl.perception.blocks.flatten_block import FlattenBlock
from maze_pl.perception.blocks.layer_options import Activations, Layers, Normalization
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class FlattenDenseBlock(JointBlock):
    """`FlattenBlock`, then `DenseBlock`: [..., *shape] to [..., hidden_units[-1]].

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        num_flatten_dims: Number of last dimensions to flatten.
        hidden_units: Width of each dense layer.
        non_lin: Activation, a class or its path; or a list with one for each dense layer.
        normalization: "batch" or "layer" normalises before each activation; None does not.
        dropout: Probability of setting an output of a layer to 0 in training mode.

    Example:
        >>> FlattenDenseBlock("board", "latent", [8, 8], num_flatten_dims=2, hidden_units=[32]).out_shapes()
        [(32,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        num_flatten_dims: int,
        hidden_units: Layers,
        non_lin: Activations = nn.ReLU,
        normalization: Normalization | None = None,
        dropout: float = 0.0,
    ) -> None:
        flatten = partial(FlattenBlock, num_flatten_dims=num_flatten_dims)
        dense = partial(
            DenseBlock,
            hidden_units=hidden_units,
            non_lin=non_lin,
            normalization=normalization,
            dropout=dropout,
        )
        super().__init__(in_keys, out_keys, in_shapes, [flatten, dense])

"""Block of convolutions, poolings and dense layers."""

from functools import partial

from torch import nn

from maze_pl.perception.blocks.composed import JointBlock, divide_activations
from maze_pl.perception.blocks.dense_block import DenseBlock
from maze_pl.perception.blocks.flatten_block import FlattenBlock
from maze_pl.perception.blocks.layer_options import Activations, Layers, Normalization
from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.vgg_convolution_block import VGGConvolutionBlock


class VGGConvolutionDenseBlock(JointBlock):
    """`VGGConvolutionBlock`, `FlattenBlock`, `DenseBlock`: images to vectors.

    The shapes are [..., C, H, W] and [..., hidden_units[-1]].

    Args:
        in_keys: Name of the images, of floats or of bytes.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each pair of convolutions.
        hidden_units: Width of each dense layer.
        non_lin: Activation, a class or its path; or a list with one for each pair of convolutions,
            then for each dense layer.
        normalization: "batch" or "layer" normalises before each activation; None does not.
        dropout: Probability of setting an output of a layer to 0 in training mode.

    Example:
        >>> block = VGGConvolutionDenseBlock(
        ...     "screen", "latent", [3, 64, 64], hidden_channels=[8, 16, 32], hidden_units=[32]
        ... )
        >>> block.out_shapes()
        [(32,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_channels: Layers,
        hidden_units: Layers,
        non_lin: Activations = nn.ReLU,
        normalization: Normalization | None = None,
        dropout: float = 0.0,
    ) -> None:
        of_images, of_vectors = divide_activations(type(self).__name__, non_lin, hidden_channels, hidden_units)
        convolution = partial(
            VGGConvolutionBlock,
            hidden_channels=hidden_channels,
            non_lin=of_images,
            normalization=normalization,
            dropout=dropout,
        )
        flatten = partial(FlattenBlock, num_flatten_dims=3)
        dense = partial(
            DenseBlock,
            hidden_units=hidden_units,
            non_lin=of_vectors,
            normalization=normalization,
            dropout=dropout,
        )
        super().__init__(in_keys, out_keys, in_shapes, [convolution, flatten, dense])

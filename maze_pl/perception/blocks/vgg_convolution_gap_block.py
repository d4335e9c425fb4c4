"""Block of convolutions and poolings that averages each channel in the end."""

from functools import partial

from torch import nn

from maze_pl.perception.blocks.composed import JointBlock
from maze_pl.perception.blocks.global_average_pooling_block import GlobalAveragePoolingBlock
from maze_pl.perception.blocks.layer_options import Activations, Layers, Normalization
from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.vgg_convolution_block import VGGConvolutionBlock


class VGGConvolutionGAPBlock(JointBlock):
    """`VGGConvolutionBlock`, then `GlobalAveragePoolingBlock`: images to vectors.

    The shapes are [..., C, H, W] and [..., hidden_channels[-1]].

    Args:
        in_keys: Name of the images, of floats or of bytes.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each pair of convolutions.
        non_lin: Activation, a class or its path; or a list with one for each pair of convolutions.
        normalization: "batch" or "layer" normalises before each activation; None does not.
        dropout: Probability of setting an output of a layer to 0 in training mode.

    Example:
        >>> VGGConvolutionGAPBlock("screen", "latent", [3, 64, 64], hidden_channels=[8, 16, 32]).out_shapes()
        [(32,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_channels: Layers,
        non_lin: Activations = nn.ReLU,
        normalization: Normalization | None = None,
        dropout: float = 0.0,
    ) -> None:
        convolution = partial(
            VGGConvolutionBlock,
            hidden_channels=hidden_channels,
            non_lin=non_lin,
            normalization=normalization,
            dropout=dropout,
        )
        super().__init__(in_keys, out_keys, in_shapes, [convolution, partial(GlobalAveragePoolingBlock)])

"""Block of strided convolutions and dense layers."""

from functools import partial
from typing import Literal

from torch import nn

from maze_pl.perception.blocks.composed import JointBlock, divide_activations
from maze_pl.perception.blocks.convolution import check_convolution_dimension
from maze_pl.perception.blocks.dense_block import DenseBlock
from maze_pl.perception.blocks.flatten_block import FlattenBlock
from maze_pl.perception.blocks.layer_options import Activations, Layers, Normalization, Sizes
from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.strided_convolution_block import PaddingMode, StridedConvolutionBlock


class StridedConvolutionDenseBlock(JointBlock):
    """`StridedConvolutionBlock`, `FlattenBlock`, `DenseBlock`: images to vectors.

    The shapes are [..., C, H, W] and [..., hidden_units[-1]].

    Args:
        in_keys: Name of the images, of floats or of bytes.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W); (C, T) with
            `convolution_dimension` 1, and (C, D, H, W) with 3.
        hidden_channels: Channels of each convolution.
        hidden_kernels: Size of each kernel; a number, or a list with one number for each dimension,
            such as height and width.
        hidden_strides: Stride of each convolution, likewise; 1 by default.
        hidden_padding: Elements added at both ends of a dimension, likewise; 0 by default.
        hidden_units: Width of each dense layer.
        non_lin: Activation, a class or its path; or a list with one for each convolution, then for
            each dense layer.
        convolution_dimension: Number of dimensions that the kernels move along: 1 for sequences, 2
            for images, 3 for volumes and videos.
        hidden_dilations: Distance between the entries of each kernel, as `hidden_strides`; 1 by
            default.
        padding_mode: Values of the padding: "zeros"; "reflect", the mirrored image; "replicate",
            its nearest element; or "circular", its opposite side.
        normalization: "batch" or "layer" normalises before each activation; None does not.
        dropout: Probability of setting an output of a layer to 0 in training mode.

    Example:
        >>> block = StridedConvolutionDenseBlock(
        ...     "screen", "latent", [4, 84, 84], hidden_channels=[32, 64, 64], hidden_kernels=[8, 4, 3],
        ...     hidden_strides=[4, 2, 1], hidden_units=[512],
        ... )
        >>> block.out_shapes()
        [(512,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_channels: Layers,
        hidden_kernels: Sizes,
        hidden_strides: Sizes | None = None,
        hidden_padding: Sizes | None = None,
        *,
        hidden_units: Layers,
        non_lin: Activations = nn.ReLU,
        convolution_dimension: Literal[1, 2, 3] = 2,
        hidden_dilations: Sizes | None = None,
        padding_mode: PaddingMode = "zeros",
        normalization: Normalization | None = None,
        dropout: float = 0.0,
    ) -> None:
        check_convolution_dimension(type(self).__name__, convolution_dimension)
        of_images, of_vectors = divide_activations(type(self).__name__, non_lin, hidden_channels, hidden_units)
        convolution = partial(
            StridedConvolutionBlock,
            hidden_channels=hidden_channels,
            hidden_kernels=hidden_kernels,
            hidden_strides=hidden_strides,
            hidden_padding=hidden_padding,
            non_lin=of_images,
            convolution_dimension=convolution_dimension,
            hidden_dilations=hidden_dilations,
            padding_mode=padding_mode,
            normalization=normalization,
            dropout=dropout,
        )
        flatten = partial(FlattenBlock, num_flatten_dims=convolution_dimension + 1)
        dense = partial(
            DenseBlock,
            hidden_units=hidden_units,
            non_lin=of_vectors,
            normalization=normalization,
            dropout=dropout,
        )
        super().__init__(in_keys, out_keys, in_shapes, [convolution, flatten, dense])

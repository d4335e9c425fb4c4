"""Block of strided convolutions and dense layers."""

from functools import partial

from torch import nn

from maze_pl.perception.blocks.composed import JointBlock
from maze_pl.perception.blocks.dense_block import DenseBlock
from maze_pl.perception.blocks.flatten_block import FlattenBlock
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass, Sizes
from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.strided_convolution_block import StridedConvolutionBlock


class StridedConvolutionDenseBlock(JointBlock):
    """`StridedConvolutionBlock`, `FlattenBlock`, `DenseBlock`: images to vectors.

    The shapes are [..., C, H, W] and [..., hidden_units[-1]].

    Args:
        in_keys: Name of the images, of floats or of bytes.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each convolution.
        hidden_kernels: Size of each kernel; a number, or a pair for height and width.
        hidden_strides: Stride of each convolution, likewise; 1 by default.
        hidden_padding: Zeros added at both ends of a dimension, likewise; 0 by default.
        hidden_units: Width of each dense layer.
        non_lin: Activation, a class or its path.

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
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        convolution = partial(
            StridedConvolutionBlock,
            hidden_channels=hidden_channels,
            hidden_kernels=hidden_kernels,
            hidden_strides=hidden_strides,
            hidden_padding=hidden_padding,
            non_lin=non_lin,
        )
        flatten = partial(FlattenBlock, num_flatten_dims=3)
        dense = partial(DenseBlock, hidden_units=hidden_units, non_lin=non_lin)
        super().__init__(in_keys, out_keys, in_shapes, [convolution, flatten, dense])

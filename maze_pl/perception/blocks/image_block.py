"""Block for images of any layout."""

from collections.abc import Mapping
from typing import Literal, get_args

from torch import Tensor, nn

from maze_pl.perception.blocks.layer_options import Layers, ModuleClass, Sizes
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes
from maze_pl.perception.blocks.scaling import Scaling
from maze_pl.perception.blocks.strided_convolution_dense_block import StridedConvolutionDenseBlock

Channels = Literal["first", "last", "none"]
"""Position of the channels of an image: (C, H, W), (H, W, C) or (H, W)."""


def n_image_dims(channels: Channels, stacked: bool = False) -> int:
    """Return the number of dimensions of an image, or of a stack of images."""
    return (2 if channels == "none" else 3) + stacked


def channels_first(shape: tuple[int, ...], channels: Channels, stacked: bool = False) -> tuple[int, int, int]:
    """Return the shape (C, H, W) of an image, or of a stack of images whose channels are joined.

    Args:
        shape: Shape of the image in its layout, or of the stack, with one more dimension in front.
            Further dimensions are leading ones.
        channels: The layout.
        stacked: Whether it is a stack.

    Example:
        >>> channels_first((4, 96, 96, 3), "last", stacked=True)
        (12, 96, 96)
    """
    n_images = shape[-n_image_dims(channels, stacked)] if stacked else 1
    if channels == "none":
        return n_images, shape[-2], shape[-1]
    if channels == "last":
        return n_images * shape[-1], shape[-3], shape[-2]
    return n_images * shape[-3], shape[-2], shape[-1]


class ImageBlock(PerceptionBlock):
    """Convolutions and dense layers for images of any layout, to vectors [..., hidden_units[-1]].

    Byte images are converted to floats from 0 to 1. The layers are those of
    `StridedConvolutionDenseBlock`.

    Args:
        in_keys: Name of the images, of floats, bytes or other integers.
        out_keys: Name of the output.
        in_shapes: Shape of the images.
        channels: Layout of an image: "first" for (C, H, W), "last" for (H, W, C), "none" for
            (H, W).
        hidden_channels: Channels of each convolution.
        hidden_kernels: Size of each kernel; a number, or a pair for height and width.
        hidden_strides: Stride of each convolution, likewise; 1 by default.
        hidden_padding: Zeros added at both ends of a dimension, likewise; 0 by default.
        hidden_units: Width of each dense layer.
        non_lin: Activation, a class or its path.
        stacked: Whether one more dimension in front counts the images of a stack, such as the
            latest frames; their channels become those of one image.
        low: Lowest value, if numbers other than bytes are to be scaled to 0..1.
        high: Highest value, likewise.

    Example:
        >>> block = ImageBlock("view", "vector", [7, 7, 3], channels="last", hidden_channels=[16], hidden_kernels=[3],
        ...     hidden_units=[64])
        >>> block.out_shapes()
        [(64,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        channels: Channels,
        hidden_channels: Layers,
        hidden_kernels: Sizes,
        hidden_strides: Sizes | None = None,
        hidden_padding: Sizes | None = None,
        *,
        hidden_units: Layers,
        non_lin: ModuleClass = nn.ReLU,
        stacked: bool = False,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        known = isinstance(channels, str) and channels in get_args(Channels)
        self.require(known, f"channels 'first', 'last' or 'none', not {channels!r}")
        self.require_flags(stacked=stacked)
        self.require_single(n_image_dims(channels, stacked))
        self.require((low is None) == (high is None), f"both low and high or neither, not {low=} and {high=}")
        self.channels: Channels = channels
        self.stacked = stacked
        self.scaling = None if low is None or high is None else Scaling(self, 1, low, high)
        self.net = StridedConvolutionDenseBlock(
            "images",
            "vector",
            channels_first(self.in_shapes[0], channels, stacked),
            hidden_channels,
            hidden_kernels,
            hidden_strides,
            hidden_padding,
            hidden_units=hidden_units,
            non_lin=non_lin,
        )

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the embeddings [..., hidden_units[-1]]."""
        images = block_input[self.in_keys[0]]
        if self.channels == "none" and not self.stacked:  # [..., H, W] -> [..., 1, H, W]
            images = images.unsqueeze(-3)
        elif self.channels == "last":  # [..., H, W, C] -> [..., C, H, W]
            images = images.movedim(-1, -3)
        if self.stacked and self.channels != "none":  # [..., K, C, H, W] -> [..., K * C, H, W]
            images = images.flatten(-4, -3)
        if self.scaling is not None:
            images = self.scaling(images)
        return {self.out_keys[0]: self.net({"images": images})["vector"]}

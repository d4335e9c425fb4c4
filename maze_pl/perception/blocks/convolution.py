"""Convolution layers for images.

Images keep the type that the environment returns. Byte images stay `torch.uint8` in observation
spaces, memory, rollouts and minibatches, a quarter of the size of float32. Only the convolution
blocks convert bytes to floats from 0 to 1 of the weights' type, one minibatch at a time. Floats,
and the values of other integers and flags, are not rescaled.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.layer_options import Layers, ModuleClass, Sizes
from maze_pl.perception.blocks.perception_block import (
    Keys,
    ShapeNormalizationBlock,
    Shapes,
    is_list,
    is_whole,
)


class _ConvolutionBlock(ShapeNormalizationBlock):
    """Layers for images of floats, or of bytes, which are converted to floats."""

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes) -> None:
        super().__init__(in_keys, out_keys, in_shapes, in_num_dims=4, out_num_dims=4)
        self.require_single(3)
        self.n_channels = self.in_shapes[0][-3]

    def _use(self, layers: Sequence[nn.Module]) -> None:
        """Set the layers of the block; refuse layers that reduce its images to nothing."""
        self.net = nn.Sequential(*layers)
        try:
            self.out_shapes()
        except RuntimeError as error:  # torch's message says which layer fails
            self.require(False, f"images and options that go together; {str(error).splitlines()[0]}")

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return features [B, C', H', W'] of images [B, C, H, W]."""
        # With channels last in memory, convolutions and their gradients take half to nine tenths of
        # the time.
        images = block_input[self.in_keys[0]]
        layout = torch.channels_last
        if not images.is_floating_point():
            white = 255 if images.dtype == torch.uint8 else 1  # other integers are flags and counts
            images = images.to(next(self.net.parameters()).dtype, memory_format=layout).div_(white)
        images = images.contiguous(memory_format=layout)
        return {self.out_keys[0]: self.net(images)}


class VGGConvolutionBlock(_ConvolutionBlock):
    """Convolutions and poolings: images [..., C, H, W] to [..., hidden_channels[-1], H', W'].

    Each entry makes two 3 x 3 convolutions that keep height and width, each followed by the
    activation, and a 2 x 2 max-pooling: H' = H // 2 ** len(hidden_channels). Simonyan and Zisserman
    2015, arXiv:1409.1556. Byte images (`torch.uint8`) are converted to floats from 0 to 1.

    Args:
        in_keys: Name of the images.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each pair of convolutions.
        non_lin: Activation, a class or its path.

    Raises:
        ValueError: The images are too small for the layers.

    Example:
        >>> VGGConvolutionBlock("screen", "latent", [3, 64, 64], hidden_channels=[8, 16, 32]).out_shapes()
        [(32, 8, 8)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_channels: Layers,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_lists(hidden_channels=hidden_channels)
        activation = self.module_class(non_lin=non_lin)
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise([self.n_channels, *hidden_channels]):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), activation()]
            layers += [nn.Conv2d(n_out, n_out, 3, padding=1), activation(), nn.MaxPool2d(2)]
        self._use(layers)


class StridedConvolutionBlock(_ConvolutionBlock):
    """Convolutions with activations: images [..., C, H, W] to [..., hidden_channels[-1], H', W'].

    A layer with kernel k, stride s and padding p maps size n to floor((n + 2 p - k) / s) + 1. Byte
    images (`torch.uint8`) are converted to floats from 0 to 1.

    Args:
        in_keys: Name of the images.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each convolution.
        hidden_kernels: Size of each kernel; a number, or a pair for height and width.
        hidden_strides: Stride of each convolution, likewise; 1 by default.
        hidden_padding: Zeros added at both ends of a dimension, likewise; 0 by default.
        non_lin: Activation, a class or its path.

    Raises:
        ValueError: There is not one kernel, stride and padding for each convolution, or the images
            are too small for the layers.

    Example:
        >>> block = StridedConvolutionBlock(
        ...     "screen", "latent", [4, 84, 84], [32, 64, 64], hidden_kernels=[8, 4, 3], hidden_strides=[4, 2, 1]
        ... )
        >>> block.out_shapes()
        [(64, 7, 7)]
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
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_lists(hidden_channels=hidden_channels)
        n = len(hidden_channels)
        strides = [1] * n if hidden_strides is None else hidden_strides
        padding = [0] * n if hidden_padding is None else hidden_padding
        self._require_sizes(hidden_kernels=hidden_kernels, hidden_strides=strides)
        self._require_sizes(0, hidden_padding=padding)
        options = (hidden_kernels, strides, padding)
        good = {n} == {len(values) for values in options}
        each = f"hidden_channels={[*hidden_channels]}"
        self.require(good, f"one kernel, stride and padding for each of {each}")
        activation = self.module_class(non_lin=non_lin)
        layers: list[nn.Module] = []
        channels = pairwise([self.n_channels, *hidden_channels])
        for (n_in, n_out), *values in zip(channels, *options, strict=True):
            layers += [nn.Conv2d(n_in, n_out, *values), activation()]  # type: ignore[arg-type]
        self._use(layers)

    def _require_sizes(self, least: int = 1, **options: Sizes) -> None:
        """Refuse options that are not lists of numbers and pairs of numbers."""
        each = f"a whole number of at least {least} or a pair of them"
        for name, values in options.items():
            sizes: list[Any] = [*values] if is_list(values) else [None]
            pairs = [size if is_list(size) else (size, size) for size in sizes]
            for pair in pairs:
                good = len(pair) == 2 and all(is_whole(size, least) for size in pair)
                self.require(good, f"{name} to be a list, each entry {each}; not {values!r}")

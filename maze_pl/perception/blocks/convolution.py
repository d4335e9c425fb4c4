"""Convolutions, and the door at which images of bytes become numbers to compute with.

Images stay what the environment gives, `torch.uint8` where it gives bytes, all the way from it: in observation spaces,
memory, rollouts and minibatches, at a quarter of the size of float32. Only the blocks of this module turn bytes into
floats from 0 to 1 of the weights' type, one minibatch at a time. Floats are left as they are, and so are the values of
other integers and flags.
"""

from abc import ABC
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.dense import Layers
from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.shape_normalization import ShapeNormalizationBlock
from maze_pl.perception.module_class import ModuleClass, module_class

Sizes = Sequence[int | Sequence[int]]
"""For each layer one number, or one for each dimension."""

_CONVOLUTIONS: dict[int, Callable[..., nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class _ConvolutionBlock(ShapeNormalizationBlock, ABC):
    """Layers for images of floats, or of bytes, which become floats here."""

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, num_dims: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes, in_num_dims=num_dims, out_num_dims=num_dims)
        self.require_single(num_dims - 1)
        self.n_channels = self.in_shapes[0][1 - num_dims]

    def _use(self, layers: Sequence[nn.Module]) -> None:
        """Make these the layers of the block, if they leave something of its images."""
        self.net = nn.Sequential(*layers)
        try:
            self.out_shapes()
        except RuntimeError as error:  # torch knows best which layer has too little to work with
            self.require(False, f"images and options that go together; {str(error).splitlines()[0]}")

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """[B, C', ...] from images [B, C, ...]."""
        images = block_input[self.in_keys[0]]
        # With channels last in memory, convolutions and their gradients take half to nine tenths of the time.
        layout = torch.channels_last if images.dim() == 4 else torch.contiguous_format
        if not images.is_floating_point():
            white = 255 if images.dtype == torch.uint8 else 1  # other integers are flags and numbers of things
            images = images.to(next(self.net.parameters()).dtype, memory_format=layout).div_(white)
        images = images.contiguous(memory_format=layout)
        return {self.out_keys[0]: self.net(images)}


class VGGConvolutionBlock(_ConvolutionBlock):
    """Images [..., C, H, W] to [..., hidden_channels[-1], H', W'], halved once for each entry of `hidden_channels`.

    Each entry stands for two 3 x 3 convolutions that keep height and width, with the activation after each, and 2 x 2
    max-pooling: H' = H // 2 ** len(hidden_channels). Simonyan and Zisserman 2015, arXiv:1409.1556. Images of bytes
    (`torch.uint8`) become floats from 0 to 1 here.

    Args:
        in_keys: Name of the images.
        out_keys: Name of what comes out.
        in_shapes: Their shape (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each pair of convolutions.
        non_lin: Activation, a class or its path.

    Raises:
        ValueError: The images are so small that nothing is left of them.

    Example:
        >>> VGGConvolutionBlock("screen", "latent", [3, 64, 64], hidden_channels=[8, 16, 32]).out_shapes()
        [(32, 8, 8)]
    """

    def __init__(
        self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, hidden_channels: Layers, non_lin: ModuleClass = nn.ReLU
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes, num_dims=4)
        self.require(len(hidden_channels) > 0, "at least one entry of hidden_channels")
        activation, layers = module_class(non_lin), list[nn.Module]()
        for n_in, n_out in pairwise([self.n_channels, *hidden_channels]):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), activation()]
            layers += [nn.Conv2d(n_out, n_out, 3, padding=1), activation(), nn.MaxPool2d(2)]
        self._use(layers)


class StridedConvolutionBlock(_ConvolutionBlock):
    """Convolutions over one, two or three dimensions, each followed by an activation.

    [..., C, H, W] to [..., hidden_channels[-1], H', W'] for two dimensions, without H for one, with a depth before H
    for three. A layer with kernel k, stride s, dilation d and padding p leaves floor((n + 2 p - d (k - 1) - 1) / s) + 1
    of n. Images of bytes (`torch.uint8`) become floats from 0 to 1 here.

    Args:
        in_keys: Name of the images.
        out_keys: Name of what comes out.
        in_shapes: Their shape (C, H, W) for two dimensions, or (..., C, H, W).
        hidden_channels: Channels of each convolution.
        hidden_kernels: Size of each kernel; a number, or one for each dimension.
        convolution_dimension: 1, 2 or 3.
        hidden_strides: Stride of each convolution, likewise; 1 if not given.
        hidden_dilations: Distance of the points of each kernel, likewise; 1 if not given.
        hidden_padding: What is added at both ends of a dimension, likewise; 0 if not given.
        padding_mode: "zeros" (if not given), "reflect", "replicate" or "circular".
        non_lin: Activation, a class or its path.

    Raises:
        ValueError: Not one kernel, stride, ... for each convolution, or nothing is left of the images.

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
        convolution_dimension: int = 2,
        hidden_strides: Sizes | None = None,
        hidden_dilations: Sizes | None = None,
        hidden_padding: Sizes | None = None,
        padding_mode: str | None = None,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes, num_dims=convolution_dimension + 2)
        self.require(convolution_dimension in _CONVOLUTIONS, f"{convolution_dimension=} to be 1, 2 or 3")
        ones, zeros = ([value] * len(hidden_channels) for value in (1, 0))
        options = (hidden_kernels, hidden_strides or ones, hidden_padding or zeros, hidden_dilations or ones)
        good = {len(hidden_channels)} == {len(values) for values in options} != {0}
        self.require(good, f"one kernel, stride, padding and dilation for each of hidden_channels={[*hidden_channels]}")
        convolution, activation = _CONVOLUTIONS[convolution_dimension], module_class(non_lin)
        layers = list[nn.Module]()
        for (n_in, n_out), *values in zip(pairwise([self.n_channels, *hidden_channels]), *options, strict=True):
            layers += [convolution(n_in, n_out, *values, padding_mode=padding_mode or "zeros"), activation()]
        self._use(layers)

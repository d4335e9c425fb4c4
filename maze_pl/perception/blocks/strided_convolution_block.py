"""Block of strided convolutions."""

from itertools import pairwise
from typing import Any

from torch import nn

from maze_pl.perception.blocks.convolution import ConvolutionBlock
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass, Sizes
from maze_pl.perception.blocks.perception_block import Keys, Shapes, is_list, is_whole


class StridedConvolutionBlock(ConvolutionBlock):
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

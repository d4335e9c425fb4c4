"""Block of strided convolutions."""

from itertools import pairwise
from typing import Any, Literal

from torch import nn

from maze_pl.perception.blocks.convolution import ConvolutionBlock, check_convolution_dimension
from maze_pl.perception.blocks.layer_options import Activations, Layers, Normalization, Sizes
from maze_pl.perception.blocks.perception_block import Keys, Shapes, is_list, is_whole

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
"""Values outside an image: zeros, the mirrored image, its nearest pixel, or its opposite side."""


class StridedConvolutionBlock(ConvolutionBlock):
    """Convolutions with activations: images [..., C, H, W] to [..., hidden_channels[-1], H', W'].

    A layer with kernel k, dilation d, stride s and padding p maps size n to floor((n + 2 p - d (k -
    1) - 1) / s) + 1. A layer is a convolution, normalisation, activation and dropout, in this
    order. Byte images (`torch.uint8`) are converted to floats from 0 to 1.

    Args:
        in_keys: Name of the images.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W); (C, T) with
            `convolution_dimension` 1, and (C, D, H, W) with 3.
        hidden_channels: Channels of each convolution.
        hidden_kernels: Size of each kernel; a number, or a list with one number for each dimension,
            such as height and width.
        hidden_strides: Stride of each convolution, likewise; 1 by default.
        hidden_padding: Elements added at both ends of a dimension, likewise; 0 by default.
        non_lin: Activation, a class or its path; or a list with one for each convolution.
        convolution_dimension: Number of dimensions that the kernels move along: 1 for sequences, 2
            for images, 3 for volumes and videos.
        hidden_dilations: Distance between the entries of each kernel, as `hidden_strides`; 1 by
            default.
        padding_mode: Values of the padding: "zeros"; "reflect", the mirrored image; "replicate",
            its nearest element; or "circular", its opposite side.
        normalization: "batch" or "layer" normalises between a convolution and its activation; None
            does not.
        dropout: Probability of setting an output of a convolution to 0 in training mode.

    Raises:
        ValueError: There is not one kernel, stride, padding and dilation for each convolution, or
            the images are too small for the layers.

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
        non_lin: Activations = nn.ReLU,
        convolution_dimension: Literal[1, 2, 3] = 2,
        hidden_dilations: Sizes | None = None,
        padding_mode: PaddingMode = "zeros",
        normalization: Normalization | None = None,
        dropout: float = 0.0,
    ) -> None:
        check_convolution_dimension(type(self).__name__, convolution_dimension)
        super().__init__(in_keys, out_keys, in_shapes, normalization, dropout, convolution_dimension)
        self.require_lists(hidden_channels=hidden_channels)
        modes = ("zeros", "reflect", "replicate", "circular")
        is_known = isinstance(padding_mode, str) and padding_mode in modes
        self.require(is_known, f"padding_mode {', '.join(map(repr, modes))}; not {padding_mode!r}")
        n = len(hidden_channels)
        strides = [1] * n if hidden_strides is None else hidden_strides
        padding = [0] * n if hidden_padding is None else hidden_padding
        dilations = [1] * n if hidden_dilations is None else hidden_dilations
        options = {
            "kernel_size": self._sizes(n, "hidden_kernels", hidden_kernels),
            "stride": self._sizes(n, "hidden_strides", strides),
            "padding": self._sizes(n, "hidden_padding", padding, least=0),
            "dilation": self._sizes(n, "hidden_dilations", dilations),
        }
        activations = self.module_classes(n, non_lin=non_lin)
        layers: list[nn.Module] = []
        for index, (n_in, n_out) in enumerate(pairwise([self.n_channels, *hidden_channels])):
            own = {option: values[index] for option, values in options.items()}
            layers += self._layer(n_in, n_out, activations[index], padding_mode=padding_mode, **own)
        self._use(layers)

    def _sizes(self, n_layers: int, option: str, values: Sizes, least: int = 1) -> list[tuple[int, ...]]:
        """Return an option as one tuple for each layer, with one number for each dimension.

        Args:
            n_layers: Number of layers.
            option: Name of the option.
            values: For each layer a number, or a list with one for each dimension.
            least: Smallest allowed number.

        Raises:
            ValueError: The option is not a list of `n_layers` such entries.
        """
        n_dims = self.n_image_dims
        each = f"a whole number of at least {least} or a list of {n_dims}, one for each dimension"
        entries: list[Any] = [*values] if is_list(values) else [None]
        sizes = []
        for entry in entries:
            size = tuple(entry) if is_list(entry) else (entry,) * n_dims
            good = len(size) == n_dims and all(is_whole(number, least) for number in size)
            self.require(good, f"{option} to be a list, each entry {each}; not {values!r}")
            sizes.append(size)
        self.require(len(sizes) == n_layers, f"{option} with one entry for each of {n_layers} layers; not {values!r}")
        return sizes

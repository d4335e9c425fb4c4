"""Block of convolutions and poolings."""

from itertools import pairwise

from torch import nn

from maze_pl.perception.blocks.convolution import ConvolutionBlock
from maze_pl.perception.blocks.layer_options import Activations, Layers, Normalization
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class VGGConvolutionBlock(ConvolutionBlock):
    """Convolutions and poolings: images [..., C, H, W] to [..., hidden_channels[-1], H', W'].

    Each entry makes two 3 x 3 convolutions that keep height and width, each followed by
    normalisation, activation and dropout, and a 2 x 2 max-pooling: H' = H // 2 **
    len(hidden_channels). Simonyan and Zisserman 2015, arXiv:1409.1556. Byte images (`torch.uint8`)
    are converted to floats from 0 to 1.

    Args:
        in_keys: Name of the images.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each pair of convolutions.
        non_lin: Activation, a class or its path; or a list with one for each pair of convolutions.
        normalization: "batch" or "layer" normalises between a convolution and its activation; None
            does not.
        dropout: Probability of setting an output of a convolution to 0 in training mode.

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
        non_lin: Activations = nn.ReLU,
        normalization: Normalization | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes, normalization, dropout)
        self.require_lists(hidden_channels=hidden_channels)
        activations = self.module_classes(len(hidden_channels), non_lin=non_lin)
        layers: list[nn.Module] = []
        channels = pairwise([self.n_channels, *hidden_channels])
        for (n_in, n_out), activation in zip(channels, activations, strict=True):
            layers += self._layer(n_in, n_out, activation, kernel_size=3, padding=1)
            layers += self._layer(n_out, n_out, activation, kernel_size=3, padding=1)
            layers.append(nn.MaxPool2d(2))
        self._use(layers)

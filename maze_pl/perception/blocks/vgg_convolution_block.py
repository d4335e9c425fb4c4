"""Block of convolutions and poolings."""

from itertools import pairwise

from torch import nn

from maze_pl.perception.blocks.convolution import ConvolutionBlock
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class VGGConvolutionBlock(ConvolutionBlock):
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

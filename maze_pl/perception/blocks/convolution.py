"""Base of convolution blocks for images.

Images keep the type that the environment returns. Byte images stay `torch.uint8` in observation
spaces, memory, rollouts and minibatches, a quarter of the size of float32. Only the convolution
blocks convert bytes to floats from 0 to 1 of the weights' type, one minibatch at a time. Floats,
and the values of other integers and flags, are not rescaled.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.layer_options import Normalization
from maze_pl.perception.blocks.normalization import normalization_layers
from maze_pl.perception.blocks.perception_block import Keys, Shapes, is_whole
from maze_pl.perception.blocks.shape_normalization_block import ShapeNormalizationBlock

_MOST_COLOURS = 4
"""Channels of an image with transparency; more channels than this are taken for its height."""
_LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


def check_convolution_dimension(block: str, convolution_dimension: int) -> None:
    """Refuse an option `convolution_dimension` of a block that is not 1, 2 or 3.

    Args:
        block: Name of the block.
        convolution_dimension: Value of the option.

    Raises:
        ValueError: The value is not 1, 2 or 3.
    """
    if not is_whole(convolution_dimension, 1) or convolution_dimension > 3:
        raise ValueError(f"{block}: expected convolution_dimension to be 1, 2 or 3, not {convolution_dimension!r}")


class ConvolutionBlock(ShapeNormalizationBlock):
    """Layers for images of floats, or of bytes, which are converted to floats.

    Args:
        in_keys: Name of the images.
        out_keys: Name of the output.
        in_shapes: Shape of the images, channels first.
        normalization: "batch", "layer" or None.
        dropout: Probability of setting an output of a layer to 0 in training mode.
        n_image_dims: Number of dimensions after the channels.
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        normalization: Normalization | None = None,
        dropout: float = 0.0,
        n_image_dims: int = 2,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes, in_num_dims=n_image_dims + 2, out_num_dims=n_image_dims + 2)
        self.require_single(n_image_dims + 1)
        self.require_normalization(normalization)
        self.require_probability(dropout=dropout)
        self.n_channels = self.in_shapes[0][-n_image_dims - 1]
        self.n_image_dims = n_image_dims
        self.normalization: Normalization | None = normalization
        self.dropout = dropout

    def _layer(self, n_in: int, n_out: int, activation: type[nn.Module], **options: Any) -> list[nn.Module]:
        """Make a convolution with its normalisation, activation and dropout.

        Args:
            n_in: Channels of the input.
            n_out: Channels of the output.
            activation: Class of the activation.
            options: Further arguments of the convolution.
        """
        kinds: tuple[type[nn.Module], ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
        bias = self.normalization != "batch"  # batch normalisation would subtract the bias again
        layers = [kinds[self.n_image_dims - 1](n_in, n_out, bias=bias, **options)]
        layers += normalization_layers(self.normalization, n_out, self.n_image_dims)
        layers.append(activation())
        if self.dropout > 0.0:
            layers.append(nn.Dropout(self.dropout))
        return layers

    def _use(self, layers: Sequence[nn.Module]) -> None:
        """Set the layers of the block; refuse layers that reduce its images to nothing."""
        self.net = nn.Sequential(*layers)
        try:
            self.out_shapes()
        except RuntimeError as error:  # torch's message says which layer fails
            expected = f"images and options that go together; {str(error).splitlines()[0]}"
            if self.n_image_dims == 2 and self.in_shapes[0][-1] <= _MOST_COLOURS < self.n_channels:
                remedy = "use an ImageBlock with channels: last, or a TransposePreProcessor"
                expected += f"; images are (channels, height, width): for others {remedy}"
            self.require(False, expected)

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return features [B, C', ...] of images [B, C, ...]."""
        # With channels last in memory, convolutions and their gradients take half to nine tenths of
        # the time.
        images = block_input[self.in_keys[0]]
        layout = _LAYOUTS.get(images.dim(), torch.contiguous_format)
        if not images.is_floating_point():
            white = 255 if images.dtype == torch.uint8 else 1  # other integers are flags and counts
            images = images.to(next(self.net.parameters()).dtype, memory_format=layout).div_(white)
        images = images.contiguous(memory_format=layout)
        return {self.out_keys[0]: self.net(images)}

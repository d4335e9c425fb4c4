"""Base of convolution blocks for images.

Images keep the type that the environment returns. Byte images stay `torch.uint8` in observation
spaces, memory, rollouts and minibatches, a quarter of the size of float32. Only the convolution
blocks convert bytes to floats from 0 to 1 of the weights' type, one minibatch at a time. Floats,
and the values of other integers and flags, are not rescaled.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.shape_normalization_block import ShapeNormalizationBlock


class ConvolutionBlock(ShapeNormalizationBlock):
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

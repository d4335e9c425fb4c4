"""Block that averages each channel of an image."""

from functools import partial

import torch

from maze_pl.perception.blocks.one_output_block import OneOutputBlock
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class GlobalAveragePoolingBlock(OneOutputBlock):
    """Averages each channel of an image: [..., C, H, W] to [..., C].

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input (C, H, W), or (..., C, H, W).

    Example:
        >>> GlobalAveragePoolingBlock("features", "vector", [16, 5, 5]).out_shapes()
        [(16,)]
    """

    n_computed = 1

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(3)
        self.func = partial(torch.mean, dim=(-2, -1))

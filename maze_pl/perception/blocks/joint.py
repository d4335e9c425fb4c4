"""Blocks that are often used one after the other, as one."""

import functools
import inspect
from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from maze_pl.perception.blocks.convolution import StridedConvolutionBlock, VGGConvolutionBlock
from maze_pl.perception.blocks.dense import DenseBlock
from maze_pl.perception.blocks.general import FlattenBlock, GlobalAveragePoolingBlock, SlicingBlock
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes
from maze_pl.perception.blocks.recurrent import LSTMBlock


class _JointBlock(PerceptionBlock, ABC):
    """Blocks of which each reads what the one before it writes, and takes those of all options that it knows."""

    kinds: ClassVar[tuple[type[PerceptionBlock], ...]]
    fixed: ClassVar[dict[str, int]] = {}
    """Options that are no choice of the user's."""

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, **options: Any) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        known = {kind: _options(kind) for kind in self.kinds}
        choices = {name: None for names in known.values() for name in names if name not in self.fixed}
        self.require(options.keys() <= choices.keys(), f"options of {[*choices]}, not {[*options.keys() - choices]}")
        options |= self.fixed
        keys, shapes, blocks = self.in_keys, self.in_shapes, list[PerceptionBlock]()
        for kind, names in known.items():
            written = self.out_keys if kind is self.kinds[-1] else [f"{self.out_keys[0]}_{kind.__name__}"]
            blocks.append(kind(keys, written, shapes, **{name: options[name] for name in names if name in options}))
            keys, shapes = written, blocks[-1].out_shapes()
        self.net = nn.Sequential(*blocks)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensor of `out_keys` from a dict that has that of `in_keys`, [..., *shape] each."""
        output: dict[str, Tensor] = self.net(block_input)
        return output


@functools.cache
def _options(kind: type[PerceptionBlock]) -> list[str]:
    return [*inspect.signature(kind).parameters][3:]


class FlattenDenseBlock(_JointBlock):
    """`FlattenBlock`, then `DenseBlock`: [..., *shape] to [..., hidden_units[-1]].

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape.
        num_flatten_dims: Number of the last dimensions that become one.
        hidden_units: Width of each dense layer.
        non_lin: Activation, a class or its path; ReLU if not given.

    Example:
        >>> FlattenDenseBlock("board", "latent", [8, 8], num_flatten_dims=2, hidden_units=[32]).out_shapes()
        [(32,)]
    """

    kinds = (FlattenBlock, DenseBlock)


class VGGConvolutionDenseBlock(_JointBlock):
    """`VGGConvolutionBlock`, `FlattenBlock`, `DenseBlock`: images [..., C, H, W] to [..., hidden_units[-1]].

    Args:
        in_keys: Name of the images, of floats or of bytes.
        out_keys: Name of what comes out.
        in_shapes: Their shape (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each pair of convolutions.
        hidden_units: Width of each dense layer.
        non_lin: Activation, a class or its path; ReLU if not given.

    Example:
        >>> block = VGGConvolutionDenseBlock(
        ...     "screen", "latent", [3, 64, 64], hidden_channels=[8, 16, 32], hidden_units=[32]
        ... )
        >>> block.out_shapes()
        [(32,)]
    """

    kinds = (VGGConvolutionBlock, FlattenBlock, DenseBlock)
    fixed: ClassVar = {"num_flatten_dims": 3}


class VGGConvolutionGAPBlock(_JointBlock):
    """`VGGConvolutionBlock`, then `GlobalAveragePoolingBlock`: images [..., C, H, W] to [..., hidden_channels[-1]].

    Args:
        in_keys: Name of the images, of floats or of bytes.
        out_keys: Name of what comes out.
        in_shapes: Their shape (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each pair of convolutions.
        non_lin: Activation, a class or its path; ReLU if not given.

    Example:
        >>> VGGConvolutionGAPBlock("screen", "latent", [3, 64, 64], hidden_channels=[8, 16, 32]).out_shapes()
        [(32,)]
    """

    kinds = (VGGConvolutionBlock, GlobalAveragePoolingBlock)


class StridedConvolutionDenseBlock(_JointBlock):
    """`StridedConvolutionBlock`, `FlattenBlock`, `DenseBlock`: images [..., C, H, W] to [..., hidden_units[-1]].

    Args:
        in_keys: Name of the images, of floats or of bytes.
        out_keys: Name of what comes out.
        in_shapes: Their shape (C, H, W) for two dimensions, or (..., C, H, W).
        convolution_dimension: 1, 2 or 3.
        options: `hidden_units`, the width of each dense layer, and all others of `StridedConvolutionBlock`.

    Example:
        >>> block = StridedConvolutionDenseBlock(
        ...     "screen", "latent", [4, 84, 84], hidden_channels=[32, 64, 64], hidden_kernels=[8, 4, 3],
        ...     hidden_strides=[4, 2, 1], hidden_units=[512],
        ... )
        >>> block.out_shapes()
        [(512,)]
    """

    kinds = (StridedConvolutionBlock, FlattenBlock, DenseBlock)

    def __init__(
        self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, *, convolution_dimension: int = 2, **options: Any
    ) -> None:
        sizes = {"convolution_dimension": convolution_dimension, "num_flatten_dims": convolution_dimension + 1}
        super().__init__(in_keys, out_keys, in_shapes, **sizes, **options)


class LSTMLastStepBlock(_JointBlock):
    """`LSTMBlock`, of which `SlicingBlock` picks the last time: [..., T, n] to [..., hidden_size].

    Args:
        in_keys: Name of the sequences.
        out_keys: Name of what comes out.
        in_shapes: Their shape (T, n), or (..., T, n).
        hidden_size: Width of the state, of each direction, and of what comes out.
        num_layers: Number of LSTM layers; 1 if not given.
        bidirectional: Whether there are further layers that read from the last time to the first; not if not given.
        non_lin: Activation, a class or its path; ReLU if not given.

    Example:
        >>> LSTMLastStepBlock("stack", "latent", [4, 16], hidden_size=32).out_shapes()
        [(32,)]
    """

    kinds = (LSTMBlock, SlicingBlock)
    fixed: ClassVar = {"slice_dim": -2, "slice_idx": -1}

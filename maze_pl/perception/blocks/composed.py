"""Blocks composed of other blocks: graphs connected by keys, and common chains."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from maze_pl.agents.network_io import state_shapes
from maze_pl.perception.blocks.convolution import StridedConvolutionBlock, VGGConvolutionBlock
from maze_pl.perception.blocks.dense import DenseBlock
from maze_pl.perception.blocks.flatten_block import FlattenBlock
from maze_pl.perception.blocks.global_average_pooling_block import GlobalAveragePoolingBlock
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass, Sizes
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes
from maze_pl.perception.blocks.recurrent import LSTMBlock
from maze_pl.perception.blocks.slicing_block import SlicingBlock


class InferenceBlock(PerceptionBlock):
    """Runs a graph of blocks, each as soon as all its inputs are available.

    The state of recurrent blocks (`state_shapes`) is read from the input, if it is there, and
    returned with the output.

    Args:
        in_keys: Names of the inputs, such as observations.
        out_keys: Names of the outputs, such as action heads.
        in_shapes: The shape of each of `in_keys`.
        perception_blocks: Name -> block, in any order.

    Raises:
        TypeError: An entry is not a block.
        ValueError: A block reads a key that is never written, several blocks write the same key,
            blocks depend on each other in a cycle, or a block expects another shape than is
            written.

    Example:
        >>> import torch
        >>> from maze_pl.perception import DenseBlock, LinearOutputBlock
        >>> latent = DenseBlock("observation", "latent", [4], hidden_units=[8])
        >>> action = LinearOutputBlock("latent", "action", latent.out_shapes(), output_units=2)
        >>> net = InferenceBlock("observation", "action", [4], {"latent": latent, "action": action})
        >>> net({"observation": torch.zeros(5, 4)})["action"].shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        perception_blocks: Mapping[str, PerceptionBlock],
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        are_named = isinstance(perception_blocks, Mapping)
        self.require(
            are_named,
            f"perception_blocks to be a dict of names and blocks, not {perception_blocks!r}",
        )
        ordered = _in_order(self, perception_blocks)
        self.block_names = list(ordered)
        self.blocks = nn.ModuleList(ordered.values())  # a ModuleDict would refuse some names
        self.state_shapes = state_shapes(self.blocks)
        self._given = [*self.out_keys, *self.state_shapes]

    @property
    def perception_blocks(self) -> dict[str, PerceptionBlock]:
        """Name -> block, in execution order."""
        return dict(zip(self.block_names, self.blocks, strict=True))  # type: ignore[arg-type]

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Map a dict with the tensors of `in_keys` to those of `out_keys`, [..., *shape] each."""
        tensors = {**block_input}
        for block in self._modules["blocks"]._modules.values():  # type: ignore[union-attr]  # slow through attributes
            tensors |= block(tensors)  # type: ignore[misc]
        return {key: tensors[key] for key in self._given}


def _in_order(graph: InferenceBlock, blocks: Mapping[str, PerceptionBlock]) -> dict[str, PerceptionBlock]:
    """Return the blocks in topological order; check keys and shapes."""
    written: dict[str, list[str]] = {}
    for name, block in blocks.items():
        if not isinstance(block, PerceptionBlock):
            found = f"block {name!r} is a {type(block).__name__}"
            raise TypeError(f"{found}, not a PerceptionBlock; see TorchModelBlock")
        written[name] = [*block.out_keys, *getattr(block, "state_shapes", ())]
    writers = Counter(graph.in_keys)
    for keys in written.values():
        writers.update(keys)
    for key, count in writers.items():
        if count > 1:
            names = [name for name, keys in written.items() if key in keys]
            found = f"the key {key!r} is written by the blocks {names}"
            if key in graph.in_keys:
                found += " and it is an input of the graph"
            raise ValueError(f"{found}; each key is written once")
    for name, block in blocks.items():
        if missing := [key for key in block.in_keys if key not in writers]:
            found = f"block {name!r} ({type(block).__name__}) reads {missing}"
            known = f"there are the keys {[*writers]}"
            raise ValueError(f"{found}, which is neither an input nor written by a block; {known}")
    shapes = dict(zip(graph.in_keys, graph.in_shapes, strict=True))
    waiting = dict(blocks)
    ordered: dict[str, PerceptionBlock] = {}
    while waiting:
        ready = [name for name, block in waiting.items() if shapes.keys() >= set(block.in_keys)]
        if not ready:
            needs = [f"{name!r} reads {block.in_keys} and writes {block.out_keys}" for name, block in waiting.items()]
            raise ValueError(f"blocks wait for each other in a cycle: {'; '.join(needs)}")
        for name in ready:
            block = ordered[name] = waiting.pop(name)
            for key, shape in zip(block.in_keys, block.in_shapes, strict=True):
                if shape != shapes[key]:
                    expected = f"block {name!r} ({type(block).__name__}) expects {key!r}"
                    raise ValueError(f"{expected} of shape {shape}, but it has shape {shapes[key]}")
            shapes.update(zip(block.out_keys, block.out_shapes(), strict=True))
    if missing := [key for key in graph.out_keys if key not in shapes]:
        known = f"there are the keys {list(shapes)}"
        raise ValueError(f"the outputs {missing} are written by no block; {known}")
    graph._out_shapes = [shapes[key] for key in graph.out_keys]
    return ordered


class _JointBlock(PerceptionBlock):
    """A chain of blocks, each of which reads the output of the previous one.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        parts: Factories of the blocks, called with keys and shapes.
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        parts: Sequence[partial[Any]],
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        keys = self.in_keys
        shapes = self.in_shapes
        blocks: list[PerceptionBlock] = []
        for part in parts:
            out_keys = [f"{self.out_keys[0]}_{part.func.__name__}"]
            if part is parts[-1]:
                out_keys = self.out_keys
            block = part(keys, out_keys, shapes)
            blocks.append(block)
            keys = out_keys
            shapes = block.out_shapes()
        self.net = nn.Sequential(*blocks)

    def forward(self, block_input: Mapping[str, Tensor]) -> Any:
        """Map a dict with the tensor of `in_keys` to the one of `out_keys`, [..., *shape] each."""
        return self.net(block_input)


class FlattenDenseBlock(_JointBlock):
    """`FlattenBlock`, then `DenseBlock`: [..., *shape] to [..., hidden_units[-1]].

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        num_flatten_dims: Number of last dimensions to flatten.
        hidden_units: Width of each dense layer.
        non_lin: Activation, a class or its path.

    Example:
        >>> FlattenDenseBlock("board", "latent", [8, 8], num_flatten_dims=2, hidden_units=[32]).out_shapes()
        [(32,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        num_flatten_dims: int,
        hidden_units: Layers,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        flatten = partial(FlattenBlock, num_flatten_dims=num_flatten_dims)
        dense = partial(DenseBlock, hidden_units=hidden_units, non_lin=non_lin)
        super().__init__(in_keys, out_keys, in_shapes, [flatten, dense])


class VGGConvolutionDenseBlock(_JointBlock):
    """`VGGConvolutionBlock`, `FlattenBlock`, `DenseBlock`: images to vectors.

    The shapes are [..., C, H, W] and [..., hidden_units[-1]].

    Args:
        in_keys: Name of the images, of floats or of bytes.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each pair of convolutions.
        hidden_units: Width of each dense layer.
        non_lin: Activation, a class or its path.

    Example:
        >>> block = VGGConvolutionDenseBlock(
        ...     "screen", "latent", [3, 64, 64], hidden_channels=[8, 16, 32], hidden_units=[32]
        ... )
        >>> block.out_shapes()
        [(32,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_channels: Layers,
        hidden_units: Layers,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        convolution = partial(VGGConvolutionBlock, hidden_channels=hidden_channels, non_lin=non_lin)
        flatten = partial(FlattenBlock, num_flatten_dims=3)
        dense = partial(DenseBlock, hidden_units=hidden_units, non_lin=non_lin)
        super().__init__(in_keys, out_keys, in_shapes, [convolution, flatten, dense])


class VGGConvolutionGAPBlock(_JointBlock):
    """`VGGConvolutionBlock`, then `GlobalAveragePoolingBlock`: images to vectors.

    The shapes are [..., C, H, W] and [..., hidden_channels[-1]].

    Args:
        in_keys: Name of the images, of floats or of bytes.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each pair of convolutions.
        non_lin: Activation, a class or its path.

    Example:
        >>> VGGConvolutionGAPBlock("screen", "latent", [3, 64, 64], hidden_channels=[8, 16, 32]).out_shapes()
        [(32,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_channels: Layers,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        convolution = partial(VGGConvolutionBlock, hidden_channels=hidden_channels, non_lin=non_lin)
        super().__init__(in_keys, out_keys, in_shapes, [convolution, partial(GlobalAveragePoolingBlock)])


class StridedConvolutionDenseBlock(_JointBlock):
    """`StridedConvolutionBlock`, `FlattenBlock`, `DenseBlock`: images to vectors.

    The shapes are [..., C, H, W] and [..., hidden_units[-1]].

    Args:
        in_keys: Name of the images, of floats or of bytes.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each convolution.
        hidden_kernels: Size of each kernel; a number, or a pair for height and width.
        hidden_strides: Stride of each convolution, likewise; 1 by default.
        hidden_padding: Zeros added at both ends of a dimension, likewise; 0 by default.
        hidden_units: Width of each dense layer.
        non_lin: Activation, a class or its path.

    Example:
        >>> block = StridedConvolutionDenseBlock(
        ...     "screen", "latent", [4, 84, 84], hidden_channels=[32, 64, 64], hidden_kernels=[8, 4, 3],
        ...     hidden_strides=[4, 2, 1], hidden_units=[512],
        ... )
        >>> block.out_shapes()
        [(512,)]
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
        *,
        hidden_units: Layers,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        convolution = partial(
            StridedConvolutionBlock,
            hidden_channels=hidden_channels,
            hidden_kernels=hidden_kernels,
            hidden_strides=hidden_strides,
            hidden_padding=hidden_padding,
            non_lin=non_lin,
        )
        flatten = partial(FlattenBlock, num_flatten_dims=3)
        dense = partial(DenseBlock, hidden_units=hidden_units, non_lin=non_lin)
        super().__init__(in_keys, out_keys, in_shapes, [convolution, flatten, dense])


class LSTMLastStepBlock(_JointBlock):
    """`LSTMBlock`, then `SlicingBlock` for the last time step: [..., T, n] to [..., hidden_size].

    Args:
        in_keys: Name of the sequences.
        out_keys: Name of the output.
        in_shapes: Shape of the sequences (T, n), or (..., T, n).
        hidden_size: Width of the state of each direction, and of the output.
        num_layers: Number of LSTM layers.
        bidirectional: Whether further layers process the sequence in reverse.
        non_lin: Activation, a class or its path.

    Example:
        >>> LSTMLastStepBlock("stack", "latent", [4, 16], hidden_size=32).out_shapes()
        [(32,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        lstm = partial(
            LSTMBlock,
            hidden_size=hidden_size,
            num_layers=num_layers,
            bidirectional=bidirectional,
            non_lin=non_lin,
        )
        last = partial(SlicingBlock, slice_dim=-2, slice_idx=-1)
        super().__init__(in_keys, out_keys, in_shapes, [lstm, last])

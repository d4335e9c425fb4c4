"""Several blocks as one: graphs in which blocks read what others write, and chains that are often used."""

import inspect
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from maze_pl.agents.network_io import state_shapes
from maze_pl.perception.blocks.general import FlattenBlock, GlobalAveragePoolingBlock, SlicingBlock
from maze_pl.perception.blocks.layers import DenseBlock, LSTMBlock, StridedConvolutionBlock, VGGConvolutionBlock
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes


class InferenceBlock(PerceptionBlock):
    """Runs blocks one after the other, each as soon as all that it reads is there.

    What blocks carry from act to act (`state_shapes` of recurrent blocks) is read from the input, where it is there,
    and given with the output.

    Args:
        in_keys: Names of what goes in, such as observations.
        out_keys: Names of what comes out, such as action heads.
        in_shapes: The shape of each of `in_keys`.
        perception_blocks: Name -> block, in any order.

    Raises:
        TypeError: Something is no block.
        ValueError: Blocks read what nobody writes, write the same, wait for each other, or expect other shapes than are
            written.

    Example:
        >>> from maze_pl.perception import DenseBlock, LinearOutputBlock
        >>> latent = DenseBlock("observation", "latent", [4], hidden_units=[8])
        >>> action = LinearOutputBlock("latent", "action", latent.out_shapes(), output_units=2)
        >>> net = InferenceBlock("observation", "action", [4], {"latent": latent, "action": action})
        >>> net({"observation": torch.zeros(5, 4)})["action"].shape
        torch.Size([5, 2])
    """

    def __init__(
        self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, perception_blocks: Mapping[str, PerceptionBlock]
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        ordered = _in_order(self, perception_blocks)
        self.block_names = list(ordered)
        self.blocks = nn.ModuleList(ordered.values())  # names of blocks may be such that a ModuleDict refuses them
        self.state_shapes = state_shapes(self.blocks)
        self._given = [*self.out_keys, *self.state_shapes]

    @property
    def perception_blocks(self) -> dict[str, PerceptionBlock]:
        """Name -> block, in the order in which they run."""
        return dict(zip(self.block_names, self.blocks, strict=True))  # type: ignore[arg-type]

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of `out_keys` from a dict that has those of `in_keys`, [..., *shape] each."""
        tensors = {**block_input}
        for block in self._modules["blocks"]._modules.values():  # type: ignore[union-attr]  # slow through attributes
            tensors |= block(tensors)  # type: ignore[misc]
        return {key: tensors[key] for key in self._given}


def _in_order(graph: InferenceBlock, blocks: Mapping[str, PerceptionBlock]) -> dict[str, PerceptionBlock]:
    """The blocks in an order in which each finds what it reads, with the shapes that it expects."""
    for name, block in blocks.items():
        if not isinstance(block, PerceptionBlock):
            raise TypeError(f"block {name!r} is a {type(block).__name__}, no PerceptionBlock; see TorchModelBlock")
    written = {name: [*block.out_keys, *getattr(block, "state_shapes", ())] for name, block in blocks.items()}
    writers = Counter([*graph.in_keys, *(key for keys in written.values() for key in keys)])
    for key, count in writers.items():
        if count > 1:
            who = [name for name, keys in written.items() if key in keys]
            also = " and it is an input of the graph" if key in graph.in_keys else ""
            raise ValueError(f"the key {key!r} is written by the blocks {who}{also}; each key is written once")
    for name, block in blocks.items():
        if missing := [key for key in block.in_keys if key not in writers]:
            what = f"block {name!r} ({type(block).__name__}) reads {missing}, which is neither an input"
            raise ValueError(f"{what} nor written by a block; there are the keys {[*writers]}")
    shapes = dict(zip(graph.in_keys, graph.in_shapes, strict=True))
    waiting, ordered = dict(blocks), dict[str, PerceptionBlock]()
    while waiting:
        ready = [name for name, block in waiting.items() if all(key in shapes for key in block.in_keys)]
        if not ready:
            needs = [f"{name!r} reads {one.in_keys} and writes {one.out_keys}" for name, one in waiting.items()]
            raise ValueError(f"blocks wait for each other in a cycle: {'; '.join(needs)}")
        for name in ready:
            block = ordered[name] = waiting.pop(name)
            for key, shape in zip(block.in_keys, block.in_shapes, strict=True):
                if shape != shapes[key]:
                    what = f"block {name!r} ({type(block).__name__}) expects {key!r} of shape {shape}"
                    raise ValueError(f"{what}, but it has shape {shapes[key]}")
            shapes.update(zip(block.out_keys, block.out_shapes(), strict=True))
    if missing := [key for key in graph.out_keys if key not in shapes]:
        raise ValueError(f"the outputs {missing} are written by no block; there are the keys {list(shapes)}")
    graph._out_shapes = [shapes[key] for key in graph.out_keys]
    return ordered


class _JointBlock(PerceptionBlock):
    """Blocks of which each reads what the one before it writes, and takes those of all options that it knows."""

    kinds: ClassVar[tuple[type[PerceptionBlock], ...]]
    fixed: ClassVar[dict[str, int]] = {}
    """Options that are no choice of the user's."""

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, **options: Any) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        known = {kind: [*inspect.signature(kind).parameters][3:] for kind in self.kinds}
        choices = {name: None for names in known.values() for name in names if name not in self.fixed}
        self.require(options.keys() <= choices.keys(), f"options of {[*choices]}, not {[*options.keys() - choices]}")
        options |= self.fixed
        keys, shapes, blocks = self.in_keys, self.in_shapes, list[PerceptionBlock]()
        for kind, names in known.items():
            written = self.out_keys if kind is self.kinds[-1] else [f"{self.out_keys[0]}_{kind.__name__}"]
            blocks.append(kind(keys, written, shapes, **{name: options[name] for name in names if name in options}))
            keys, shapes = written, blocks[-1].out_shapes()
        self.net = nn.Sequential(*blocks)

    def forward(self, block_input: Mapping[str, Tensor]) -> Any:
        """The tensor of `out_keys` from a dict that has that of `in_keys`, [..., *shape] each."""
        return self.net(block_input)


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
        in_shapes: Their shape (C, H, W), or (..., C, H, W).
        options: `hidden_units`, the width of each dense layer, and those of `StridedConvolutionBlock`.

    Example:
        >>> block = StridedConvolutionDenseBlock(
        ...     "screen", "latent", [4, 84, 84], hidden_channels=[32, 64, 64], hidden_kernels=[8, 4, 3],
        ...     hidden_strides=[4, 2, 1], hidden_units=[512],
        ... )
        >>> block.out_shapes()
        [(512,)]
    """

    kinds = (StridedConvolutionBlock, FlattenBlock, DenseBlock)
    fixed: ClassVar = {"num_flatten_dims": 3}


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

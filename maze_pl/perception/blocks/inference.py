"""Several blocks as one: a graph in which blocks read what others write."""

from collections import Counter
from collections.abc import Mapping
from typing import cast

from torch import Tensor, nn

from maze_pl.agents.network_io import state_shapes
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
        return {name: cast(PerceptionBlock, block) for name, block in zip(self.block_names, self.blocks, strict=True)}

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
    shapes = dict(zip(graph.in_keys, graph.in_shapes, strict=True))
    waiting, ordered = dict(blocks), dict[str, PerceptionBlock]()
    while waiting:
        ready = [name for name, block in waiting.items() if all(key in shapes for key in block.in_keys)]
        if not ready:
            _explain(waiting, [*writers])
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


def _explain(waiting: Mapping[str, PerceptionBlock], keys: list[str]) -> None:
    """Say why none of the blocks can run."""
    for name, block in waiting.items():
        if missing := [key for key in block.in_keys if key not in keys]:
            what = f"block {name!r} ({type(block).__name__}) reads {missing}"
            raise ValueError(f"{what}, which is neither an input nor written by a block; there are the keys {keys}")
    needs = "; ".join(f"{name!r} reads {block.in_keys} and writes {block.out_keys}" for name, block in waiting.items())
    raise ValueError(f"blocks wait for each other in a cycle: {needs}")

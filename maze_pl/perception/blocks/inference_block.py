"""Graph of blocks, connected by keys."""

from collections import Counter
from collections.abc import Mapping

from torch import Tensor, nn

from maze_pl.agents.network_io import LATENT, state_shapes
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes


class InferenceBlock(PerceptionBlock):
    """Runs a graph of blocks, each as soon as all its inputs are available.

    The state of recurrent blocks (`state_shapes`) is read from the input, if it is there, and
    returned with the output.

    Attributes:
        auxiliary_shapes: Shapes of the outputs that are not logits or values, but for losses.
        read_keys: The inputs that a block reads, or that are outputs; others may be left out.

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
        _check_keys(self, perception_blocks)
        ordered, shapes = _in_order(self, perception_blocks)
        if missing := [key for key in self.out_keys if key not in shapes]:
            known = f"there are the keys {list(shapes)}"
            raise ValueError(f"the outputs {missing} are written by no block; {known}")
        self._out_shapes = [shapes[key] for key in self.out_keys]
        self.block_names = list(ordered)
        self.blocks = nn.ModuleList(ordered.values())  # a ModuleDict would refuse some names
        self.state_shapes = state_shapes(self.blocks)
        self.auxiliary_shapes: dict[str, tuple[int, ...]] = {}
        self._given = [*self.out_keys, *self.state_shapes]
        reading = {key for block in ordered.values() for key in block.in_keys}
        self.read_keys = frozenset(self.in_keys) & (reading | set(self.out_keys))

    @property
    def perception_blocks(self) -> dict[str, PerceptionBlock]:
        """Name -> block, in execution order."""
        return dict(zip(self.block_names, self.blocks, strict=True))  # type: ignore[arg-type]

    @property
    def given_keys(self) -> list[str]:
        """Keys of all tensors that `forward` returns: outputs, recurrent state and, if requested, "latent"."""
        return list(self._given)

    def return_latent(self) -> int:
        """Have `forward` also return the tensor "latent", [..., L]; return L.

        Raises:
            ValueError: No block writes a vector of this name.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        for block in self.perception_blocks.values():
            shapes.update(zip(block.out_keys, block.out_shapes(), strict=True))
        shape = shapes.get(LATENT, ())
        if len(shape) != 1 or LATENT in self.out_keys:
            found = f"no block writes it; there are {list(shapes)}" if LATENT not in shapes else f"its shape is {shape}"
            raise ValueError(f"exploration with gsde needs a vector {LATENT!r}, which the heads read, but {found}")
        if LATENT not in self._given:
            self._given.append(LATENT)
        return shape[0]

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Map a dict with the tensors of `in_keys` to those of `out_keys`, [..., *shape] each."""
        tensors = {**block_input}
        for block in self._modules["blocks"]._modules.values():  # type: ignore[union-attr]  # slow through attributes
            tensors |= block(tensors)  # type: ignore[misc]
        return {key: tensors[key] for key in self._given}


def _check_keys(graph: InferenceBlock, blocks: Mapping[str, PerceptionBlock]) -> None:
    """Refuse what is not a block, keys that are written twice, and keys that are never written.

    Raises:
        TypeError: An entry is not a block.
        ValueError: Several blocks write a key, or a block reads one that is never written.
    """
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
            raise ValueError(f"{found}; each key is written once: rename one, such as an observation or an action head")
    for name, block in blocks.items():
        if missing := [key for key in block.in_keys if key not in writers]:
            found = f"block {name!r} ({type(block).__name__}) reads {missing}"
            known = f"there are the keys {[*writers]}"
            raise ValueError(f"{found}, which is neither an input nor written by a block; {known}")


def _in_order(
    graph: InferenceBlock, blocks: Mapping[str, PerceptionBlock]
) -> tuple[dict[str, PerceptionBlock], dict[str, tuple[int, ...]]]:
    """Return the blocks in topological order, and the shapes of inputs and written tensors.

    Raises:
        ValueError: Blocks depend on each other in a cycle, or one expects another shape than is
            written.
    """
    shapes = dict(zip(graph.in_keys, graph.in_shapes, strict=True))
    waiting = dict(blocks)
    ordered: dict[str, PerceptionBlock] = {}
    while waiting:
        ready = [name for name, block in waiting.items() if shapes.keys() >= set(block.in_keys)]
        if not ready:
            needs = [f"{name!r} reads {block.in_keys} and writes {block.out_keys}" for name, block in waiting.items()]
            raise ValueError(f"blocks wait for each other in a cycle: {'; '.join(needs)}")
        for name in ready:
            block = waiting.pop(name)
            ordered[name] = block
            for key, shape in zip(block.in_keys, block.in_shapes, strict=True):
                if shape != shapes[key]:
                    expected = f"block {name!r} ({type(block).__name__}) expects {key!r}"
                    raise ValueError(f"{expected} of shape {shape}, but it has shape {shapes[key]}")
            shapes.update(zip(block.out_keys, block.out_shapes(), strict=True))
    return ordered, shapes

"""Blocks of a template: their entries in a configuration, making them, and sharing those of a policy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gymnasium import spaces
from torch import nn

from maze_pl.core.class_path import import_class
from maze_pl.perception.blocks import InferenceBlock, OneHotBlock, PerceptionBlock, UnsqueezeBlock
from maze_pl.perception.blocks.perception_block import as_keys, is_list
from maze_pl.perception.blocks.weight_init import make_module_init_normc
from maze_pl.perception.network_factories import Shapes


@dataclass(frozen=True)
class BlockEntry:
    """A block of a modality or head.

    Attributes:
        block_class: Class of the block.
        params: Its options.
        is_first: True if it reads the observation, not the output of another block.
        listed_roles: Roles of the further inputs that it reads, if they are listed.
    """

    block_class: type[PerceptionBlock]
    params: Mapping[str, Any]
    is_first: bool
    listed_roles: tuple[str, ...] | None

    def roles(self, available: Iterable[str]) -> list[str]:
        """Select the roles that the block reads from the further inputs of its observation."""
        if self.listed_roles is not None:
            return list(self.listed_roles)
        return list(available) if self.is_first else []


class ReadModality(NamedTuple):
    """Blocks that a configuration has for a modality.

    Attributes:
        chain: Blocks of which each reads the output of the previous one.
        heads: Action head -> block that writes it.
    """

    chain: list[BlockEntry]
    heads: dict[str, BlockEntry]


def read_modality(modality: str, entry: Any) -> ReadModality:
    """Read the entry of a modality.

    Args:
        modality: The modality.
        entry: Its entry in `modality_config`, which is not empty.

    Raises:
        ValueError: It describes no blocks, or a block that cannot be used.
    """
    if is_list(entry):
        chain = [_block_entry(modality, part, index == 0) for index, part in enumerate(entry)]
        return ReadModality(chain, {})
    if not isinstance(entry, Mapping):
        return ReadModality([_block_entry(modality, entry)], {})  # which refuses it
    heads = entry.get("heads") or {}
    if not isinstance(heads, Mapping):
        expected = "action heads with block_type and block_params each"
        raise ValueError(f"{modality!r}: heads: expected {expected}, not {heads!r}")
    blocks = {head: _block_entry(f"{modality}: heads: {head}", block) for head, block in heads.items()}
    of_chain = {name: value for name, value in entry.items() if name != "heads"}
    if heads and not of_chain:
        return ReadModality([], blocks)
    return ReadModality([_block_entry(modality, of_chain)], blocks)


def _block_entry(modality: str, entry: Any, is_first: bool = True) -> BlockEntry:
    """Return class and arguments of one of a modality's blocks."""
    block_class: type[nn.Module] = nn.Module
    is_entry = isinstance(entry, Mapping) and "block_type" in entry
    if is_entry and entry.keys() <= {"block_type", "block_params", "further_inputs"}:
        block_class = import_class(entry["block_type"], nn.Module)
    if not issubclass(block_class, PerceptionBlock):
        needed = "block_type, a PerceptionBlock, and block_params"
        raise ValueError(f"{modality!r} needs {needed}; got {entry}")
    roles: tuple[str, ...] | None = None
    listed = entry.get("further_inputs")
    if listed is not None:
        roles = tuple(as_keys(listed, f"{modality!r}: further_inputs")) if listed else ()
    return BlockEntry(block_class, entry.get("block_params") or {}, is_first, roles)


def make_block(entry: BlockEntry, where: str, inputs: Shapes, out_key: str, further: Shapes) -> PerceptionBlock:
    """Make a block and run it on zeros.

    Args:
        entry: Class and options.
        where: Place in the configuration, for messages.
        inputs: Name -> shape of the inputs.
        out_key: Name of the output.
        further: Name -> shape of tensors that options may name as further inputs.
    """
    block_class = entry.block_class
    try:
        optional = block_class.optional_keys(entry.params)
        params = block_class.options_without(entry.params, [name for name in optional if name not in further])
        shapes = dict(inputs)
        for name in block_class.further_keys(params):
            if name not in further:
                raise ValueError(f"its options name {name!r}, but this network has only {sorted(further)}")
            shapes[name] = further[name]
        one_input = len(shapes) == 1
        keys: Any = next(iter(shapes)) if one_input else list(shapes)
        in_shapes: Any = next(iter(shapes.values())) if one_input else list(shapes.values())
        block = block_class(keys, out_key, in_shapes, **params)
        block.out_shapes()  # may fail, too
        return block
    except Exception as error:  # any exception, as the block may be user code
        found = ", ".join(f"{name!r} of shape {shape}" for name, shape in inputs.items())
        refused = f"{where} cannot be made for {found}"
        raise ValueError(f"{refused}: {type(error).__name__}: {error}") from error


def shared_blocks(policy_network: nn.Module | None, keys: list[str]) -> dict[str, PerceptionBlock]:
    """Return the blocks of the policy's network that lead to the shared keys."""
    wanted = set(keys)
    if not wanted:
        return {}
    if not isinstance(policy_network, InferenceBlock):
        found = f"the policy's {type(policy_network).__name__} is not made from a template"
        raise ValueError(f"shared_embedding_keys: {found}")
    blocks = policy_network.perception_blocks
    known: list[str] = []
    for block in blocks.values():
        known += [key for key in block.out_keys if key not in policy_network.out_keys]
    unknown = sorted(wanted - set(known))
    if unknown:
        found = f"there is no {unknown}; tensors of the policy are {known}"
        raise ValueError(f"shared_embedding_keys: {found}")
    shared = {}
    for name, block in reversed(blocks.items()):  # each block comes after its inputs
        if wanted & {*block.out_keys}:
            shared[name] = block
            wanted |= {*block.in_keys}
    return shared


def vector_encoder(name: str, shape: tuple[int, ...], space: spaces.Space[Any] | None) -> PerceptionBlock | None:
    """Make a block that encodes categories or a scalar as a vector; None if no encoding is needed.

    Args:
        name: Name of the observation; the block writes `<name>_<BlockType>`.
        shape: Shape of the observation.
        space: Space of the observation, None if unknown.
    """
    if isinstance(space, spaces.Discrete):
        return OneHotBlock(name, f"{name}_OneHotBlock", shape, int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.flatten().tolist()
        starts = space.start.flatten().tolist()
        return OneHotBlock(name, f"{name}_OneHotBlock", shape, sizes, starts)
    return None if shape else UnsqueezeBlock(name, f"{name}_UnsqueezeBlock", shape, 0)


def initialise(block: PerceptionBlock) -> None:
    """Draw the weights of a block with norm 1, then let it and its parts set those that start otherwise."""
    block.apply(make_module_init_normc(1.0))
    for part in block.modules():
        if isinstance(part, PerceptionBlock):
            part.after_initialisation()

"""Observations that networks join to one vector, so that weights belong to places in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import nn

    from maze_pl.core.actor_id import StepKey
    from maze_pl.core.spec import Spec
    from maze_pl.perception.blocks import InferenceBlock


class VectorInputs(NamedTuple):
    """Observations of a sub-step that its networks join to a vector.

    Attributes:
        joined: Names of all of them.
        one_hot: Names of those that enter as one-hot vectors.
    """

    joined: frozenset[str] = frozenset()
    one_hot: frozenset[str] = frozenset()


def vector_inputs(networks: nn.Module, weights: Collection[str], spec: Spec) -> dict[StepKey, VectorInputs]:
    """Return the observations that networks join to a vector, by sub-step.

    Args:
        networks: Contains the networks.
        weights: Names of the weights in their state; networks without any of these do not count.
        spec: Sub-steps with their observations.
    """
    from maze_pl.perception.blocks import InferenceBlock
    from maze_pl.perception.models.built_in import FlattenConcatNet

    found = dict.fromkeys(spec.steps, VectorInputs())
    for name, network in networks.named_modules():
        if not any(weight.startswith(f"{name}.") for weight in weights):
            continue
        if isinstance(network, FlattenConcatNet):
            ranks = network.input_ranks
            inputs = VectorInputs(frozenset(ranks))
        elif isinstance(network, InferenceBlock):
            ranks = dict(zip(network.in_keys, map(len, network.in_shapes), strict=True))
            inputs = _joined(network)
        else:
            continue
        for key in _readers(ranks, spec):
            known = found[key]
            found[key] = VectorInputs(known.joined | inputs.joined, known.one_hot | inputs.one_hot)
    return found


def _readers(ranks: Mapping[str, int], spec: Spec) -> list[StepKey]:
    """Return the sub-steps that a network may belong to; all if none has everything that it reads.

    Args:
        ranks: Input of the network -> number of dimensions.
        spec: Sub-steps with their observations.
    """
    shapes = {key: step.observation_shapes for key, step in spec.steps.items()}
    observed = {name for of_step in shapes.values() for name in of_step}
    # single numbers may enter as vectors of one element
    read = {(name, max(rank, 1)) for name, rank in ranks.items() if name in observed}
    fitting = []
    for key, of_step in shapes.items():
        if read <= {(name, max(len(shape), 1)) for name, shape in of_step.items()}:
            fitting.append(key)
    return fitting or list(shapes)  # critics of all sub-steps read the observations of all


def _joined(graph: InferenceBlock) -> VectorInputs:
    """Return the inputs that a graph of blocks joins to a vector.

    They pass through blocks without parameters only. A pooled set does not count, as its vector has
    the same size for any number of items.
    """
    from maze_pl.perception.blocks import ConcatenationBlock, MaskedGlobalPoolingBlock, OneHotBlock

    origins = {key: VectorInputs(frozenset([key])) for key in graph.in_keys}  # tensor -> what it contains
    joined: set[str] = set()
    one_hot: set[str] = set()
    for block in graph.perception_blocks.values():
        read = [origins[key] for key in block.in_keys if key in origins]
        names = frozenset().union(*(part.joined for part in read))
        encoded = frozenset().union(*(part.one_hot for part in read))
        if isinstance(block, ConcatenationBlock) and {*map(len, block.in_shapes)} == {1}:
            joined |= names
            one_hot |= encoded
        if next(block.parameters(), None) is None and not isinstance(block, MaskedGlobalPoolingBlock):
            passed = VectorInputs(names, names if isinstance(block, OneHotBlock) else encoded)
            origins.update(dict.fromkeys(block.out_keys, passed))
    return VectorInputs(frozenset(joined), frozenset(one_hot))

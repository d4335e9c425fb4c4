"""Observations that networks join to one vector, so that weights belong to places in it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from maze_pl.perception.blocks import InferenceBlock


def vector_inputs(
    networks: nn.Module,
    weights: Collection[str],
    observations: Collection[str],
) -> dict[str, bool]:
    """Return the observations that networks join to a vector -> whether as one-hot vectors.

    Args:
        networks: Contains the networks.
        weights: Names of the weights in their state; networks without any of these do not count.
        observations: Names of all observations.
    """
    from maze_pl.perception.blocks import InferenceBlock
    from maze_pl.perception.models.built_in import FlattenConcatNet

    found: dict[str, bool] = {}
    for name, network in networks.named_modules():
        if not any(weight.startswith(f"{name}.") for weight in weights):
            continue
        if isinstance(network, FlattenConcatNet):
            found = {**dict.fromkeys(observations, False), **found}
        elif isinstance(network, InferenceBlock):
            found.update(_joined(network))
    return found


def _joined(graph: InferenceBlock) -> dict[str, bool]:
    """Return the inputs that a graph of blocks joins to a vector -> whether as one-hot vectors."""
    from maze_pl.perception.blocks import (
        ConcatenationBlock,
        FlattenBlock,
        OneHotBlock,
        ScalingBlock,
        UnsqueezeBlock,
    )

    origins = {key: (key, False) for key in graph.in_keys}  # tensor -> its input, whether one-hot
    found: dict[str, bool] = {}
    for block in graph.perception_blocks.values():
        known = [origins[key] for key in block.in_keys if key in origins]
        if known and isinstance(block, FlattenBlock | OneHotBlock | ScalingBlock | UnsqueezeBlock):
            ((name, is_one_hot),) = known
            origins[block.out_keys[0]] = (name, is_one_hot or isinstance(block, OneHotBlock))
        elif isinstance(block, ConcatenationBlock) and {*map(len, block.in_shapes)} == {1}:
            found.update(known)
    return found

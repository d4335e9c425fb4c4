"""Observations that networks join to one vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.core.spec import Spec, StepSpec
from maze_pl.perception import (
    AutomaticModelComposer,
    ConcatenationBlock,
    DenseBlock,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    FunctionalBlock,
    InferenceBlock,
    LevelsBlock,
    LinearOutputBlock,
    MaskedGlobalPoolingBlock,
    PerceptionBlock,
    SlicingBlock,
)
from maze_pl.runs.vector_inputs import VectorInputs, vector_inputs

OBSERVED = {
    "items": spaces.Box(-1.0, 2.0, (5, 3), np.float32),
    "level": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "mask": spaces.MultiBinary(2),
    "scaled": spaces.Box(0, 100, (4,), np.int64),
    "table": spaces.Box(-np.inf, np.inf, (2, 2), np.float32),
    "zone": spaces.Discrete(3),
}


GO = spaces.Dict({"go": spaces.Discrete(2)})


def joined(networks: nn.Module, spec: Spec) -> dict[Any, set[str]]:
    """Names of the observations that networks join to a vector, by sub-step."""
    found = vector_inputs(networks, networks.state_dict(), spec)
    return {key: {*inputs.joined} for key, inputs in found.items()}


def test_blocks_with_weights_make_other_vectors_of_any_number_of_items() -> None:
    spec = Spec({0: StepSpec(spaces.Dict(OBSERVED), GO, masks={"go": "mask"})})
    networks = AutomaticModelComposer([8], kinds={"items": "set"}).compose(spec)
    found = vector_inputs(networks, networks.state_dict(), spec)
    assert found == {0: VectorInputs(frozenset({"level", "scaled", "table", "zone"}), frozenset({"zone"}))}


def test_flat_networks_join_everything_but_count_only_with_weights_that_are_asked_for() -> None:
    spec = Spec({0: StepSpec(spaces.Dict({name: OBSERVED[name] for name in ("level", "mask")}), GO)})
    flat = FlattenConcatPolicyNet({"level": (2,), "mask": (2,)}, {"go": (2,)}, torch.nn.Tanh, [8])
    networks = nn.ModuleDict({"one": nn.Linear(1, 1), "flat": flat})
    assert vector_inputs(networks, networks.state_dict(), spec) == {0: VectorInputs(frozenset({"level", "mask"}))}
    assert vector_inputs(networks, ["one.weight"], spec) == {0: VectorInputs()}


def test_flat_networks_join_only_their_inputs_where_others_read_the_rest() -> None:
    by_step = {"mode": ("level",), "pick": ("items",), "both": ("items", "level")}
    observed = {key: spaces.Dict({name: OBSERVED[name] for name in names}) for key, names in by_step.items()}
    spec = Spec({key: StepSpec(space, GO) for key, space in observed.items()})
    flat = FlattenConcatPolicyNet({"level": (2,)}, {"go": (2,)}, torch.nn.Tanh, [8])
    networks = nn.ModuleDict({"flat": flat, "set": nn.Linear(3, 1)})
    assert joined(networks, spec) == {"mode": {"level"}, "pick": set(), "both": {"level"}}


def graph(observed: spaces.Dict, *blocks: PerceptionBlock) -> InferenceBlock:
    """Network of blocks, the last of which writes the output."""
    shapes = [space.shape or () for space in observed.values()]
    return InferenceBlock([*observed], blocks[-1].out_keys, shapes, {block.out_keys[0]: block for block in blocks})


def test_a_name_that_is_joined_in_one_sub_step_may_be_a_set_in_another() -> None:
    mode = spaces.Dict({"items": OBSERVED["level"], "level": OBSERVED["level"]})
    pick = spaces.Dict({"items": OBSERVED["items"], "level": OBSERVED["level"]})
    vector = ConcatenationBlock([*mode], "vector", [[2], [2]])
    one = graph(mode, vector, LinearOutputBlock("vector", "go", [4], output_units=2))
    other = graph(pick, LinearOutputBlock("items", "go", [5, 3], output_units=1))
    spec = Spec({"mode": StepSpec(mode, GO), "pick": StepSpec(pick, GO)})
    assert joined(nn.ModuleList([one, other]), spec) == {"mode": {"items", "level"}, "pick": set()}


def both(level: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    return torch.cat([level, numbers], -1)


def test_inputs_pass_through_blocks_without_weights_to_a_vector() -> None:
    names = ("items", "level", "mask", "scaled", "table")
    observed = spaces.Dict({name: OBSERVED[name] for name in names})
    blocks: list[PerceptionBlock] = [
        LevelsBlock("scaled", "numbers", [4], levels=3),
        FunctionalBlock(["level", "numbers"], "pair", [[2], [12]], func=both),
        SlicingBlock("table", "row", [2, 2], slice_dim=-2, slice_idx=0),
        MaskedGlobalPoolingBlock("items", "mean", [5, 3], "mean", pooling_dim=-2),
        DenseBlock("mask", "flags", [2], hidden_units=[3]),
        ConcatenationBlock(["pair", "row", "mean", "flags"], "vector", [[14], [2], [3], [3]]),
        LinearOutputBlock("vector", "go", [22], output_units=2),
    ]
    assert joined(nn.ModuleList([graph(observed, *blocks)]), Spec({0: StepSpec(observed, GO)})) == {
        0: {"level", "scaled", "table"}
    }


def test_critics_of_all_sub_steps_join_the_observations_of_each() -> None:
    steps = {"mode": ("level",), "pick": ("scaled",)}
    observed = {key: spaces.Dict({name: OBSERVED[name] for name in names}) for key, names in steps.items()}
    critic = FlattenConcatStateValueNet({"level": (2,), "scaled": (4,), "step_key": (2,)})
    found = joined(nn.ModuleList([critic]), Spec({key: StepSpec(space, GO) for key, space in observed.items()}))
    assert "level" in found["mode"] and "scaled" in found["pick"]

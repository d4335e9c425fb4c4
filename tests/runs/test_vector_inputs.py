"""Observations that networks join to one vector."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.core.spec import Spec, StepSpec
from maze_pl.perception import AutomaticModelComposer, FlattenConcatPolicyNet
from maze_pl.runs.vector_inputs import vector_inputs

OBSERVED = {
    "items": spaces.Box(-1.0, 2.0, (5, 3), np.float32),
    "level": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "mask": spaces.MultiBinary(2),
    "scaled": spaces.Box(0, 100, (4,), np.int64),
    "table": spaces.Box(-np.inf, np.inf, (2, 2), np.float32),
    "zone": spaces.Discrete(3),
}


def test_blocks_with_weights_make_other_vectors_of_any_number_of_items() -> None:
    step = StepSpec(spaces.Dict(OBSERVED), spaces.Dict({"go": spaces.Discrete(2)}), masks={"go": "mask"})
    networks = AutomaticModelComposer([8], kinds={"items": "set"}).compose(Spec({0: step}))
    found = vector_inputs(networks, networks.state_dict(), OBSERVED)
    assert found == {"level": False, "scaled": False, "table": False, "zone": True}


def test_flat_networks_join_everything_but_count_only_with_weights_that_are_asked_for() -> None:
    flat = FlattenConcatPolicyNet({"level": (2,), "mask": (2,)}, {"go": (2,)}, torch.nn.Tanh, [8])
    networks = nn.ModuleDict({"one": nn.Linear(1, 1), "flat": flat})
    assert vector_inputs(networks, networks.state_dict(), ["level", "mask"]) == {"level": False, "mask": False}
    assert vector_inputs(networks, ["one.weight"], ["level", "mask"]) == {}

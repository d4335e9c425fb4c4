"""Policies in arrays among environments in tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.collect.host_policy import HostPolicy
from maze_pl.core.random_policy import RandomPolicy
from tests.devices import DEVICES


@pytest.mark.parametrize("device", DEVICES)
def test_actions_are_those_of_the_policy_on_the_device(device: str) -> None:
    space = spaces.Dict({"move": spaces.Discrete(4), "force": spaces.Box(-1, 1, (2,), np.float32)})
    policy = HostPolicy(RandomPolicy({"go": space}, {"go": {"move": "allowed"}}))
    allowed = torch.zeros(50, 4, dtype=torch.int8, device=device)
    allowed[:, 1] = allowed[:, 3] = 1
    actions = []
    for seed in (0, 0, 1):
        generator = torch.Generator(device).manual_seed(seed)
        actions.append(policy.distribution("go", {"allowed": allowed}).sample(generator))
    assert {head: action.shape for head, action in actions[0].items()} == {"move": (50,), "force": (50, 2)}
    assert all(action.device.type == device for action in actions[0].values())
    assert set(actions[0]["move"].tolist()) == {1, 3}
    assert all(torch.equal(actions[0][head], actions[1][head]) for head in actions[0])
    assert not torch.equal(actions[0]["force"], actions[2]["force"])

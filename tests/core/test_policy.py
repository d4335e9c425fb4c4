"""The random policy stays within spaces and masks, and repeats itself with the same generator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.core.policy import PolicyBatch, RandomPolicy, evaluation_mode

ACTIONS = spaces.Dict(
    {
        "one": spaces.Discrete(3, start=5),
        "several": spaces.MultiDiscrete([2, 4]),
        "bits": spaces.MultiBinary(3),
        "box": spaces.Box(np.array([-2.0, 0.0, -np.inf]), np.array([1.0, np.inf, np.inf]), dtype=np.float64),
        "pixels": spaces.Box(0, 3, (2,), np.uint8),
    }
)


def batch(n: int, **observation: np.ndarray) -> PolicyBatch:
    return PolicyBatch(0, observation, np.zeros(n, np.int64))


def test_samples_lie_in_their_spaces_and_reach_every_value() -> None:
    action = RandomPolicy({0: ACTIONS}).act(batch(400), generator=torch.Generator().manual_seed(0)).action
    for i in range(400):
        assert ACTIONS.contains({head: values[i].astype(ACTIONS[head].dtype) for head, values in action.items()})
    assert set(action["one"].tolist()) == {5, 6, 7}
    assert {tuple(row) for row in action["several"].tolist()} == {(a, b) for a in range(2) for b in range(4)}
    assert len({tuple(row) for row in action["bits"].tolist()}) == 8
    assert set(action["pixels"].flatten().tolist()) == {0, 1, 2, 3}
    assert -0.7 < action["box"][:, 0].mean() < -0.3


def test_masks_are_kept() -> None:
    masks = {0: {"one": "m1", "several": "m2", "bits": "m3"}}
    observation = {
        "m1": np.tile(np.array([0, 1, 1], np.int8), (100, 1)),
        "m2": np.tile(np.array([0, 1, 1, 0, 0, 1], np.int8), (100, 1)),
        "m3": np.tile(np.array([1, 0, 1], np.int8), (100, 1)),
    }
    action = RandomPolicy({0: ACTIONS}, masks).act(batch(100, **observation)).action
    assert set(action["one"].tolist()) == {6, 7}
    assert {tuple(row) for row in action["several"].tolist()} == {(1, 0), (1, 3)}
    assert not action["bits"][:, 1].any() and action["bits"][:, 0].any()


def test_the_same_generator_state_gives_the_same_actions() -> None:
    policy = RandomPolicy({0: ACTIONS})
    one = policy.act(batch(9), generator=torch.Generator().manual_seed(4)).action
    other = policy.act(batch(9), generator=torch.Generator().manual_seed(4)).action
    for head in one:
        np.testing.assert_array_equal(one[head], other[head])


class Frozen(nn.Linear):
    """Stays in evaluation mode, whatever its parents are told."""

    def train(self, mode: bool = True) -> Frozen:
        return super().train(False)


def modes(module: nn.Module) -> list[bool]:
    return [part.training for part in module.modules()]


def test_every_module_gets_back_the_mode_that_it_was_in() -> None:
    shared = nn.Dropout()
    network = nn.Sequential(nn.Linear(1, 1), nn.Sequential(shared, nn.BatchNorm1d(1)), shared)
    network[1][1].eval()
    before = modes(network)
    assert before.count(False) == 1
    with pytest.raises(KeyError), evaluation_mode(network):
        assert not any(modes(network))
        raise KeyError
    assert modes(network) == before
    network.eval()
    with evaluation_mode(network):
        assert not any(modes(network))
    assert not any(modes(network))


def test_modules_that_override_their_switch_are_asked() -> None:
    network = nn.Sequential(Frozen(1, 1), nn.Dropout()).train()
    assert modes(network) == [True, False, True]
    with evaluation_mode(network):
        assert not any(modes(network))
    assert modes(network) == [True, False, True]


@pytest.mark.parametrize("part", [nn.LSTM(1, 1), Frozen(1, 1)])
def test_parts_with_ways_of_their_own_do_not_change_the_mode_of_others(part: nn.Module) -> None:
    network = nn.Sequential(part, nn.BatchNorm1d(1), nn.Dropout()).train()
    network[1].eval()
    before = modes(network)
    with evaluation_mode(network):
        assert not any(modes(network))
    assert modes(network) == before


@pytest.mark.filterwarnings("ignore:`torch.jit.script`")
@pytest.mark.parametrize("mode", [True, False])
def test_compiled_parts_are_switched_and_get_back_the_mode_that_they_were_in(mode: bool) -> None:
    part = torch.jit.script(nn.Sequential(nn.Dropout()))
    network, ones = nn.Sequential(nn.Identity(), part).train(), torch.ones(1000)
    part.train(mode)
    for _ in range(2):
        with evaluation_mode(network):
            assert torch.equal(network(ones), ones)
        assert torch.equal(network(ones), ones) == (not mode)
        assert modes(network) == [True, True, mode, mode]


def test_policies_that_are_no_modules_are_left_alone() -> None:
    policy = RandomPolicy({0: ACTIONS})
    before = dict(vars(policy))
    with evaluation_mode(policy):
        assert vars(policy) == before

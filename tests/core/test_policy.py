"""Policies are switched to evaluation mode and back, whatever their parts do when they are switched."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from maze_pl.core.policy import evaluation_mode


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
    policy = SimpleNamespace(training=True)
    before = dict(vars(policy))
    with evaluation_mode(policy):
        assert vars(policy) == before

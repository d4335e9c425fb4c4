"""Target networks start as copies, learn nothing by themselves, and follow their networks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from maze_pl.modules import soft_update, target_copy


def test_a_target_is_a_separate_copy_that_requires_no_gradient() -> None:
    network = nn.Linear(3, 2)
    target = target_copy(network)
    assert torch.equal(target.weight, network.weight)
    assert not any(parameter.requires_grad for parameter in target.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters())
    network.weight.data.zero_()
    assert not torch.equal(target.weight, network.weight)


def test_a_copy_of_a_policy_acts_with_weights_of_its_own(kit: SimpleNamespace) -> None:
    policy = kit.make_actor_critic().policy
    target = target_copy(policy)
    observation, agent_id = {"observation": torch.ones(4, 3)}, torch.zeros(4, dtype=torch.int64)
    before = target.action_logits(0, observation, agent_id)["action"]
    for parameter in policy.parameters():
        parameter.data.add_(1.0)
    assert torch.equal(target.action_logits(0, observation, agent_id)["action"], before)
    assert not torch.equal(policy.action_logits(0, observation, agent_id)["action"], before)


@pytest.mark.parametrize("tau", [0.0, 0.1, 1.0])
def test_a_target_moves_by_a_fraction_of_the_way(tau: float) -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    target = target_copy(network)
    network(torch.randn(5, 3))  # changes the statistics
    for parameter in network.parameters():
        parameter.data.normal_()
    names = dict(target.state_dict())
    before = {name: tensor.clone() for name, tensor in names.items()}
    soft_update(target, network, tau)
    for name, tensor in network.state_dict().items():
        expected = before[name] + tau * (tensor - before[name]) if tensor.is_floating_point() else before[name]
        assert torch.allclose(target.state_dict()[name], expected), name

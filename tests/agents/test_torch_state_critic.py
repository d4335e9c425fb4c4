from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.agents import StateCritic, TorchActorCritic, TorchPolicy, TorchSharedStateCritic, TorchStepStateCritic
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.perception import FlattenConcatPolicyNet, FlattenConcatStateValueNet

ACTION = spaces.Dict({"action": spaces.Discrete(2)})
FLAT = Spec({0: StepSpec(spaces.Dict({"observation": spaces.Box(-1.0, 1.0, (4,))}), ACTION)})
STRUCTURED = Spec(
    {
        0: StepSpec(spaces.Dict({"stock": spaces.Box(0, 9, (2, 2)), "order": spaces.Box(0, 9, (2,))}), ACTION),
        "cut": StepSpec(spaces.Dict({"order": spaces.Box(0, 9, (2,)), "kind": spaces.Discrete(5)}), ACTION),
    }
)


class Seen(nn.Module):
    """Keeps its input; the value is the sum of everything."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.input: dict[str, torch.Tensor] = {}

    def forward(self, in_dict):
        self.input = in_dict
        n = len(next(iter(in_dict.values())))
        total = torch.cat([value.reshape(n, -1).to(self.scale.dtype) for value in in_dict.values()], 1).sum(1, True)
        return {"value": self.scale * total}


def test_shared_critic_of_one_sub_step_sees_its_observations_only():
    critic = TorchSharedStateCritic([Seen()], FLAT)
    value = critic.value(0, {"observation": torch.ones(3, 4)})
    assert value.tolist() == [4.0, 4.0, 4.0]
    assert set(critic.network.input) == {"observation"}


def test_shared_critic_sees_the_union_with_zeros_and_the_sub_step():
    critic = TorchSharedStateCritic({0: Seen()}, STRUCTURED)
    value = critic.value("cut", {"order": torch.ones(3, 2), "kind": torch.tensor([1, 2, 3])})
    assert value.tolist() == [2 + 1 + 1, 2 + 2 + 1, 2 + 3 + 1]
    seen = critic.network.input
    assert torch.equal(seen["stock"], torch.zeros(3, 2, 2))
    assert torch.equal(seen["step_key"], torch.tensor([[0.0, 1.0]] * 3))
    critic.value(0, {"stock": torch.ones(1, 2, 2), "order": torch.ones(1, 2)})
    assert torch.equal(critic.network.input["kind"], torch.zeros(1, dtype=torch.int64))
    assert torch.equal(critic.network.input["step_key"], torch.tensor([[1.0, 0.0]]))


def test_shared_critic_refuses_names_with_different_shapes():
    other = StepSpec(spaces.Dict({"observation": spaces.Box(-1.0, 1.0, (3,))}), ACTION)
    with pytest.raises(ValueError, match=r"observation 'observation' has shape \(3,\).*in sub-step 1, but \(4,\)"):
        TorchSharedStateCritic([Seen()], Spec({0: FLAT.steps[0], 1: other}))


def test_shared_critic_refuses_the_reserved_name():
    step = StepSpec(spaces.Dict({"step_key": spaces.Box(-1.0, 1.0, (3,))}), ACTION)
    with pytest.raises(ValueError, match="'step_key' is reserved"):
        TorchSharedStateCritic([Seen()], Spec({0: step, 1: FLAT.steps[0]}))


def test_shared_critic_has_one_network():
    with pytest.raises(ValueError, match="one network for all sub-steps, got 2"):
        TorchSharedStateCritic([Seen(), Seen()], STRUCTURED)


def test_step_critic_uses_the_network_of_the_sub_step():
    first, second = Seen(), Seen()
    critic = TorchStepStateCritic({"cut": second, "0": first}, STRUCTURED)
    critic.value("cut", {"order": torch.ones(3, 2), "kind": torch.ones(3, dtype=torch.int64)})
    assert not first.input
    assert set(second.input) == {"order", "kind"}
    critic.value(0, {"order": torch.ones(3, 2), "stock": torch.ones(3, 2, 2)})
    assert set(first.input) == {"order", "stock"}
    assert list(critic.networks) == [first, second]


@pytest.mark.parametrize("networks", [[Seen()], {0: Seen()}, {0: Seen(), "cat": Seen()}])
def test_step_critic_has_one_network_for_each_sub_step(networks):
    with pytest.raises(ValueError, match="networks for"):
        TorchStepStateCritic(networks, STRUCTURED)


@pytest.mark.parametrize("critic_class", [TorchSharedStateCritic, TorchStepStateCritic])
def test_values_are_differentiable_and_take_the_networks_type(critic_class):
    network = FlattenConcatStateValueNet({"observation": (4,)}, nn.Tanh, [8])
    critic: StateCritic = critic_class([network], FLAT)
    value = critic.value(0, {"observation": torch.randn(2, 3, 4, dtype=torch.float64)})
    assert value.shape == (2, 3)
    assert value.dtype == torch.float32
    value.sum().backward()
    assert all(parameter.grad is not None for parameter in critic.parameters())
    assert critic.kind == ("shared" if critic_class is TorchSharedStateCritic else "step")


def test_double_precision_critics_accept_single_precision_observations():
    critic = TorchSharedStateCritic([Seen()], STRUCTURED).double()
    value = critic.value(0, {"stock": torch.ones(1, 2, 2), "order": torch.ones(1, 2)})
    assert value.dtype == torch.float64


def test_nothing_but_network_weights_is_saved():
    critic = TorchSharedStateCritic([Seen()], STRUCTURED)
    assert set(critic.state_dict()) == {"network.scale"}


def test_actor_critic_registers_both():
    policy = TorchPolicy([FlattenConcatPolicyNet({"observation": (4,)}, {"action": (2,)}, nn.Tanh, [8])], FLAT)
    critic = TorchSharedStateCritic([Seen()], FLAT)
    names = {name.split(".")[0] for name in TorchActorCritic(policy, critic).state_dict()}
    assert names == {"policy", "critic"}
    assert TorchActorCritic(policy).critic is None
    assert np.all([name.startswith("policy.") for name in TorchActorCritic(policy).state_dict()])

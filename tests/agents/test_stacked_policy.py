"""Stacked copies act as each of them does alone, also after some of them have ended."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.agents import TorchPolicy
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.population import perturbed_parameters
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.perception import FlattenConcatPolicyNet

OBSERVATIONS = spaces.Dict(numbers=spaces.Box(-1, 1, (3,)), mask=spaces.Box(0, 1, (4,)))
ACTIONS = spaces.Dict(choice=spaces.Discrete(4), amount=spaces.Box(-2, 2, (2,)))
N_COPIES = 9


def make_policy() -> TorchPolicy:
    spec = Spec({0: StepSpec(OBSERVATIONS, ACTIONS, masks={"choice": "mask"})})
    shapes = {"numbers": (3,), "mask": (4,)}
    torch.manual_seed(0)
    net = FlattenConcatPolicyNet(shapes, {"choice": (4,), "amount": (4,)}, non_lin=torch.nn.Tanh, hidden_units=[5])
    return TorchPolicy([net], spec)


def batch_of(copies: Any, generator: np.random.Generator) -> PolicyBatch:
    n = len(copies)
    mask = (generator.random((n, 4)) < 0.5).astype(np.float32)
    mask[np.arange(n), generator.integers(4, size=n)] = 1
    observation = {"numbers": generator.uniform(-1, 1, (n, 3)).astype(np.float32), "mask": mask}
    return PolicyBatch(0, observation, np.zeros(n, np.int64), env_index=np.asarray(copies))


def load(policy: TorchPolicy, values: torch.Tensor) -> None:
    """Give a policy the parameters in a vector."""
    torch.nn.utils.vector_to_parameters(values, perturbed_parameters(policy))


def alone(policy: TorchPolicy, values: torch.Tensor, batch: PolicyBatch, row: int) -> dict[str, Any]:
    """Action of one copy."""
    load(policy, values)
    observation = {name: value[row : row + 1] for name, value in batch.observation.items()}
    step = policy.act(PolicyBatch(0, observation, np.zeros(1, np.int64)), deterministic=True)
    return {head: value[0] for head, value in step.action.items()}


def test_copies_act_as_each_of_them_alone() -> None:
    policy, reference = make_policy().eval(), make_policy().eval()
    center = torch.nn.utils.parameters_to_vector(perturbed_parameters(policy)).detach()
    values = center + torch.randn(N_COPIES, len(center), generator=torch.Generator().manual_seed(3))
    stacked = policy.stacked()
    stacked.load(values)
    generator = np.random.default_rng(0)
    running = np.arange(N_COPIES)
    seen = set()
    for _ in range(12):
        batch = batch_of(running, generator)
        action = stacked.act(batch, deterministic=True).action
        for row, copy in enumerate(running.tolist()):
            expected = alone(reference, values[copy], batch, row)
            assert int(action["choice"][row]) == int(expected["choice"])
            np.testing.assert_allclose(action["amount"][row], expected["amount"], rtol=1e-5, atol=1e-6)
            seen.add(int(expected["choice"]))
        running = np.delete(running, generator.integers(len(running))) if len(running) > 1 else running
        stacked.keep(running)
    assert len(running) == 1 and len(seen) > 1
    after = torch.nn.utils.parameters_to_vector(perturbed_parameters(policy)).detach()
    assert torch.equal(after, center)


def test_copies_may_act_in_groups_and_in_any_order() -> None:
    policy = make_policy().eval()
    center = torch.nn.utils.parameters_to_vector(perturbed_parameters(policy)).detach()
    stacked = policy.stacked()
    stacked.load(center + torch.randn(N_COPIES, len(center), generator=torch.Generator().manual_seed(3)))
    batch = batch_of(np.arange(N_COPIES), np.random.default_rng(1))
    whole = stacked.act(batch).action
    order = np.array([7, 2, 5])
    observation = {name: value[order] for name, value in batch.observation.items()}
    part = stacked.act(PolicyBatch(0, observation, np.zeros(3, np.int64), env_index=order)).action
    for head, values in part.items():
        np.testing.assert_allclose(values, whole[head][order], rtol=1e-6)


def test_frozen_parameters_are_those_of_the_policy() -> None:
    policy = make_policy().eval()
    frozen = next(iter(policy.networks[0][0].parameters()))
    frozen.requires_grad_(False)
    length = sum(parameter.numel() for parameter in perturbed_parameters(policy))
    assert length == sum(parameter.numel() for parameter in policy.parameters()) - frozen.numel()
    stacked = policy.stacked()
    stacked.load(torch.zeros(2, length))
    (stack,) = stacked._stacks.values()
    assert len(stack) == sum(1 for _ in policy.parameters()) - 1


def test_spaces_of_the_specification_are_not_seeded() -> None:
    policy = make_policy().eval()
    space = policy.spec.steps[0].observation_space
    drawn = []
    for _ in range(2):
        space.seed(5)
        if drawn:
            policy.stacked()
        drawn.append(space.sample()["numbers"].tolist())
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_copies_act_on_any_device(device: str) -> None:
    policy = make_policy().eval().to(device)
    center = torch.nn.utils.parameters_to_vector(perturbed_parameters(policy)).detach()
    stacked = policy.stacked()
    stacked.load(center.repeat(4, 1))
    batch = batch_of(np.arange(4), np.random.default_rng(1))
    action = stacked.act(batch).action
    expected = policy.act(PolicyBatch(0, batch.observation, batch.agent_id), deterministic=True).action
    for head, values in expected.items():
        np.testing.assert_allclose(action[head], values, rtol=1e-4, atol=1e-5)


class InPlace(torch.nn.Module):
    """Writes its observations, without another result if it is evaluated once more."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"choice": self.layer(inputs["numbers"].mul_(1.0))}


def test_networks_that_change_their_observations_in_place_are_refused() -> None:
    sees = spaces.Dict(numbers=OBSERVATIONS["numbers"])
    policy = TorchPolicy([InPlace()], Spec({0: StepSpec(sees, spaces.Dict(choice=spaces.Discrete(4)))})).eval()
    stacked = policy.stacked()
    stacked.load(torch.zeros(2, sum(parameter.numel() for parameter in policy.parameters())))
    batch = PolicyBatch(0, {"numbers": np.ones((2, 3), np.float32)}, np.zeros(2, np.int64), env_index=np.arange(2))
    with pytest.raises(ValueError, match="network, InPlace, changes the observation 'numbers' of sub-step 0 in place"):
        stacked.act(batch)


def test_policies_of_other_kinds_are_refused() -> None:
    spec = Spec({0: StepSpec(OBSERVATIONS, ACTIONS, masks={"choice": "mask"})})
    config = [
        {
            "action_space": "gymnasium.spaces.Box",
            "distribution": "maze_pl.distributions.DiagonalGaussianProbabilityDistribution",
            "exploration": {"type": "state_independent"},
        }
    ]
    net = partial(FlattenConcatPolicyNet, {"numbers": (3,), "mask": (4,)}, non_lin=torch.nn.Tanh, hidden_units=[5])
    policy = TorchPolicy([net({"choice": (4,), "amount": (2,)})], spec, config)
    with pytest.raises(ValueError, match="sub-step 0 has policy states, explorations, or a network for each agent"):
        policy.stacked()

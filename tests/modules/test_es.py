"""Evolution strategies: ranks, the gradient that they give, and what wraps a policy."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from maze_pl.agents import TorchActorCritic, TorchPolicy
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.population import NoiseTable, PopulationBatch
from maze_pl.modules import ES
from maze_pl.modules.es import centred_ranks

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


def ranks_by_counting(returns: list[float]) -> list[float]:
    """Slow: how many are lower, and half of how many others are equal."""
    n = len(returns)
    places = [sum(y < x for y in returns) + (sum(y == x for y in returns) - 1) / 2 for x in returns]
    return [place / (n - 1) - 0.5 for place in places]


def test_ranks_by_hand() -> None:
    assert centred_ranks(torch.tensor([[7.0, -3.0], [1e9, 0.0]])).tolist() == [
        [pytest.approx(1 / 6), -0.5],
        [0.5, pytest.approx(-1 / 6)],
    ]
    assert centred_ranks(torch.tensor([2.0, 1.0])).tolist() == [0.5, -0.5]


def test_equal_returns_share_their_ranks() -> None:
    assert centred_ranks(torch.tensor([[5.0, 5.0], [5.0, 5.0]])).tolist() == [[0, 0], [0, 0]]
    assert centred_ranks(torch.tensor([1.0, 2.0, 2.0, 2.0, 9.0])).tolist() == [-0.5, 0, 0, 0, 0.5]


def test_ranks_are_those_of_a_slow_reference() -> None:
    generator = torch.Generator().manual_seed(0)
    for n in range(2, 30):
        returns = torch.randint(0, 12, (n,), generator=generator).double()
        assert centred_ranks(returns).tolist() == pytest.approx(ranks_by_counting(returns.tolist()))
        assert float(centred_ranks(returns).sum()) == pytest.approx(0, abs=1e-12)


class Numbers(nn.Module):
    """A policy network of four numbers; its actions do not depend on what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([1.0, -2.0]))
        self.fixed = nn.Parameter(torch.tensor([5.0]), requires_grad=False)
        self.more = nn.Parameter(torch.tensor([[0.5]]))

    def forward(self, observation: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        (array,) = observation.values()
        return {"action": self.logits.expand(*array.shape[:-1], 2) + 0 * self.more.sum()}


def make_es(kit: SimpleNamespace, **options: Any) -> ES:
    return ES(actor_critic=TorchActorCritic(TorchPolicy([Numbers()], kit.flat_spec)), **options)


def batch_of(numbers: list[float], offsets: list[int], returns: list[list[float]]) -> PopulationBatch:
    table = NoiseTable(0, len(numbers))
    table._numbers = np.array(numbers, np.float32)
    return PopulationBatch(table, offsets, torch.tensor(returns, dtype=torch.float64), 7, measures={"n_rollouts": 4})


HAND = dict(numbers=[1.0, 2.0, -1.0, 0.5], offsets=[0, 1], returns=[[10.0, 4.0], [6.0, 30.0]])
# Ranks of 10, 4, 6 and 30 are 1/6, -1/2, -1/6 and 1/2: differences 2/3 and -2/3, over 2P = 4.
GRADIENT = [
    -(2 / 3 * 1.0 - 2 / 3 * 2.0) / 4 + 0.1 * 1.0,
    -(2 / 3 * 2.0 - 2 / 3 * -1.0) / 4 + 0.1 * -2.0,
    -(2 / 3 * -1.0 - 2 / 3 * 0.5) / 4 + 0.1 * 0.5,
]


def parameters(module: ES) -> list[float]:
    network: Any = module.policy.networks[0][0]
    return [*network.logits.tolist(), network.more.item()]


def test_a_step_of_sgd_by_hand(kit: SimpleNamespace) -> None:
    module = make_es(kit, optimizer="sgd", lr=0.5, l2_penalty=0.1)
    trainer = kit.fit(module, lambda seed: batch_of(**HAND), length=1)
    after = [old - 0.5 * g for old, g in zip([1.0, -2.0, 0.5], GRADIENT, strict=True)]
    assert parameters(module) == pytest.approx(after)
    assert module.policy.networks[0][0].fixed.item() == 5.0
    assert trainer.global_step == 1
    assert module.env_steps == 7
    table = {name: module.epoch_statistics["train"][f"ESEvents/{name}"] for name in NAMES}
    norm, moved = np.linalg.norm(after), 0.5 * np.linalg.norm(GRADIENT)
    wanted = [np.linalg.norm(GRADIENT), norm, moved / norm, 12.5, np.std([10, 4, 6, 30]), 4, 0.5]
    assert list(table.values()) == pytest.approx(wanted)


NAMES = ["policy_grad_norm", "policy_norm", "update_ratio", "return_mean", "return_std", "n_rollouts", "learning_rate"]


def test_a_step_follows_the_noise_that_was_played_if_parameters_are_frozen_since(kit: SimpleNamespace) -> None:
    module = make_es(kit, optimizer="sgd", lr=0.5, l2_penalty=0.1)
    network: Any = module.policy.networks[0][0]
    perturbed = tuple(parameter.requires_grad for parameter in network.parameters())
    network.logits.requires_grad_(False)
    kit.fit(module, lambda seed: replace(batch_of(**HAND), perturbed=perturbed), length=1)
    assert parameters(module) == pytest.approx([1.0, -2.0, 0.5 - 0.5 * GRADIENT[2]])
    network.requires_grad_(True)  # `fixed` was not perturbed
    kit.fit(module, lambda seed: replace(batch_of(**HAND), perturbed=perturbed), length=1)
    assert network.fixed.item() == 5.0
    assert parameters(module) != pytest.approx([1.0, -2.0, 0.5 - 0.5 * GRADIENT[2]])


def test_steps_of_adam_are_those_of_torch(kit: SimpleNamespace) -> None:
    module = make_es(kit, lr=0.03, l2_penalty=0.0, lr_schedule="linear")
    kit.fit(module, lambda seed: batch_of(**HAND), length=3)
    ours = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    reference = torch.optim.Adam([ours])
    for left in (1.0, 2 / 3, 1 / 3):
        reference.param_groups[0]["lr"] = 0.03 * left
        ours.grad = torch.tensor([g - p for g, p in zip(GRADIENT, [0.1, -0.2, 0.05], strict=True)])
        reference.step()
    assert parameters(module) == pytest.approx(ours.tolist(), rel=1e-5)


def test_sgd_has_a_momentum_and_follows_the_schedule_and_the_limit(kit: SimpleNamespace) -> None:
    module = make_es(kit, optimizer="sgd", lr=0.5, l2_penalty=0.0, lr_schedule="linear", max_grad_norm=0.1)
    kit.fit(module, lambda seed: batch_of(**HAND), length=2)
    gradient = np.array(GRADIENT) - 0.1 * np.array([1.0, -2.0, 0.5])
    gradient *= 0.1 / np.linalg.norm(gradient)
    moved = 0.5 * gradient + 0.25 * (0.9 * gradient + gradient)
    assert parameters(module) == pytest.approx(list(np.array([1.0, -2.0, 0.5]) - moved), rel=1e-5)


def test_the_way_up_is_found_where_the_return_is_a_known_function(kit: SimpleNamespace) -> None:
    """The return is the inner product with a vector: parameters grow in its direction."""
    direction, noise, updates = torch.tensor([1.0, -2.0, 3.0]), NoiseTable(5, 1000), iter(range(100))

    def make(seed: int) -> PopulationBatch:
        update = next(updates)
        offsets = [noise.offset(3, update, pair) for pair in range(20)]
        gains = [float(noise.piece(offset, 3) @ direction) for offset in offsets]
        return PopulationBatch(noise, offsets, torch.tensor([[gain, -gain] for gain in gains]))

    module = make_es(kit, optimizer="sgd", lr=0.2, l2_penalty=0.0)
    before = torch.tensor(parameters(module))
    kit.fit(module, make, length=20)
    moved = torch.tensor(parameters(module)) - before
    assert float(moved @ direction / moved.norm() / direction.norm()) > 0.98


class Cautious(nn.Module):
    """Adds a number that is learned to the action, which a policy has chosen."""

    def __init__(self, torch_policy: TorchPolicy, bias: float = 0.0) -> None:
        super().__init__()
        self.torch_policy, self.spec = torch_policy, torch_policy.spec
        self.bias = nn.Parameter(torch.tensor(bias))

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        step = self.torch_policy.act(batch, **options)
        step.action = {head: (values + round(self.bias.item())) % 2 for head, values in step.action.items()}
        return step


def test_what_wraps_the_policy_acts_and_is_what_is_trained(kit: SimpleNamespace) -> None:
    module = make_es(kit, policy_wrapper=lambda torch_policy: Cautious(torch_policy, 1.0), optimizer="sgd", lr=1.0)
    assert isinstance(module.policy, Cautious)
    observation = {"observation": np.zeros(3)}
    assert module.policy.torch_policy.act_on(observation) == {"action": 0}
    assert module.act(observation) == {"action": 1}
    with pytest.raises(ValueError, match="unknown sub-step 'other'"):
        module.act(observation, "other")
    before = [parameter.clone() for parameter in module.policy.parameters()]
    kit.fit(module, lambda seed: batch_of([1.0, 2.0, 3.0, 4.0], [0, 0], [[1.0, 2.0], [3.0, 4.0]]), length=1)
    changed = [not torch.equal(old, new) for old, new in zip(before, module.policy.parameters(), strict=True)]
    assert changed == [True, True, False, True]  # the own one comes first, one of the network is fixed


def test_a_critic_is_left_out(kit: SimpleNamespace) -> None:
    module = ES(actor_critic=kit.make_actor_critic())
    assert module.critic is None
    assert not [name for name in module.state_dict() if "critic.critic" in name]


class Mute(nn.Module):
    """Cannot act."""

    def __init__(self, torch_policy: TorchPolicy) -> None:
        super().__init__()
        self.torch_policy, self.spec = torch_policy, torch_policy.spec


class Empty(Numbers):
    """Learns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "lr=0.0 must be greater than 0"),
        ({"noise_stddev": 0.0}, "noise_stddev=0.0 must be greater than 0"),
        ({"l2_penalty": -1.0}, "l2_penalty=-1.0 must be at least 0"),
        ({"optimizer": "rmsprop"}, "optimizer='rmsprop' must be 'adam', 'sgd', or a class of optimisers"),
        ({"policy_wrapper": Mute}, "policy_wrapper returned a Mute, .* a method act and the policy's spec"),
        ({"policy_wrapper": lambda torch_policy: object()}, "policy_wrapper returned a object"),
        ({"critic_burn_in_epochs": 1}, "needs a critic"),
    ],
)
def test_invalid_options_are_refused(kit: SimpleNamespace, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_es(kit, **options)


def test_a_policy_without_parameters_is_refused(kit: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="nothing to learn: the TorchPolicy has no parameters"):
        ES(actor_critic=TorchActorCritic(TorchPolicy([Empty()], kit.flat_spec)))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_returns_that_are_no_numbers_are_refused(kit: SimpleNamespace, wrong: float) -> None:
    with pytest.raises(ValueError, match="returns of the population are not finite"):
        kit.fit(make_es(kit), lambda seed: batch_of(HAND["numbers"], HAND["offsets"], [[1.0, wrong], [2.0, 3.0]]))


def test_rollouts_are_refused(kit: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="not from a Rollout: use PopulationDataModule"):
        kit.fit(make_es(kit))

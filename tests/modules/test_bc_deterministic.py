"""Behavioural cloning of deterministic policies, from which TD3 may continue."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents import TorchActorCritic, TorchPolicy
from maze_pl.core.batches import TrajectoryBatch, TransitionBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.datamodules import SelfLabellingDataModule
from maze_pl.distributions import DeterministicProbabilityDistribution
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import BC, TD3
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateActionValueNet,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

LOW, HIGH = -1.0, 3.0
BOX = spaces.Box(LOW, HIGH, (2,))
SPEC = Spec({0: StepSpec(spaces.Dict({"view": spaces.Box(-1, 1, (3,))}), spaces.Dict({"force": BOX}))})
CONFIG = [{"action_space": spaces.Box, "distribution": DeterministicProbabilityDistribution}]


class Constant(nn.Module):
    """Gives the same logits, its parameters, whatever is observed."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"force": self.logits.expand(len(observation["view"]), -1)}


def acts_of(view: Tensor, action: Tensor) -> TransitionBatch:
    return TransitionBatch({"view": view}, {"force": action}, torch.zeros(len(view), dtype=torch.int64))


@pytest.mark.parametrize("exploration", [None, 0.0, 0.3])
def test_the_loss_is_the_squared_error_in_halves_of_the_box(exploration: float | None) -> None:
    logits = [0.3, -0.8]
    policy = TorchPolicy([Constant(logits)], SPEC, CONFIG)
    if exploration is not None:  # from a run of TD3
        policy.set_exploration(exploration)
    module = BC(actor_critic=TorchActorCritic(policy))
    actions = [[0.5, 3.0], [-1.0, 2.0], [1.0, 1.0]]
    loss: Any = module.training_step(TrajectoryBatch({0: acts_of(torch.zeros(3, 3), torch.tensor(actions))}), 0)
    loss.backward()
    half = (HIGH - LOW) / 2
    expected, gradient = 0.0, [0.0, 0.0]
    for action in actions:
        for i, (component, logit) in enumerate(zip(action, logits, strict=True)):
            error = (component - (LOW + HIGH) / 2) / half - math.tanh(logit)
            expected += (0.5 * error**2 + math.log(half) + 0.5 * math.log(2 * math.pi)) / len(actions)
            gradient[i] -= error * (1 - math.tanh(logit) ** 2) / len(actions)
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert policy.networks[0][0].logits.grad.tolist() == pytest.approx(gradient, rel=1e-5)


def networks(critic: bool) -> CustomModelComposer:
    torch.manual_seed(0)
    critic_net = partial(FlattenConcatStateActionValueNet, hidden_units=[4])
    policy = ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[16])])
    return CustomModelComposer(policy, SharedStateActionCriticComposer([critic_net]) if critic else None, CONFIG)


def demonstrations(seed: int) -> TrajectoryBatch:
    view = 2 * torch.rand(64, 3, generator=torch.Generator().manual_seed(seed)) - 1
    return TrajectoryBatch({0: acts_of(view, 1.0 + view[:, :2])})


def test_a_clone_acts_as_the_demonstrations_and_is_the_policy_of_td3(kit: SimpleNamespace) -> None:
    module = BC(networks=networks(critic=False), spec=SPEC, lr=3e-2, entropy_coef=0.01)
    kit.fit(module, demonstrations, length=150)
    acts = demonstrations(-1).acts[0]
    action = module.policy.distribution(0, acts.observation).deterministic_sample()["force"].detach()
    assert float((action - acts.action["force"]).abs().mean()) < 0.1
    learner = TD3(networks=networks(critic=True), spec=SPEC)
    learner.policy.load_state_dict(module.policy.state_dict(), strict=False)
    same = learner.policy.distribution(0, acts.observation).deterministic_sample()["force"].detach()
    assert torch.equal(same, action)


def test_a_policy_without_randomness_cannot_choose_the_best_of_many_episodes(kit: SimpleNamespace) -> None:
    played: list[int] = []

    class Data(SelfLabellingDataModule):
        def play(self, epoch: int) -> Any:
            played.append(epoch)
            return super().play(epoch)

    data = Data(
        lambda: GymMazeEnv("Pendulum-v1"), n_starts=1, n_samples=2, max_steps=3, epoch_length=1, evaluators={}, seed=0
    )
    module = BC(networks=networks(critic=False), spec=data.spec)
    with pytest.raises(ValueError, match=r"'action' .*Deterministic.*, from which self-labelling cannot learn"):
        kit.make_trainer().fit(module, data)
    assert not played

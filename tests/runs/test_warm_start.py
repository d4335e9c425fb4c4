"""Warm start of networks besides policy and critic: target networks, predictors, copies."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.checkpoint import add_to_checkpoint
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import make_gym_maze_env
from maze_pl.modules import A2C, PPO
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from maze_pl.runs.warm_start import warm_start


def policy_net(obs_shapes: Any, action_logits_shapes: Any) -> Any:
    return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, torch.nn.Tanh, [8])


def value_net(obs_shapes: Any) -> Any:
    return FlattenConcatStateValueNet(obs_shapes, torch.nn.Tanh, [8])


class WithTargets(PPO):
    """Has a target network of its critic, a predictor, a network in a list, and another name for the policy's."""

    width = 3

    def on_networks_ready(self) -> None:
        super().on_networks_ready()
        actor_critic: Any = self.networks
        self.target = copy.deepcopy(actor_critic.critic)
        self.targets = nn.ModuleList([copy.deepcopy(actor_critic.policy.networks[0])])
        self.predictor = nn.Linear(self.width, 1)
        self.norm = nn.LayerNorm(8)
        self.alias = actor_critic.policy.networks[0]
        self.temperature = nn.Parameter(torch.ones(()))


class Wider(WithTargets):
    width = 4


@pytest.fixture
def kit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> SimpleNamespace:
    data = RolloutDataModule(lambda: make_gym_maze_env("CartPole-v1"), n_envs=1)
    critic = SharedStateCriticComposer([value_net])
    networks = CustomModelComposer(ProbabilisticPolicyComposer([policy_net]), critic)

    def make(kind: Any) -> Any:
        return kind(networks=networks, spec=data.spec)

    def begin(there: Any, here: Any) -> Any:
        """Shift all weights of one, and begin the other with them."""
        for index, parameter in enumerate(there.parameters()):
            parameter.data += index + 1
        checkpoint: dict[str, Any] = {"state_dict": there.state_dict()}
        config: Any = {"data": {"class_path": "maze_pl.datamodules.RolloutDataModule"}}
        add_to_checkpoint(checkpoint, spec=data.spec.to_dict(), config=config)
        torch.save(checkpoint, tmp_path / "last.ckpt")
        warm_start(tmp_path / "last.ckpt", here, data)
        return here

    return SimpleNamespace(make=make, begin=begin)


def equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def test_copies_of_networks_are_copies_of_what_a_warm_start_brings(kit: SimpleNamespace) -> None:
    there, module = kit.make(PPO), kit.make(WithTargets)
    before = copy.deepcopy(module)
    kit.begin(there, module)
    assert equal(module.networks, there.networks) and not equal(module.networks, before.networks)
    assert equal(module.target, there.critic)
    assert equal(module.targets[0], there.policy.networks[0])
    assert equal(module.predictor, before.predictor) and equal(module.norm, before.norm)


def test_networks_that_start_anew_are_named(kit: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        kit.begin(kit.make(PPO), kit.make(WithTargets))
    text = caplog.text
    assert "no network predictor, which is not a copy of another one: it starts from scratch" in text
    assert "no network target: it is copied" in text and "no network targets.0.0: it is copied" in text
    assert "alias" not in text and "temperature" not in text


def test_networks_of_the_same_algorithm_are_those_of_the_other_run(kit: SimpleNamespace) -> None:
    there = kit.make(WithTargets)
    module = kit.begin(there, kit.make(WithTargets))
    for name in ("networks", "target", "targets", "predictor", "norm"):
        assert equal(getattr(module, name), getattr(there, name)), name
    assert not equal(module.target, module.critic), "it follows slowly, and had its own weights"
    assert float(module.temperature.detach()) == 1.0, "what is no network starts anew"


def test_exploration_is_that_of_the_new_run(kit: SimpleNamespace) -> None:
    there, here = kit.make(A2C), kit.make(A2C)
    here.policy.set_exploration(0.3)
    kit.begin(there, here)
    assert float(here.policy.exploration) == pytest.approx(0.3)
    there.policy.set_exploration(0.9)
    kit.begin(there, here)
    assert float(here.policy.exploration) == pytest.approx(0.3)
    assert equal(here.policy.networks, there.policy.networks)


def test_networks_of_other_shapes_are_refused(kit: SimpleNamespace) -> None:
    with pytest.raises(ConfigurationError, match=r"do not fit: predictor.weight is \(1, 3\) there and \(1, 4\) here"):
        kit.begin(kit.make(WithTargets), kit.make(Wider))

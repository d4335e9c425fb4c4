"""Algorithms with automatic networks: every algorithm, sub-steps, resuming, and the message."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import pytest
import torch
import yaml
from gymnasium import spaces

from maze_pl.agents import StateCritic, TorchStateActionCritic
from maze_pl.config.factories import Factory
from maze_pl.core.spec import Spec
from maze_pl.datamodules import ReplayDataModule, RolloutDataModule
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import A2C, BC, DQN, ES, IMPALA, PPO, SAC, TD3, AlgorithmModule

NEEDED = {A2C: StateCritic, PPO: StateCritic, IMPALA: StateCritic, SAC: TorchStateActionCritic, BC: None, ES: None}
NEEDED |= {DQN: None, TD3: TorchStateActionCritic}
UNSUITABLE: Any = (DQN, "Pendulum-v1"), (TD3, "CartPole-v1"), (TD3, "Blackjack-v1")


NAMES = ["CartPole-v1", "Pendulum-v1", "Blackjack-v1"]
PAIRS = [(algorithm, name) for algorithm in NEEDED for name in NAMES if (algorithm, name) not in UNSUITABLE]


@pytest.mark.parametrize(("algorithm", "name"), PAIRS)
def test_every_algorithm_gets_the_critic_that_it_needs(algorithm: Any, name: str) -> None:
    spec = Spec.of(GymMazeEnv(name))
    module = algorithm(spec=spec)
    needed = NEEDED[algorithm]
    assert module.critic is None if needed is None else isinstance(module.critic, needed)
    said = algorithm(spec=spec, networks="auto")
    assert module.state_dict().keys() == said.state_dict().keys()


@pytest.mark.parametrize("algorithm", [PPO, SAC])
def test_what_is_printed_makes_the_same_module(algorithm: Any) -> None:
    spec = Spec.of(GymMazeEnv("Pendulum-v1"))
    torch.manual_seed(0)
    automatic = algorithm(spec=spec)
    torch.manual_seed(0)
    configured = algorithm(spec=spec, networks=Factory.of(yaml.safe_load(automatic.chosen_networks))())
    assert configured.chosen_networks is None
    expected = configured.state_dict()
    for name, value in automatic.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_an_algorithm_of_the_users_own_declares_critic_and_distributions() -> None:
    class Own(AlgorithmModule):
        critic_type: ClassVar[type] = TorchStateActionCritic
        head_distributions: ClassVar[Any] = SAC.head_distributions

    module = Own(spec=Spec.of(GymMazeEnv("Pendulum-v1")))
    assert isinstance(module.critic, TorchStateActionCritic)
    assert "SquashedGaussian" in str(module.chosen_networks)


@pytest.mark.slow
def test_networks_are_rebuilt_from_the_checkpoint_without_any_option(kit: SimpleNamespace, tmp_path: Path) -> None:
    module = A2C(gamma=0.5, spec=kit.flat_spec)
    trainer = kit.fit(module)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    loaded = A2C.load_from_checkpoint(tmp_path / "x.ckpt", weights_only=True)
    assert loaded.chosen_networks == module.chosen_networks
    for name, value in module.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name]), name


def test_policies_of_sac_have_limited_deviations_also_where_observations_are_large() -> None:
    policy = SAC(spec=Spec.of(GymMazeEnv("Pendulum-v1"))).policy
    observation = {"observation": torch.linspace(-1e7, 1e7, 300).view(100, 3)}
    logits = policy.compute_policy_output(0, observation).action_logits["action"]
    mean, log_std = logits.unbind(-1)
    assert mean.abs().max() > 100
    assert log_std.min() >= -20
    assert log_std.max() <= 2


def test_sub_steps_learn_with_automatic_networks(kit: SimpleNamespace) -> None:
    module = A2C(spec=kit.team_spec)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    kit.fit(module, kit.make_team_rollout)
    assert all(not torch.equal(parameter, before[name]) for name, parameter in module.named_parameters())


class WithNothing(gymnasium.Env[Any, Any]):
    """One of its observations has no entries."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"nothing": spaces.Box(0.0, 1.0, (0,)), "way": spaces.Discrete(2)})
        self.action_space = spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 1.0, bool(self.np_random.random() < 0.2), False, {}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [A2C, SAC])
def test_an_observation_without_entries_is_collected_and_left_out(kit: SimpleNamespace, algorithm: Any) -> None:
    data: Any = RolloutDataModule(lambda: GymMazeEnv(WithNothing()), n_envs=2, n_rollout_steps=10, epoch_length=1)
    if algorithm is SAC:
        sizes = {"batch_size": 8, "initial_buffer_size": 16, "num_batches_per_iter": 1, "epoch_length": 1}
        data = ReplayDataModule(lambda: GymMazeEnv(WithNothing()), n_rollout_steps=4, **sizes)
    module = algorithm(spec=data.spec)
    before = {name: parameter.detach().clone() for name, parameter in module.networks.named_parameters()}
    kit.make_trainer(limit_val_batches=0).fit(module, data)
    assert module.policy.networks[0][0].in_keys == ["way"]
    assert all(not torch.equal(parameter, before[name]) for name, parameter in module.networks.named_parameters())


def test_the_choice_is_printed_when_training_starts(
    kit: SimpleNamespace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    monkeypatch.setattr(logger, "propagate", True)
    logger.addHandler(caplog.handler)
    with caplog.at_level(logging.INFO, logger.name):
        module = A2C(spec=kit.flat_spec)
        assert not caplog.messages
        kit.fit(module)
        (message,) = {text for text in caplog.messages if "networks that fit the spaces" in text}
        assert yaml.safe_load(message.split("\n", 1)[1]) == yaml.safe_load(str(module.chosen_networks))
        caplog.clear()
        kit.fit(A2C(actor_critic=kit.make_actor_critic()))
        assert not any("networks that fit" in text for text in caplog.messages)
    logger.removeHandler(caplog.handler)


def test_errors_of_the_environment_are_not_taken_for_a_missing_specification(kit: SimpleNamespace) -> None:
    class Broken(GymMazeEnv):
        def __init__(self) -> None:
            super().__init__("CartPole-v1")
            self.missing  # type: ignore[attr-defined]  # noqa: B018

    with pytest.raises(AttributeError, match="missing"):
        kit.make_trainer().fit(PPO(), RolloutDataModule(Broken, n_envs=10, n_rollout_steps=10))

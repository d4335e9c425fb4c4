from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.batches import Rollout
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import A2C, IMPALA, PPO, PolicySamples
from tests.modules.hand_computed import BATCH, ENTROPY, EVEN, LOGIT, constant_networks, minibatch
from tests.modules.small_algorithms import DivergingCrew

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


def test_a2c_loss_by_hand(kit: SimpleNamespace) -> None:
    module = A2C(
        actor_critic=constant_networks(kit, LOGIT, 2.0),
        policy_loss_coef=3.0,
        value_loss_coef=0.25,
        entropy_coef=0.1,
    )
    loss = module.loss(minibatch(**BATCH))
    policy = -(2 * math.log(0.75) + 2 * math.log(0.25)) / 2
    critic = ((2 - 1) ** 2 + (2 - 4) ** 2) / 2
    assert loss.item() == pytest.approx(3.0 * policy + 0.25 * critic - 0.1 * ENTROPY, rel=1e-5)


def ppo_loss(kit: SimpleNamespace, **options: Any) -> float:
    coefficients = dict(policy_loss_coef=0.0, value_loss_coef=0.0, entropy_coef=0.0)
    module = PPO(actor_critic=constant_networks(kit, LOGIT, 2.0), **{**coefficients, **options})
    loss: Tensor = module.loss(minibatch(**BATCH))
    return loss.item()


def test_ppo_policy_loss_by_hand(kit: SimpleNamespace) -> None:
    # ratios 1.5 and 0.5, of which the first is clipped
    assert ppo_loss(kit, policy_loss_coef=1.0) == pytest.approx(-(2 * 1.2 + 2 * 0.5) / 2)
    assert ppo_loss(kit, policy_loss_coef=1.0, clip_range=0.6) == pytest.approx(-(2 * 1.5 + 2 * 0.5) / 2)


def test_ppo_value_clipping_by_hand(kit: SimpleNamespace) -> None:
    assert ppo_loss(kit, value_loss_coef=1.0) == pytest.approx((1.0 + 4.0) / 2)
    # Values may move by 0.25: 2 becomes 0.75 (error 0.0625 < 1) and 2.75 (error 1.5625 < 4): the worse one counts.
    assert ppo_loss(kit, value_loss_coef=1.0, value_clip_range=0.25) == pytest.approx((1.0 + 4.0) / 2)
    module = PPO(
        actor_critic=constant_networks(kit, LOGIT, 2.0),
        policy_loss_coef=0.0,
        entropy_coef=0.0,
        value_loss_coef=1.0,
        value_clip_range=0.25,
    )
    # 2 becomes 0.75 for a target of 2: the error is 1.5625 instead of 0.
    batch = minibatch([1], [0.0], [2.0], [0.5], [EVEN])
    assert module.loss(batch).item() == pytest.approx(1.25**2)


def test_ppo_entropy_bonus_by_hand(kit: SimpleNamespace) -> None:
    assert ppo_loss(kit, entropy_coef=0.5) == pytest.approx(-0.5 * ENTROPY, rel=1e-5)


def updates(kit: SimpleNamespace, **options: Any) -> int:
    module = PPO(actor_critic=kit.make_actor_critic(), batch_size=10, n_optimization_epochs=4, lr=1e-2, **options)
    trainer = kit.fit(module, length=1)
    return int(trainer.global_step)


@pytest.mark.slow
def test_divergence_stops_further_passes_but_not_the_first(kit: SimpleNamespace) -> None:
    assert updates(kit) == 16
    assert updates(kit, target_kl=1e9) == 16
    assert updates(kit, target_kl=1e-12) == 4


def test_divergence_of_one_policy_is_enough_to_stop(kit: SimpleNamespace) -> None:
    module = PPO(actor_critic=kit.make_actor_critic(kit.team_spec), batch_size=6, lr=1e-2, target_kl=1e-12)
    for parameter in module.policy.networks[1].parameters():
        parameter.requires_grad_(False)
    assert kit.fit(module, make=kit.make_team_rollout, length=1).global_step == 4


@pytest.mark.parametrize(("factor", "n_passes"), [(0.8, 1), (1.2, 2)])
def test_divergence_is_averaged_over_the_minibatches_in_which_a_policy_acts(
    kit: SimpleNamespace, factor: float, n_passes: int
) -> None:
    def make(seed: int) -> Rollout:
        rollout: Rollout = kit.make_team_rollout(seed=seed)
        rollout.segments["crew"].active[1:] = False
        return rollout

    def fitted(target_kl: float) -> DivergingCrew:
        options: dict[str, Any] = {"batch_size": 2, "n_optimization_epochs": 2, "lr": 1e-2, "target_kl": target_kl}
        module = DivergingCrew(actor_critic=kit.make_actor_critic(kit.team_spec), **options)
        pl.seed_everything(0, verbose=False)
        kit.fit(module, make=make, length=1)
        return module

    whole = fitted(1e9)
    assert len(whole.divergences) == 2 * 12
    of_first_pass = [divergence for divergence in whole.divergences[:12] if divergence is not None]
    assert 1 < len(of_first_pass) <= 3
    assert np.mean(of_first_pass) > 1e-6
    assert len(fitted(factor * float(np.mean(of_first_pass))).divergences) == n_passes * 12


def test_divergence_is_recorded(kit: SimpleNamespace) -> None:
    module = PPO(actor_critic=kit.make_actor_critic(), batch_size=40, n_optimization_epochs=2, target_kl=1e9, lr=0.1)
    kit.fit(module, length=1)
    # The first pass is a single minibatch, at the policy that acted.
    assert module.epoch_statistics["train"]["ActorCriticEvents/policy_kl/substep_0"] > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [A2C, PPO])
def test_advantage_normalisation_changes_the_policy_loss(kit: SimpleNamespace, algorithm: Any) -> None:
    losses = {}
    for normalize in (False, True):
        options = {"batch_size": 40, "n_optimization_epochs": 1} if algorithm is PPO else {}
        module = algorithm(actor_critic=constant_networks(kit, 0.0, 3.0), normalize_advantage=normalize, **options)
        kit.fit(module, length=1)
        losses[normalize] = module.epoch_statistics["train"]["ActorCriticEvents/policy_loss/substep_0"]
    # Under a policy that is indifferent the loss is the mean advantage times -1 (PPO) or log 2 (A2C).
    assert losses[True] == pytest.approx(0.0, abs=1e-5)
    assert abs(losses[False]) > 0.1


def test_defaults_are_those_of_the_documents(kit: SimpleNamespace) -> None:
    a2c, ppo = (algorithm(actor_critic=kit.make_actor_critic()) for algorithm in (A2C, PPO))
    common = dict(
        gamma=0.98,
        gae_lambda=1.0,
        policy_loss_coef=1.0,
        value_loss_coef=0.5,
        entropy_coef=2.5e-4,
        max_grad_norm=0.0,
        critic_burn_in_epochs=0,
        lr_schedule="constant",
    )
    for module, extra in (
        (a2c, {"lr": 5e-4, "normalize_advantage": False}),
        (
            ppo,
            {
                "lr": 2.5e-4,
                "batch_size": 100,
                "n_optimization_epochs": 4,
                "clip_range": 0.2,
                "value_clip_range": None,
                "target_kl": None,
                "normalize_advantage": True,
            },
        ),
    ):
        expected = {**common, **extra}
        assert {name: getattr(module, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip_range": -0.2}, r"clip_range=-0\.2 must be greater than 0"),
        ({"value_clip_range": 0.0}, r"value_clip_range=0\.0 must be greater than 0"),
        ({"target_kl": -1.0}, r"target_kl=-1\.0 must be greater than 0"),
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"n_optimization_epochs": 0}, "n_optimization_epochs=0 must be at least 1"),
        ({"gamma": 1.5}, r"gamma=1\.5 must lie between 0 and 1"),
        ({"entropy_coef": -1}, "entropy_coef=-1 must be at least 0"),
        ({"target_kl": 0.1, "n_optimization_epochs": 1}, "makes one"),
    ],
)
def test_invalid_options_are_refused(kit: SimpleNamespace, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PPO(actor_critic=kit.make_actor_critic(), **options)


def test_batch_size_that_does_not_divide_the_rollout_is_refused(kit: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match=r"batch_size=7 does not divide n_envs \* n_rollout_steps = 40; use a factor"):
        kit.fit(PPO(actor_critic=kit.make_actor_critic(), batch_size=7))


@pytest.mark.parametrize("kind", ["shared", "step"])
@pytest.mark.parametrize("algorithm", [A2C, PPO])
@pytest.mark.parametrize("crew_acts", [True, False])
def test_structured_rollouts_train_every_network_that_acted(
    kit: SimpleNamespace, kind: str, algorithm: Any, crew_acts: bool
) -> None:
    options = {"batch_size": 6} if algorithm is PPO else {}
    module = algorithm(actor_critic=kit.make_actor_critic(kit.team_spec, kind), **options)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    trainer = kit.fit(module, make=lambda seed: kit.make_team_rollout(seed=seed, crew_acts=crew_acts))
    assert trainer.global_step == (2 if algorithm is A2C else 32)
    table = module.epoch_statistics["train"]
    crew_names = [name for name in table if "/policy_loss/substep_crew" in name]
    assert bool(crew_names) == crew_acts
    assert all(math.isfinite(value) for value in table.values() if isinstance(value, float))
    changed = [not torch.equal(old, new) for old, new in zip(before, module.parameters(), strict=True)]
    crew_networks = [module.policy.networks[1]] + ([module.critic.networks[1]] if kind == "step" else [])
    crew = {id(parameter) for network in crew_networks for parameter in network.parameters()}
    assert changed == [crew_acts or id(parameter) not in crew for parameter in module.parameters()]


def test_user_may_override_the_loss(kit: SimpleNamespace) -> None:
    class Pulled(PPO):
        def loss(self, minibatch: dict[Any, PolicySamples]) -> Tensor:
            return super().loss(minibatch) + 0.5 * sum(p.square().sum() for p in self.policy.parameters())

    module = Pulled(actor_critic=kit.make_actor_critic(), batch_size=10, lr=1e-2)
    before = sum(float(p.detach().square().sum()) for p in module.policy.parameters())
    kit.fit(module, length=5)
    assert sum(float(p.detach().square().sum()) for p in module.policy.parameters()) < 0.8 * before


class DoublePrecision(gymnasium.Env[Any, Any]):
    """Actions are of double precision; the reward is the share of them that is positive."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Box(-2.0, 2.0, (2,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action.dtype == np.float64
        observation = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return observation, float((action > 0).mean()), bool(self.np_random.random() < 0.2), False, {}


@pytest.mark.filterwarnings("ignore:Total length of `list`")
@pytest.mark.parametrize("kind", [PPO, A2C, IMPALA])
def test_actions_of_double_precision_are_learned(kit: SimpleNamespace, kind: Any) -> None:
    data = RolloutDataModule(
        lambda: GymMazeEnv(DoublePrecision()), n_envs=2, n_rollout_steps=8, epoch_length=2, evaluators={}
    )
    module = kind(spec=data.spec, capture="off", **({"batch_size": 8} if kind is PPO else {}))
    before = [parameter.detach().clone() for parameter in module.parameters()]
    kit.make_trainer().fit(module, data)
    for parameter, value in zip(module.parameters(), before, strict=True):
        assert parameter.dtype == torch.float32 and not torch.equal(parameter, value)

"""Noise that is kept for several acts: through rollouts, episodes, checkpoints, engines, traces and algorithms."""

from __future__ import annotations

import copy
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from maze_pl.agents import TorchPolicy
from maze_pl.collect.collector import Collector
from maze_pl.collect.engines import InProcessEngine, ProcessEngine
from maze_pl.core.spec import Spec
from maze_pl.datamodules import ReplayDataModule, RolloutDataModule
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.modules import A2C, PPO, SAC, AlgorithmModule
from maze_pl.perception import (
    ConcatModelBuilder,
    CustomModelComposer,
    DenseBlock,
    FlattenConcatPolicyNet,
    FlattenConcatStateActionValueNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    RecurrentBlock,
    SharedStateActionCriticComposer,
    SharedStateCriticComposer,
    TemplateModelComposer,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

GSDE = {"type": "gsde", "sample_freq": 3, "log_std_init": -1.0}
N_ACTS = 7
"""Acts of an episode."""


def make_env() -> Any:
    return TimeLimitWrapper.wrap(make_gym_maze_env("Pendulum-v1"), max_episode_steps=N_ACTS)


def overrides(options: dict[str, Any], distribution: str = "DiagonalGaussian") -> list[dict[str, Any]]:
    path = f"maze_pl.distributions.{distribution}ProbabilityDistribution"
    return [{"action_space": "gymnasium.spaces.Box", "distribution": path, "exploration": options}]


def make_networks(options: dict[str, Any]) -> CustomModelComposer:
    return CustomModelComposer(
        ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[8])]),
        SharedStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[8])]),
        overrides(options),
    )


def recurrent_networks(options: dict[str, Any]) -> TemplateModelComposer:
    config: dict[str, Any] = {
        "feature": {"block_type": DenseBlock, "block_params": {"hidden_units": [6]}},
        "recurrence": {"block_type": RecurrentBlock, "block_params": {"hidden_size": 5}},
    }
    builder = ConcatModelBuilder(config, {"observation": "feature"}, ["latent"])
    critic = SharedStateCriticComposer()
    return TemplateModelComposer(builder, ProbabilisticPolicyComposer(), critic, overrides(options))


def make_policy(make: Any = make_networks, options: dict[str, Any] | None = None) -> TorchPolicy:
    torch.manual_seed(0)
    policy: TorchPolicy = make(options or GSDE).compose(Spec.of(make_env())).policy
    return policy.eval()


def make_collector(n_rollout_steps: int = 9) -> Collector:
    vector = SequentialVectorEnv([make_env] * 2, spec=Spec.of(make_env()), seed=3)
    return Collector(vector, n_rollout_steps, torch.Generator().manual_seed(5))


def fit(module: AlgorithmModule, data: Any, max_epochs: int, checkpoint: Path | None = None) -> pl.Trainer:
    quiet: dict[str, Any] = dict(
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer = pl.Trainer(max_epochs=max_epochs, accelerator="cpu", devices=1, num_sanity_val_steps=0, **quiet)
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    return trainer


def weights(module: AlgorithmModule) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1).clone() for parameter in module.parameters()])


@pytest.mark.parametrize("make", [make_networks, recurrent_networks])
def test_matrices_change_every_few_acts_and_with_each_episode(make: Any) -> None:
    policy = make_policy(make)
    collector = make_collector(1)
    matrices = []
    for _ in range(2 * N_ACTS):
        collector.collect(policy)
        matrices.append(collector.slots.noise_states[0]["action"][:, 0].copy())
    changed = [True] + [bool((now != before).any()) for before, now in itertools.pairwise(matrices)]
    assert changed == [act % 3 == 0 for act in range(N_ACTS)] * 2
    assert (matrices[0][0] != matrices[0][1]).any()  # each environment has a matrix of its own


def test_rollouts_hold_nothing_of_the_noise() -> None:
    rollout = make_collector().collect(make_policy())
    assert rollout.segments[0].policy_state == {}
    assert rollout.finals[0].policy_state == {}


@pytest.mark.parametrize("make", [make_networks, recurrent_networks])
def test_a_collector_continues_with_the_noise_that_it_had(make: Any) -> None:
    policy = make_policy(make)
    collector, other = make_collector(), make_collector()
    collector.collect(policy)
    state = copy.deepcopy(collector.state_dict())
    assert other.load_state_dict(state) == []
    for _ in range(2):
        expected, found = collector.collect(policy), other.collect(policy)
        assert torch.equal(expected.segments[0].action["action"], found.segments[0].action["action"])
    state["noise"] = {}
    other = make_collector()
    other.load_state_dict(state)
    after = other.collect(policy).segments[0].action["action"]
    again = make_collector()
    again.collect(policy)
    assert not torch.equal(after, again.collect(policy).segments[0].action["action"])  # the noise matters


def make_data(engine: Any = None, n_shards: int = 1) -> RolloutDataModule:
    return RolloutDataModule(
        make_env, n_envs=2, n_rollout_steps=10, epoch_length=2, seed=1, engine=engine, n_shards=n_shards
    )


def make_ppo(make: Any = make_networks, capture: Any = "off", options: dict[str, Any] | None = None) -> PPO:
    pl.seed_everything(0, verbose=False)
    spec = Spec.of(make_env())
    return PPO(networks=make(options or GSDE), spec=spec, batch_size=10, lr=1e-2, capture=capture, entropy_coef=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("make", [make_networks, recurrent_networks])
@pytest.mark.parametrize("capture", ["auto", "off"])
def test_four_epochs_equal_two_and_two_more(make: Any, capture: Any, tmp_path: Path) -> None:
    whole, first, second = (make_ppo(make, capture) for _ in range(3))
    fit(whole, make_data(), 4)
    fit(make_ppo(make, capture), make_data(), 2).save_checkpoint(tmp_path / "half.ckpt")
    fit(first, make_data(), 4, tmp_path / "half.ckpt")
    assert torch.equal(weights(whole), weights(first))
    assert not torch.equal(weights(whole), weights(second))


@pytest.mark.slow
@pytest.mark.long
def test_workers_decide_nothing_about_the_result() -> None:
    found = []
    for engine in (InProcessEngine(), ProcessEngine(1), ProcessEngine(2)):
        module = make_ppo()
        fit(module, make_data(engine, n_shards=2), 2)
        found.append(weights(module))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("kind", ["state_dependent", "state_independent", "gsde"])
def test_traces_compute_what_autograd_does(kind: str) -> None:
    options = {"type": kind, "log_std_init": -0.5, "log_std_bounds": [-0.51, 0.5]}
    found = []
    for capture in ("auto", "off"):
        module = make_ppo(capture=capture, options=options)
        fit(module, make_data(), 1)
        assert module.capture_refusal is None
        found.append(weights(module))
        table = module.epoch_statistics["train"]
        assert ("ActorCriticEvents/policy_std/substep_0/action" in table) == (kind != "state_dependent")
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("options", [GSDE, {"type": "state_independent"}])
def test_a2c_and_sac_learn_with_them(options: dict[str, Any]) -> None:
    spec = Spec.of(make_env())
    a2c = A2C(networks=make_networks(options), spec=spec, grad_norms_by_part=True)
    before = weights(a2c)
    fit(a2c, make_data(), 1)
    assert not torch.equal(weights(a2c), before)
    assert a2c.epoch_statistics["train"]["ActorCriticEvents/policy_grad_norm/substep_0/log_std"] > 0
    networks = CustomModelComposer(
        ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[8])]),
        SharedStateActionCriticComposer([partial(FlattenConcatStateActionValueNet, hidden_units=[8])]),
        overrides(options, "SquashedGaussian"),
    )
    sac = SAC(networks=networks, spec=spec)
    data = ReplayDataModule(
        make_env, n_rollout_steps=8, num_batches_per_iter=4, batch_size=8, initial_buffer_size=20, epoch_length=3
    )
    explorations: Any = sac.policy.explorations
    start = explorations[0][0].log_std.detach().clone()
    fit(sac, data, 1)
    assert sac.capture_refusal is None
    assert not torch.equal(explorations[0][0].log_std.detach(), start)
    assert np.isfinite(sac.epoch_statistics["train"]["SACEvents/policy_std/substep_0/action"])

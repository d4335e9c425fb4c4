"""Training with environments in tensors: on the device of the policy, without waiting for it."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from gymnasium import spaces

from maze_pl.agents import TorchPolicy
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.datamodules import ActorDataModule, ReplayDataModule, RolloutDataModule
from maze_pl.envs import ArrayEnv, ArrayStep
from maze_pl.envs.arrays import TimeLimitArrayWrapper
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.tensors import CartPoleTensorEnv
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.modules import DQN, IMPALA, PPO
from maze_pl.perception import (
    ConcatModelBuilder,
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
    StepStateCriticComposer,
    TemplateModelComposer,
)
from maze_pl.perception.blocks import DenseBlock, RecurrentBlock
from tests.datamodules.trainers import make_trainer
from tests.envs.tensors.tensor_envs import ENVS


class NoWaiting(pl.Callback):
    """Makes every operation that waits for the device an error, from the second rollout of an epoch to its last."""

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, index: int) -> None:
        if trainer.is_last_batch:
            torch.cuda.set_sync_debug_mode("default")

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        torch.cuda.set_sync_debug_mode("default" if trainer.is_last_batch else "error")


def by_step() -> CustomModelComposer:
    """Networks with a step critic."""
    return CustomModelComposer(
        policy=ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[16])]),
        critic=StepStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[16])]),
    )


def data_and_module(name: str, algorithm: str) -> tuple[RolloutDataModule, Any]:
    options: dict[str, Any] = {"n_rollout_steps": 8, "epoch_length": 6, "evaluators": {}, "seed": 0}
    networks: Any = by_step() if algorithm.endswith("step critic") else None
    if algorithm.startswith("IMPALA"):
        actors = ActorDataModule(ENVS[name], num_actors=1, actors_batch_size=1, n_envs_per_actor=64, **options)
        return actors, IMPALA(spec=actors.spec, networks=networks, max_grad_norm=0.5)
    data = RolloutDataModule(ENVS[name], n_envs=64, **options)
    return data, PPO(spec=data.spec, networks=networks, batch_size=128, lr=1e-3, max_grad_norm=0.5)


ALGORITHMS = ["PPO", "PPO, step critic", "IMPALA", "IMPALA, step critic"]


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_actors_and_all_critics_learn_from_tensors(algorithm: str, tmp_path: Path) -> None:
    data, module = data_and_module("structured", algorithm)
    before = [parameter.detach().clone() for parameter in module.networks.parameters()]
    make_trainer(tmp_path, max_epochs=1).fit(module, data)
    assert module.capture_refusal is None
    assert module.env_steps == 6 * 64 * 8
    for parameter, former in zip(module.networks.parameters(), before, strict=True):
        assert not torch.equal(parameter, former)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.parametrize("algorithm", ["PPO", "IMPALA"])
def test_events_and_actions_are_logged(algorithm: str, tmp_path: Path) -> None:
    data, module = data_and_module("structured", algorithm)
    trainer = make_trainer(tmp_path, max_epochs=1)
    trainer.fit(module, data)
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    n_cuts = logged["train_CuttingEvents/valid_cut/mean_episode_total"]
    n_faults = logged["train_CuttingEvents/invalid_cut/mean_episode_total"]
    n_missing = logged["train_CuttingEvents/invalid_piece_selected/mean_episode_total"]
    assert n_cuts + n_faults + n_missing == pytest.approx(12)  # one of the three in each step of an episode
    assert logged["train_InventoryEvents/pieces_in_inventory/step_max"] <= 8
    assert 0 <= logged["train_DiscreteActionEvents/action/substep_1/cut_rotation"] <= 1


class Episodes(pl.Callback):
    """Notes the episodes that ended, and the first observations of training."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, int]] = []
        self.first: Any = None

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, index: int) -> None:
        self.ended += [(one.env_index, one.episode_index) for one in batch.summaries]
        if self.first is None:
            self.first = batch.segments[0].observation["observation"][0].clone()


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.parametrize("options", [{"n_envs": 6}, {"n_envs": 4, "n_shards": 2}])
def test_resuming_with_other_numbers_of_environments_plays_new_episodes(
    options: dict[str, Any], tmp_path: Path
) -> None:
    def fit(n_epochs: int, checkpoint: Path | None = None, **options: Any) -> tuple[Episodes, pl.Trainer]:
        data = RolloutDataModule(ENVS["flat"], n_rollout_steps=40, epoch_length=2, evaluators={}, seed=0, **options)
        module = PPO(spec=data.spec, batch_size=40)
        episodes = Episodes()
        trainer = make_trainer(tmp_path, max_epochs=n_epochs, callbacks=[episodes])
        trainer.fit(module, data, ckpt_path=checkpoint)
        return episodes, trainer

    first, trainer = fit(1, n_envs=4)
    checkpoint = tmp_path / "first.ckpt"
    trainer.save_checkpoint(checkpoint)
    second, _ = fit(2, checkpoint, **options)
    assert len(first.ended) > 4
    assert min(episode for _, episode in second.ended) > max(episode for _, episode in first.ended)
    assert not (second.first[:, None] == first.first).all(2).any(), "no start is played again"


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
def test_full_checks_step_tensors_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Outside(CartPoleTensorEnv):
        def observe(self, step_key: Any) -> dict[str, torch.Tensor]:
            return {"observation": self.state.float() + 100.0}

    def fit(check: Any, checkpoint: Path | None = None) -> pl.Trainer:
        data = RolloutDataModule(Outside, n_envs=4, n_rollout_steps=8, epoch_length=1, check=check, evaluators={})
        trainer = make_trainer(tmp_path, max_epochs=1 if checkpoint is None else 2)
        trainer.fit(PPO(spec=data.spec, batch_size=16), data, ckpt_path=checkpoint)
        return trainer

    with caplog.at_level(logging.INFO):
        fit("fast").save_checkpoint(tmp_path / "tensors.ckpt")
        assert "on the host" not in caplog.text
        with pytest.raises(ValueError, match=r"environments in tensors, which this run steps on the host; resume with"):
            fit("full", tmp_path / "tensors.ckpt")
        with pytest.raises(EnvContractError, match=r"of Outside is .*, which is not in Box"):
            fit("full")
    assert "Outside is stepped on the host: check=full compares their observations with the spaces there" in caplog.text


class Wide(CartPoleTensorEnv):
    """Poles with an observation of a type of integers.

    Args:
        dtype: The type.
    """

    def __init__(self, dtype: Any) -> None:
        super().__init__(20)
        self.dtype = np.dtype(dtype)

    @property
    def observation_spaces_dict(self) -> dict[Any, Any]:
        depth = spaces.Box(0, 60_000 if self.dtype.itemsize > 1 else 255, (2,), self.dtype.type)
        return {0: spaces.Dict({**super().observation_spaces_dict[0].spaces, "depth": depth})}

    def observe(self, step_key: Any) -> dict[str, torch.Tensor]:
        depth = torch.full((self.n_envs, 2), 200).to(torch.from_numpy(np.zeros(0, self.dtype)).dtype)
        return {**super().observe(step_key), "depth": depth}


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "uint8"])
def test_numbers_that_torch_cannot_write_by_index_are_stepped_on_the_host(
    dtype: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = RolloutDataModule(partial(Wide, dtype), n_envs=4, n_rollout_steps=8, epoch_length=1, evaluators={}, seed=0)
    module = PPO(spec=data.spec, batch_size=16)
    with caplog.at_level(logging.INFO):
        make_trainer(tmp_path, max_epochs=1).fit(module, data)
    assert module.env_steps == 32
    told = "Wide is stepped on the host: torch cannot write their numbers of type uint16, uint32 or uint64 by index"
    assert (told in caplog.text) == (dtype != "uint8")


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.parametrize("n_rollout_steps", [1, 2, 3])
def test_short_rollouts_are_recorded_on_a_device(
    n_rollout_steps: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = ReplayDataModule(
        ENVS["flat"],
        num_actors=4,
        n_rollout_steps=n_rollout_steps,
        batch_size=16,
        initial_buffer_size=64,
        epoch_length=4,
        evaluators={},
        seed=0,
    )
    module = DQN(spec=data.spec)
    make_trainer(tmp_path, max_epochs=1, accelerator="gpu", devices=1).fit(module, data)
    torch.cuda.synchronize()
    assert "without a graph" not in caplog.text
    assert bool(torch.isfinite(torch.nn.utils.parameters_to_vector(module.parameters())).all())


class CostlyLimitArrays(TimeLimitArrayWrapper):
    """Makes the end of the time costly."""

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        result.reward = np.where(result.truncated, -1000.0, result.reward)
        return result


class CostlyLimit(TimeLimitWrapper):
    """The same for single episodes."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, -1000.0 if truncated else reward, terminated, truncated, info

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        return CostlyLimitArrays(env, self.max_episode_steps)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
def test_time_limits_that_do_more_are_stepped_on_the_host(tmp_path: Path) -> None:
    least = []

    class Watching(pl.Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
            least.append(float(batch.rows.reward.min()))

    wrappers = [partial(CostlyLimit, max_episode_steps=6)]
    data = RolloutDataModule(CartPoleTensorEnv, wrappers, n_envs=4, n_rollout_steps=8, epoch_length=1, evaluators={})
    trainer = make_trainer(tmp_path, max_epochs=1, callbacks=[Watching()])
    trainer.fit(PPO(spec=data.spec, batch_size=16), data)
    assert least == [-1000.0]


def test_subprocesses_are_refused_as_for_arrays() -> None:
    data = RolloutDataModule(CartPoleTensorEnv, n_envs=2, vectorization="subprocess", evaluators={})
    with pytest.raises(
        ValueError, match=r"vectorization=subprocess has no use for an environment in tensors: leave it"
    ):
        data._tensor_vector()


class Steering(TorchPolicy):
    """A policy of a user."""

    def act(self, *arguments: Any, **options: Any) -> Any:
        return super().act(*arguments, **options)


def test_the_reason_for_the_host_is_that_of_the_policy() -> None:
    data = RolloutDataModule(CartPoleTensorEnv, n_envs=2, evaluators={})
    policy = PPO(spec=data.spec).policy
    assert data._why_on_host(policy) is None
    policy.__class__ = Steering
    assert data._why_on_host(policy) == "Steering overrides act, which distributions on a device would bypass"
    other = RandomPolicy({0: data.spec.steps[0].action_space})
    assert data._why_on_host(other) == "RandomPolicy chooses its actions there, as it has no attribute acts_on_device"
    recurrent = TemplateModelComposer(
        ConcatModelBuilder(
            {
                "feature": {"block_type": DenseBlock, "block_params": {"hidden_units": [8]}},
                "recurrence": {"block_type": RecurrentBlock, "block_params": {"hidden_size": 6}},
            },
            {"observation": "feature"},
        ),
        ProbabilisticPolicyComposer(),
        SharedStateCriticComposer(),
    )
    reason = data._why_on_host(PPO(spec=data.spec, networks=recurrent).policy)
    assert reason is not None
    assert reason.startswith("TorchPolicy chooses its actions there, like recurrent policies and those with gen")


@pytest.mark.cuda
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", ENVS)
def test_nothing_waits_for_the_device_between_rollouts(name: str, algorithm: str, tmp_path: Path) -> None:
    data, module = data_and_module(name, algorithm)
    trainer = make_trainer(tmp_path, max_epochs=2, accelerator="cuda", devices=1, callbacks=[NoWaiting()])
    try:
        trainer.fit(module, data)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert module.capture_refusal is None

"""The unit of the steps that a run counts, on the console: cloning counts acts, also of several sub-steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.callbacks import EpochTable, FinalEvaluation, RolloutProgressBar, RunRecord, RunSummary
from maze_pl.callbacks.best_checkpoint import BestCheckpoint
from maze_pl.core.spec import Spec
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator, TrajectoryDataModule
from maze_pl.datasets import InMemoryDataset
from maze_pl.modules import A2C, BC
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from maze_pl.runs.rollout import rollout
from maze_pl.runs.step_units import step_unit_of
from tests.structured import hierarchy

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")


def policy_net(obs_shapes: Any, action_logits_shapes: Any) -> FlattenConcatPolicyNet:
    return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, torch.nn.Tanh, [4])


def value_net(obs_shapes: Any) -> FlattenConcatStateValueNet:
    return FlattenConcatStateValueNet(obs_shapes, torch.nn.Tanh, [4])


def fit(folder: Path, module: pl.LightningModule, data: pl.LightningDataModule) -> None:
    trainer = pl.Trainer(
        default_root_dir=folder,
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        callbacks=[
            RolloutProgressBar(),
            EpochTable(),
            BestCheckpoint(dirpath=str(folder)),
            FinalEvaluation(),
            RunSummary("run"),
            RunRecord(str(folder), "model: {}\ndata: {}\n", ["fit"]),
        ],
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, datamodule=data)
    trainer.validate(module, datamodule=data)


def test_cloning_structured_decisions_counts_acts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played = [one.spaces for one in rollout(hierarchy.make_env, "random", 4)]
    records = [record for record in played if record is not None]
    n_acts = sum(len(record) for record in records)
    assert n_acts > sum(record.last_env_time for record in records)
    spec = Spec.of(hierarchy.make_env())
    networks = CustomModelComposer(ProbabilisticPolicyComposer([policy_net] * len(spec.step_keys)))
    data = TrajectoryDataModule(
        InMemoryDataset(records),
        hierarchy.make_env,
        validation_percentage=0,
        evaluators={"eval": RolloutEvaluator(n_episodes=1)},
        seed=1,
    )
    fit(tmp_path, BC(networks=networks, spec=spec), data)
    output = "".join(capsys.readouterr())
    assert f"epoch 1 | {n_acts:,} acts | " in output and f"epoch 2 | {2 * n_acts:,} acts | " in output
    assert f"\n{2 * n_acts:,} acts in " in output and " acts/s)\n" in output
    assert f"evaluation | {2 * n_acts:,} acts of training" in output
    assert f" after {2 * n_acts:,} acts\n" in output and "acts (best.ckpt)\n" in output
    assert f"acts={2 * n_acts:,}" in output and "acts/s=" in output
    assert "env steps" not in output
    assert step_unit_of(tmp_path) == "acts"


def test_other_algorithms_count_env_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = Spec.of(hierarchy.make_env())
    networks = CustomModelComposer(
        ProbabilisticPolicyComposer([policy_net] * len(spec.step_keys)), SharedStateCriticComposer([value_net])
    )
    evaluators = {"eval": RolloutEvaluator(n_episodes=1)}
    data = RolloutDataModule(
        hierarchy.make_env, n_envs=2, n_rollout_steps=5, epoch_length=1, evaluators=evaluators, seed=1
    )
    fit(tmp_path, A2C(networks=networks, spec=spec), data)
    output = "".join(capsys.readouterr())
    assert "epoch 1 | 10 env steps | " in output and "\n20 env steps in " in output and " env steps/s)\n" in output
    assert " after 20 env steps\n" in output and "env steps=20" in output

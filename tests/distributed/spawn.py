"""Trains in spawned processes. usage: spawn.py python|configuration|networks_too_late in the folder to write to

The first two compare, after training, what the main process has with what was trained, and write `result.json`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from maze_pl.cli.fit import MazeCLI
from maze_pl.config.assembling import prepare
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import A2C
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from maze_pl.system.signals import StopSignals
from tests.distributed.rank_report import RankReport, weights


def from_python(folder: Path) -> dict[str, Any]:
    """All factories are lambdas, which a process that is spawned could not import."""
    data = make_data()
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([lambda **shapes: FlattenConcatPolicyNet(**shapes, hidden_units=[8])]),
        critic=SharedStateCriticComposer([lambda **shapes: FlattenConcatStateValueNet(**shapes, hidden_units=[8])]),
    )
    module = A2C(networks=networks, spec=data.spec)
    before = weights(module)
    trainer = fit(module, data, folder)
    trained = torch.load(folder / "rank0.pt", weights_only=True)["state_dict"]
    more = {"return": float(trainer.callback_metrics["eval/return"]), "env_steps": module.env_steps}
    return compared(before, weights(module), trained) | more


def networks_too_late(folder: Path) -> None:
    """Without a spec, the networks would be built in the spawned processes."""
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[8])]),
        critic=SharedStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[8])]),
    )
    fit(A2C(networks=networks), make_data(), folder)


def make_data() -> RolloutDataModule:
    return RolloutDataModule(
        lambda: GymMazeEnv("CartPole-v1"),
        n_envs=2,
        n_rollout_steps=20,
        epoch_length=2,
        evaluators={"eval": RolloutEvaluator(n_episodes=2)},
    )


def fit(module: A2C, data: RolloutDataModule, folder: Path) -> pl.Trainer:
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=2,
        strategy="ddp_spawn",
        logger=False,
        callbacks=[RankReport(str(folder))],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, data)
    return trainer


def from_configuration(folder: Path) -> dict[str, Any]:
    report = f'{{"class_path": "tests.distributed.rank_report.RankReport", "init_args": {{"folder": "{folder}"}}}}'
    options = ["--config", "ppo_cartpole", "--run_dir", "here", f"--trainer.callbacks+={report}"]
    options += ["--trainer.strategy", "ddp_spawn", "--trainer.devices", "2", "--trainer.max_epochs", "2"]
    options += ["--data.n_envs", "2", "--data.n_rollout_steps", "50", "--data.epoch_length", "2"]
    options += ["--stop_at_return.threshold", "5"]
    cli = MazeCLI(prepare(["fit", *options]), ["fit", *options], StopSignals(), contextlib.ExitStack())
    before = torch.load(folder / "rank0.pt", weights_only=True)["before"]
    checkpoint = torch.load("here/checkpoints/last.ckpt", weights_only=True)
    return compared(before, weights(cli.model), checkpoint["state_dict"]) | {"status": cli.status}


def compared(before: dict[str, Any], after: dict[str, Any], trained: dict[str, Any]) -> dict[str, Any]:
    return {
        "n_weights": len(after),
        "changed": [name for name in before if not torch.equal(before[name], after[name])],
        "as_trained": [name for name in trained if torch.equal(trained[name], after[name])],
    }


def main() -> None:
    folder = Path.cwd()
    if sys.argv[1] == "networks_too_late":
        return networks_too_late(folder)
    result = from_python(folder) if sys.argv[1] == "python" else from_configuration(folder)
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":  # a process that is spawned imports this file again
    main()

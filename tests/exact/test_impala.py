"""IMPALA in one process ends exactly where it would have ended, had it not been interrupted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.collect.engines import Engine, ProcessEngine
from maze_pl.datamodules import ActorDataModule, RolloutEvaluator
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, ReturnNormalizationRewardWrapper
from maze_pl.modules import IMPALA
from tests.exact.comparison import differences, without_times
from tests.exact.worker import SaveTwice
from tests.learning.training import networks
from tests.structured import hierarchy

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")

KEPT = ("state_dict", "optimizer_states", "ActorDataModule", "global_step", "epoch", "maze_pl")
CASES: dict[str, tuple[Any, Any]] = {
    "cartpole": (partial(make_gym_maze_env, "CartPole-v1"), "shared"),
    "hierarchy": (hierarchy.make_env, "step"),
}


def train(
    folder: Path, name: str, how: str, checkpoint: Path | None = None, n_epochs: int = 6, engine: Engine | None = None
) -> dict[str, Any]:
    pl.seed_everything(7, verbose=False)
    env, critic = CASES[name]
    data = ActorDataModule(
        env,
        wrappers=[ObservationNormalizationWrapper, partial(ReturnNormalizationRewardWrapper, gamma=0.95)],
        num_actors=3,
        actors_batch_size=4,  # so that it is not always the same one's turn
        n_rollout_steps=11,  # does not line up with episodes
        epoch_length=2,
        evaluators={"eval": RolloutEvaluator(n_episodes=2, deterministic=False)},
        seed=7,
        n_normalization_samples=50,
        engine=engine,
    )
    module = IMPALA(networks=networks(critic, (8,)), spec=data.spec, gamma=0.95, lr_schedule="linear", lr=1e-2)
    trainer = pl.Trainer(
        max_epochs=n_epochs,
        accelerator="cpu",
        devices=1,
        callbacks=[SaveTwice(folder, name)] if checkpoint is None else [],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True if checkpoint else None)
    trainer.save_checkpoint(folder / f"{name}-{how}.ckpt")
    saved = torch.load(folder / f"{name}-{how}.ckpt", weights_only=True)
    return dict(without_times({key: saved[key] for key in KEPT}))


@pytest.mark.parametrize("name", ["cartpole", pytest.param("hierarchy", marks=pytest.mark.slow)])
def test_six_epochs_equal_three_and_three_more(name: str, tmp_path: Path) -> None:
    whole = train(tmp_path, name, "whole")
    assert whole["epoch"] == 6 and whole["global_step"] == 12 and whole["maze_pl"]["env_steps"] == 12 * 4 * 11
    if name == "cartpole":
        assert differences(whole, train(tmp_path, name, "again")) == []
    for point in ("epoch", "validation"):
        kept = tmp_path / f"{name}-kept-{point}.ckpt"
        assert differences(torch.load(kept, weights_only=True)["state_dict"], whole["state_dict"]) != []
        assert differences(whole, train(tmp_path, name, f"from-{point}", kept)) == [], point


@pytest.mark.slow
def test_with_workers_a_run_can_be_resumed_and_counts_all_steps(tmp_path: Path) -> None:
    train(tmp_path, "cartpole", "first", n_epochs=3, engine=ProcessEngine(2))
    resumed = train(tmp_path, "cartpole", "then", tmp_path / "cartpole-first.ckpt", 5, ProcessEngine(2))
    assert resumed["maze_pl"]["env_steps"] == 5 * 2 * 4 * 11
    shared = resumed["ActorDataModule"]["shared"]
    (counts,) = [state["base"][0] for name, state in shared.items() if "Return" in name]
    assert counts == 1 + 5 * 2 * 4 * 11  # what was collected ahead of a checkpoint and not learned from does not count


@pytest.mark.slow
def test_best_and_last_are_written_by_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import maze_pl
    from maze_pl.__main__ import main

    monkeypatch.chdir(tmp_path)
    small = ["--trainer.max_epochs", "2", "--data.epoch_length", "2", "--data.evaluators.eval.n_episodes", "2"]
    command = ["fit", "--config", "impala_cartpole", "--model", "algorithm/impala", *small, "--run_dir", "run"]
    assert main([*command, "--data", "runner/local", "--data.engine.n_workers", "2"]) == 0
    for name in ("best", "last"):
        path = tmp_path / "run" / "checkpoints" / f"{name}.ckpt"
        assert torch.load(path, weights_only=True)["global_step"] > 0
        assert isinstance(maze_pl.load(path), IMPALA)
    assert main(["fit", "--resume", "run", "--trainer.max_epochs", "3"]) == 0
    header = (tmp_path / "run" / "metrics.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    for name in ("lag", "lag_max", "queue_fill", "rho/substep_0", "open_acts/substep_0", "policy_loss/substep_0"):
        assert f"train_ImpalaEvents/{name}" in header

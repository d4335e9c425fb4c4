"""Cloning that was interrupted ends exactly where cloning that was not interrupted ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.core.checkpoint_content import add_to_checkpoint
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator, TrajectoryDataModule
from maze_pl.datasets import InMemoryDataset
from maze_pl.envs import make_gym_maze_env
from maze_pl.modules import BC, PPO
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.rollout import rollout
from maze_pl.runs.warm_start import warm_start
from tests.exact.comparison import differences, without_times

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")

KEPT = ("state_dict", "optimizer_states", "TrajectoryDataModule", "global_step", "epoch", "maze_pl")


def make_env() -> Any:
    return make_gym_maze_env("CartPole-v1")


@pytest.fixture(scope="module")
def episodes() -> list[SpacesTrajectoryRecord]:
    played = rollout(make_env, "heuristic", 10, max_steps=40)
    return [one.spaces for one in played if one.spaces is not None]


def networks(critic: bool = False) -> CustomModelComposer:
    def policy_net(obs_shapes: Any, action_logits_shapes: Any) -> Any:
        return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, torch.nn.Tanh, [8])

    def value_net(obs_shapes: Any) -> Any:
        return FlattenConcatStateValueNet(obs_shapes, torch.nn.Tanh, [8])

    critics = SharedStateCriticComposer([value_net]) if critic else None
    return CustomModelComposer(ProbabilisticPolicyComposer([policy_net]), critics)


class Save(pl.Callback):
    """Keeps a checkpoint of the end of the third epoch, and one of within the fourth."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.current_epoch == 2:
            trainer.save_checkpoint(self.folder / "epoch.ckpt")

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.current_epoch == 3 and trainer.fit_loop.batch_idx == 1:
            trainer.save_checkpoint(self.folder / "batch.ckpt")


def train(
    episodes: list[SpacesTrajectoryRecord], path: Path, checkpoint: Path | None = None, n_epochs: int = 6
) -> dict[str, Any]:
    pl.seed_everything(5, verbose=False)
    evaluators = {"eval": RolloutEvaluator(n_episodes=2, deterministic=False)}
    data = TrajectoryDataModule(InMemoryDataset(list(episodes)), make_env, batch_size=64, evaluators=evaluators, seed=5)
    module = BC(networks=networks(), spec=data.spec, lr=1e-2, lr_schedule="linear")
    trainer = pl.Trainer(
        max_epochs=n_epochs,
        accelerator="cpu",
        devices=1,
        callbacks=[] if checkpoint else [Save(path.parent)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True if checkpoint else None)
    trainer.save_checkpoint(path)
    saved = torch.load(path, weights_only=True)
    return dict(without_times({key: saved[key] for key in KEPT}))


def test_six_epochs_equal_three_and_three_more(episodes: list[SpacesTrajectoryRecord], tmp_path: Path) -> None:
    whole = train(episodes, tmp_path / "whole.ckpt")
    assert whole["epoch"] == 6
    assert whole["global_step"] == 6 * 5
    assert whole["maze_pl"]["env_steps"] == 6 * 8 * 40
    assert differences(whole, train(episodes, tmp_path / "again.ckpt")) == []
    for name in ("epoch", "batch"):
        kept = torch.load(tmp_path / f"{name}.ckpt", weights_only=True)
        assert differences(kept["state_dict"], whole["state_dict"]) != []
        resumed = train(episodes, tmp_path / f"from_{name}.ckpt", tmp_path / f"{name}.ckpt")
        assert differences(whole, resumed) == [], name


def test_ppo_begins_with_the_policy_of_the_clone(
    episodes: list[SpacesTrajectoryRecord], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(episodes, tmp_path / "clone.ckpt", n_epochs=1)
    clone = torch.load(tmp_path / "clone.ckpt", weights_only=True)
    add_to_checkpoint(clone, config={"model": {}, "data": {"class_path": "maze_pl.datamodules.TrajectoryDataModule"}})
    torch.save(clone, tmp_path / "clone.ckpt")
    data = RolloutDataModule(make_env, n_envs=2)
    module = PPO(networks=networks(critic=True), spec=data.spec)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    warm_start(tmp_path / "clone.ckpt", module, data)
    for name, value in module.state_dict().items():
        if name.startswith("actor_critic."):
            wanted = before[name] if name.startswith("actor_critic.critic.") else clone["state_dict"][name]
            assert torch.equal(value, wanted), name

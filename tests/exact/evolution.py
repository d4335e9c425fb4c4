"""Trains by evolution strategies, in one process or as one of several ranks, and keeps a checkpoint of the end.

usage: evolution.py FOLDER NAME [ENVIRONMENT...]
"""

from __future__ import annotations

import logging
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import distributed

from maze_pl.callbacks import BestCheckpoint, LastCheckpoint
from maze_pl.datamodules import PopulationDataModule, RolloutEvaluator
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, ReturnNormalizationRewardWrapper
from maze_pl.modules import ES
from maze_pl.perception import CustomModelComposer, FlattenConcatPolicyNet, ProbabilisticPolicyComposer
from tests.exact.comparison import without_times
from tests.exact.worker import MEMORIES, check_ranks, networks_that_remember
from tests.structured import team

ENVIRONMENTS: dict[str, Any] = {
    "cartpole": partial(make_gym_maze_env, "CartPole-v1", max_episode_steps=30),
    "team_memory": team.make_env,
}
KEPT = ("state_dict", "optimizer_states", "PopulationDataModule", "global_step", "epoch", "maze_pl")


class Save(pl.Callback):
    """Keeps a checkpoint of the end of the third epoch, and one of within the fourth."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.current_epoch == 2:
            trainer.save_checkpoint(self.folder / "epoch.ckpt")

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.current_epoch == 3 and trainer.fit_loop.batch_idx == 0:
            trainer.save_checkpoint(self.folder / "batch.ckpt")


def train(
    folder: Path, name: str, env: str = "cartpole", checkpoint: Path | None = None, max_epochs: int = 2, **options: Any
) -> dict[str, Any]:
    """What of the last checkpoint must be equal."""
    pl.seed_everything(7, verbose=False)
    data = PopulationDataModule(
        ENVIRONMENTS[env],
        wrappers=[ObservationNormalizationWrapper, partial(ReturnNormalizationRewardWrapper, gamma=0.95)],
        n_rollouts_per_update=4,
        n_timesteps_per_update=70,
        epoch_length=2,
        shared_noise_table_size=20_000,
        evaluators={"eval": RolloutEvaluator(n_episodes=3, deterministic=False)},
        n_normalization_samples=100,
        **options,
    )
    net = partial(FlattenConcatPolicyNet, non_lin=torch.nn.Tanh, hidden_units=[8])
    networks: Any = CustomModelComposer(ProbabilisticPolicyComposer([net]))
    if "memory" in env:
        networks = networks_that_remember(data.spec, *MEMORIES["memory"])
    module = ES(networks=networks, spec=data.spec, noise_stddev=0.1, lr=0.05)
    is_rank = distributed.is_torchelastic_launched()
    kept = [BestCheckpoint(), LastCheckpoint()] if name == "kept" else []
    trainer = pl.Trainer(
        default_root_dir=folder,
        max_epochs=max_epochs,
        accelerator="cpu",
        devices=2 if is_rank else 1,
        strategy="ddp_find_unused_parameters_true" if is_rank else "auto",
        use_distributed_sampler=False,
        logger=False,
        callbacks=[*kept, Save(folder)] if max_epochs == 6 and checkpoint is None else kept,
        enable_checkpointing=bool(kept),
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True if checkpoint else None)
    check_ranks(module, trainer)
    trainer.save_checkpoint(folder / f"{name}.ckpt")
    saved = torch.load(folder / f"{name}.ckpt", weights_only=True)
    return dict(without_times({key: saved[key] for key in KEPT}))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    for one in sys.argv[3:] or ["cartpole"]:
        train(Path(sys.argv[1]), f"{one}-{sys.argv[2]}", one)

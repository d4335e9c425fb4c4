"""Training with environments in tensors: on the device of the policy, without waiting for it."""

from __future__ import annotations

from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.datamodules import RolloutDataModule
from maze_pl.modules import PPO
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


@pytest.mark.cuda
@pytest.mark.parametrize("name", ENVS)
def test_nothing_waits_for_the_device_between_rollouts(name: str) -> None:
    data = RolloutDataModule(ENVS[name], n_envs=64, n_rollout_steps=8, epoch_length=6, evaluators={}, seed=0)
    module = PPO(spec=data.spec, batch_size=128, lr=1e-3, max_grad_norm=0.5)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cuda",
        devices=1,
        logger=False,
        callbacks=[NoWaiting()],
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    try:
        trainer.fit(module, data)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert module.capture_refusal is None

"""A callback for runs in which nothing may wait for the device between rollouts."""

from __future__ import annotations

from typing import Any, ClassVar

import pytorch_lightning as pl
import torch

from maze_pl.core.batches import Rollout
from maze_pl.modules import PPO
from tests.devices import NoHostReads


class LoggingPPO(PPO):
    """Logs a mean over the batches of an epoch, as any `LightningModule` may."""

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        """Learn, and log the mean reward."""
        super().training_step(rollout, batch_idx)
        self.log("mean_reward", rollout.rows.reward.mean(), on_step=False, on_epoch=True)
        self.log_dict({"mean_length": rollout.rows.env_steps.double().mean()}, on_step=False, on_epoch=True)


class NoWaiting(pl.Callback):
    """Makes operations that wait for the device errors, from the end of the first batch of an epoch to its last one.

    On a CPU, `NoHostReads` stands for the mode of CUDA.

    Attributes:
        n_batches: Numbers of batches of all runs that ended in this mode.
        mode: The mode of a CPU, if it is active.
    """

    n_batches: ClassVar[list[int]] = []
    mode: ClassVar[NoHostReads | None] = None

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, index: int) -> None:
        if trainer.is_last_batch:
            self.stop()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        NoWaiting.n_batches.append(index)
        if trainer.is_last_batch:
            return
        if pl_module.device.type == "cuda":
            torch.cuda.set_sync_debug_mode("error")
        elif NoWaiting.mode is None:
            NoWaiting.mode = NoHostReads()
            NoWaiting.mode.__enter__()

    @staticmethod
    def stop() -> None:
        """Allow everything again."""
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("default")
        if NoWaiting.mode is not None:
            NoWaiting.mode.__exit__(None, None, None)
            NoWaiting.mode = None

"""Training in which rank 0 fails alone, and writes a checkpoint. usage: fails_alone.py FOLDER"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from maze_pl.system.ranks import sum_over_ranks
from tests.datamodules.replay_learner import Learner, make_data


class FailsAlone(Learner):
    """Fails in its third update on rank 0, while the other rank waits for it."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        if self.global_rank == 0 and len(self.batches) == 2:
            raise OSError("the machine is on fire")
        super().training_step(batch, batch_idx)
        sum_over_ranks(torch.ones(1))


class SavesAlone(pl.Callback):
    """Writes a checkpoint as `Trainer.save_checkpoint`, which would then wait for all ranks, and ends the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_exception(self, trainer: pl.Trainer, *_: Any) -> None:
        checkpoint = trainer._checkpoint_connector.dump_checkpoint(False)
        trainer.strategy.save_checkpoint(checkpoint, self.folder / "alone.ckpt")
        os._exit(3)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[SavesAlone(folder)],
        default_root_dir=folder,
        num_sanity_val_steps=0,
    )
    trainer.fit(FailsAlone(), make_data(save_buffer=True))

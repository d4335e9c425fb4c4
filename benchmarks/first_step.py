"""A callback that reports the end of the first training step, to measure the start-up time of a command."""

from __future__ import annotations

import time
from typing import Any

import pytorch_lightning as pl


class FirstStep(pl.Callback):
    """Prints the time of the first training step, and ends the run."""

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        print(f"first training step at {time.time()}", flush=True)
        trainer.should_stop = True

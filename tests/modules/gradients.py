"""A callback that keeps gradients."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl


class Gradients(pl.Callback):
    """Keeps the gradient of each parameter, and how many numbers the optimiser changes."""

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *arguments: Any) -> None:
        self.of = {id(parameter): parameter.grad.clone() for parameter in pl_module.networks.parameters()}
        self.size = trainer.optimizers[0].gradient.numel()  # type: ignore[attr-defined]

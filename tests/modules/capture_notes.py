"""A callback that notes whether the updates of a run were traced."""

from __future__ import annotations

from typing import ClassVar

import pytorch_lightning as pl


class CaptureNotes(pl.Callback):
    """Notes of each run its device, the reason why losses are not traced, and the number of traces."""

    runs: ClassVar[list[tuple[str, str | None, int]]] = []

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        CaptureNotes.runs.append((pl_module.device.type, pl_module.capture_refusal, pl_module.n_traces))  # type: ignore[arg-type]

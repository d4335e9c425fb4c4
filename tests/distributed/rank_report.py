"""Callback that writes the state of each rank at the end of training to a file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch


class RankReport(pl.Callback):
    """Writes `rank<number>.pt`: parameters, statistics, what was seen and who acted.

    Args:
        folder: The folder to write to.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.seen: list[str] = []  # of each rollout, a digest of its observations
        self.acted: dict[str, int] = {}  # by step key, acts

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        digest = hashlib.sha256()
        for step_key, segment in batch.segments.items():
            active = segment.active
            self.acted[str(step_key)] = self.acted.get(str(step_key), 0) + int(active.sum())
            for observation in segment.observation.values():
                digest.update(observation[active].cpu().numpy().tobytes())
        self.seen.append(digest.hexdigest())

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.before = weights(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.write(trainer, pl_module, optimizer=trainer.optimizers[0].state_dict(), before=self.before)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.state.fn == "validate":
            self.write(trainer, pl_module)

    def write(self, trainer: pl.Trainer, pl_module: Any, **rest: Any) -> None:
        statistics = {
            f"{source}/{name}": value if isinstance(value, int | float) else str(value)
            for source, table in pl_module.epoch_statistics.items()
            for name, value in table.items()
        }
        report = {
            "state_dict": weights(pl_module),
            "statistics": statistics,
            "env_steps": pl_module.env_steps,
            "global_step": trainer.global_step,
            "callback_metrics": dict(trainer.callback_metrics),
            "seen": self.seen,
            "acted": self.acted,
            **rest,
        }
        torch.save(report, Path(self.folder, f"rank{trainer.global_rank}.pt"))


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A copy of a module's state."""
    return {name: value.clone() for name, value in module.state_dict().items()}


def reports(folder: Path, n_ranks: int = 2) -> list[dict[str, Any]]:
    """The reports of all ranks."""
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(n_ranks)]

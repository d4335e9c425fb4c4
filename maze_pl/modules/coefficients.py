"""Options of an algorithm that may follow schedules: their values in the current batch.

The value of a scheduled option is a tensor of the module that is changed in place, so that traced
losses read it like any other tensor, and are not traced again when it changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from maze_pl.schedules import Coefficient, described, run_progress, value_at
from maze_pl.schedules.coefficient import Check

if TYPE_CHECKING:
    import pytorch_lightning as pl


class _Scheduled(NamedTuple):
    """An option that follows a schedule, and the check of its values."""

    schedule: Coefficient
    check: Check | None


class Coefficients:
    """Options of an algorithm that follow schedules.

    Args:
        module: The algorithm; each option is a buffer of the same name, which checkpoints omit.
    """

    def __init__(self, module: pl.LightningModule) -> None:
        self._module = module
        self._scheduled: dict[str, _Scheduled] = {}
        self._values: dict[str, float] = {}

    @property
    def names(self) -> list[str]:
        """Names of the options that follow a schedule."""
        return list(self._scheduled)

    @property
    def values(self) -> dict[str, float]:
        """Current values by name; those of the beginning of the run before it starts."""
        return dict(self._values)

    def add(self, name: str, coefficient: Coefficient, check: Check | None) -> float | Tensor:
        """Add an option; see `AlgorithmModule.coefficient`."""
        first = value_at(name, coefficient, 0.0, check)
        if not callable(coefficient):
            return first
        for progress in (0.25, 0.5, 0.75, 1.0):  # finds most values out of range before training
            value_at(name, coefficient, progress, check)
        self._scheduled[name] = _Scheduled(coefficient, check)
        self._module.hparams[name] = described(coefficient)  # a text, which no constructor accepts
        self._values[name] = first
        return nn.Buffer(torch.tensor(first, dtype=torch.get_default_dtype()), persistent=False)

    def follow(self, trainer: pl.Trainer) -> None:
        """Set all options to their values for the batch that is next, or in progress.

        Args:
            trainer: Trainer of the run.

        Raises:
            ValueError: A value is out of range.
        """
        if not self._scheduled:
            return
        progress = run_progress(trainer)
        for name, (schedule, check) in self._scheduled.items():
            self._values[name] = value_at(name, schedule, progress, check)
            self._module.get_buffer(name).fill_(self._values[name])

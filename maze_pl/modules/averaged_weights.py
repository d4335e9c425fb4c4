"""Averages of weights by callbacks of Lightning, in which only numbers that have a mean are averaged."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_swa_avg_fn

from maze_pl.modules.optimization.batch_statistics import average_batch_statistics

_Mean = Callable[[Tensor, Tensor, Tensor | int], Tensor]


class ExactAverage(AveragedModel):
    """An average of weights with the integers and the constants of the current module.

    torch truncates the mean of integers, so that of a category 3 and the same 3 may become 2. The mean
    of buffers that checkpoints omit, such as bounds and scheduled options, would be rounded, and a
    module that loads the average would not have it. Weights, and running statistics in floating point
    numbers, are averaged.

    Args:
        average: The average that it replaces, before its first update.
    """

    def __init__(self, average: AveragedModel) -> None:
        nn.Module.__init__(self)  # that of the class would copy the module again
        self.module = average.module
        self.register_buffer("n_averaged", average.n_averaged)
        self.multi_avg_fn = average.multi_avg_fn
        mean: _Mean = average.avg_fn or get_swa_avg_fn()  # type: ignore[no-untyped-call]
        self.avg_fn = None if average.multi_avg_fn else partial(_mean_of, mean)
        self.use_buffers = average.use_buffers
        self._copied = _unlearned(self.module)

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Update the average; a collective call.

        Args:
            model: The current module.
        """
        average_batch_statistics(model)  # as the algorithm does after its callbacks
        super().update_parameters(model)
        for name in self._copied:
            self.module.get_buffer(name).copy_(model.get_buffer(name))


def average_exactly(trainer: pl.Trainer) -> None:
    """Let callbacks of a trainer average only what has a mean, in the precision of the trainer.

    In a precision of 64 bits, weights that take turns with an average of 32 bits would be rounded.

    Args:
        trainer: Trainer whose callbacks have been set up for training.
    """
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, WeightAveraging) and type(callback._average_model) is AveragedModel:
            callback._average_model = ExactAverage(callback._average_model)
            if trainer.precision == "64-true":
                callback._average_model.double()


def _mean_of(mean: _Mean, averaged: Tensor, current: Tensor, n_averaged: Tensor | int) -> Tensor:
    """Return the new average of a tensor; the current one if it holds integers or booleans."""
    return mean(averaged, current, n_averaged) if averaged.is_floating_point() else current


def _unlearned(module: nn.Module) -> list[str]:
    """Return the names of buffers that hold integers or booleans, or that checkpoints omit."""
    learned = module.state_dict().keys()
    return [name for name, one in module.named_buffers() if name not in learned or not one.is_floating_point()]

"""Averages of weights, which callbacks of Lightning evaluate and save in place of the current weights."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim.swa_utils import AveragedModel, get_swa_avg_fn

from maze_pl.modules.optimization.batch_statistics import average_batch_statistics

_Mean = Callable[[Tensor, Tensor, Tensor | int], Tensor]
_Update = Callable[[list[Tensor], list[Tensor], Tensor | int], None]


class ExactAverage(AveragedModel):
    """An average of parameters and running statistics, with the other buffers of the current module.

    Other buffers are copied. torch truncates the mean of integers, so that the mean of a category 3
    and the same 3 may be 2; bounds would be rounded, and options that follow a schedule, such as
    the scale of exploration, would lag behind.

    Args:
        average: The average that it replaces, before its first update.
    """

    def __init__(self, average: AveragedModel) -> None:
        nn.Module.__init__(self)  # that of the class would copy the module again
        self.module = average.module
        self.register_buffer("n_averaged", average.n_averaged)
        mean: _Mean = average.avg_fn or get_swa_avg_fn()  # type: ignore[no-untyped-call]
        self._update: _Update = average.multi_avg_fn or partial(_average_each, mean)
        self._averaged = _averaged_names(self.module, with_statistics=average.use_buffers)
        self._current: dict[str, Tensor] = {}  # of a module that has the average now

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Update the average; a collective call.

        Args:
            model: The current module.
        """
        average_batch_statistics(model)  # as the algorithm does after its callbacks
        tensors, current = _tensors(self.module), _tensors(model)
        is_first = bool(self.n_averaged == 0)
        copied = tensors.keys() if is_first else tensors.keys() - self._averaged
        for name in copied:
            tensors[name].copy_(current[name])
        if not is_first:
            averaged = [tensors[name] for name in self._averaged]
            latest = [current[name].to(tensors[name]) for name in self._averaged]
            self._update(averaged, latest, self.n_averaged)
        self.n_averaged += 1

    @torch.no_grad()
    def exchange(self, module: nn.Module) -> None:
        """Give a module the average in place of its current weights, or give these back.

        The average itself stays as it is. Lightning's exchange would round it to the precision of
        the module.

        Args:
            module: The current module.
        """
        tensors = _tensors(module)
        if self._current:
            _copy(self._current, tensors)
            self._current = {}
        else:
            self._current = {name: tensor.clone() for name, tensor in tensors.items()}
            _copy(_tensors(self.module), tensors)

    def undo_exchange(self, module: nn.Module) -> None:
        """Give a module its current weights back, if it has the average.

        Args:
            module: The current module.
        """
        if self._current:
            self.exchange(module)


def average_exactly(trainer: pl.Trainer) -> None:
    """Let callbacks of a trainer average by `ExactAverage`, in the precision of the trainer.

    In a precision of 64 bits, an average of 32 bits would be rounded.

    Args:
        trainer: Trainer whose callbacks have been set up for training.
    """
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, WeightAveraging) and type(callback._average_model) is AveragedModel:
            average = ExactAverage(callback._average_model)
            if trainer.precision == "64-true":
                average.double()
            vars(callback).update(
                _average_model=average,
                _swap_models=average.exchange,
                on_exception=partial(_after_failure, callback, average),
            )


def _after_failure(
    callback: WeightAveraging,
    average: ExactAverage,
    trainer: pl.Trainer,
    module: pl.LightningModule,
    exception: BaseException,
) -> None:
    """Give a module its current weights if an evaluation failed, before a checkpoint is saved."""
    average.undo_exchange(module)
    type(callback).on_exception(callback, trainer, module, exception)


def _average_each(mean: _Mean, averaged: list[Tensor], current: list[Tensor], n_averaged: Tensor | int) -> None:
    """Update averages one by one."""
    for tensor, latest in zip(averaged, current, strict=True):
        tensor.copy_(mean(tensor, latest, n_averaged))


def _averaged_names(module: nn.Module, *, with_statistics: bool) -> list[str]:
    """Return the names of parameters, and of the running statistics of layers if wanted."""
    tensors: dict[str, Tensor] = dict(module.named_parameters())
    for prefix, part in module.named_modules():
        if with_statistics and isinstance(part, _NormBase):
            tensors.update(part.named_buffers(prefix, recurse=False))
    return [name for name, tensor in tensors.items() if tensor.is_floating_point()]


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module by their names."""
    return dict(chain(module.named_parameters(), module.named_buffers()))


def _copy(values: dict[str, Tensor], tensors: dict[str, Tensor]) -> None:
    """Copy values to the tensors of the same names."""
    for name, value in values.items():
        tensors[name].copy_(value)

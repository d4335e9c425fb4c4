"""Averages of weights, which callbacks of Lightning evaluate and save in place of the current weights."""

from collections.abc import Callable
from copy import deepcopy
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

    Other buffers are those of the current module at all times. torch truncates the mean of
    integers, so that the mean of a category 3 and the same 3 may be 2; bounds would be rounded, and
    options that follow a schedule, such as the scale of exploration, would lag behind.

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

    @property
    def is_exchanged(self) -> bool:
        """True while a module has the average in place of its current weights."""
        return bool(self._current)

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Update the average; a collective call.

        Args:
            model: The current module.
        """
        average_batch_statistics(model)  # as the algorithm does after its callbacks
        self.follow(model)
        tensors, current = self._averaged_tensors(self.module), self._averaged_tensors(model)
        if self.n_averaged == 0:
            _copy(current, tensors)
        else:
            latest = [current[name].to(tensor) for name, tensor in tensors.items()]
            self._update(list(tensors.values()), latest, self.n_averaged)
        self.n_averaged += 1

    @torch.no_grad()
    def follow(self, module: nn.Module) -> None:
        """Copy the buffers that are not averaged.

        Args:
            module: The current module.
        """
        tensors = _tensors(self.module)
        for name, tensor in _tensors(module).items():
            if name not in self._averaged:
                tensors[name].copy_(tensor)

    @torch.no_grad()
    def replace(self, module: nn.Module) -> None:
        """Give a module the average in place of its current weights.

        Args:
            module: The current module.
        """
        _copy(self._averaged_tensors(self.module), self._averaged_tensors(module))

    @torch.no_grad()
    def exchange(self, module: nn.Module) -> None:
        """Give a module the average in place of its current weights, or give these back.

        The average itself stays as it is. Lightning's exchange would round it to the precision of
        the module.

        Args:
            module: The current module.
        """
        tensors = self._averaged_tensors(module)
        if self.is_exchanged:
            _copy(self._current, tensors)
            self._current = {}
        else:
            self._current = {name: tensor.clone() for name, tensor in tensors.items()}
            self.replace(module)

    def undo_exchange(self, module: nn.Module) -> None:
        """Give a module its current weights back, if it has the average.

        Args:
            module: The current module.
        """
        if self.is_exchanged:
            self.exchange(module)

    def _averaged_tensors(self, module: nn.Module) -> dict[str, Tensor]:
        """Return the tensors of a module that are averaged."""
        return {name: tensor for name, tensor in _tensors(module).items() if name in self._averaged}


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
                _copy_average_to_current=average.replace,
                on_save_checkpoint=partial(_save, callback, average),
                on_exception=partial(_after_failure, callback, average),
            )


def _save(
    callback: WeightAveraging,
    average: ExactAverage,
    trainer: pl.Trainer,
    module: pl.LightningModule,
    checkpoint: dict[str, Any],
) -> None:
    """Save an average with the other buffers as they are now, and the current weights, also in an evaluation."""
    average.follow(module)
    if average.is_exchanged:
        average.exchange(module)
        checkpoint["state_dict"] = deepcopy(trainer.strategy.lightning_module_state_dict())
        average.exchange(module)
    type(callback).on_save_checkpoint(callback, trainer, module, checkpoint)


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


def _averaged_names(module: nn.Module, *, with_statistics: bool) -> set[str]:
    """Return the names of parameters, and of the running statistics of layers if wanted."""
    tensors: dict[str, Tensor] = dict(module.named_parameters())
    for prefix, part in module.named_modules():
        if with_statistics and isinstance(part, _NormBase):
            tensors.update(part.named_buffers(prefix, recurse=False))
    numbers = ((name, tensor.dtype) for name, tensor in tensors.items())
    return {name for name, dtype in numbers if dtype.is_floating_point or dtype.is_complex}


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module by their names."""
    return dict(chain(module.named_parameters(), module.named_buffers()))


def _copy(values: dict[str, Tensor], tensors: dict[str, Tensor]) -> None:
    """Copy values to the tensors of the same names."""
    for name, value in values.items():
        tensors[name].copy_(value)

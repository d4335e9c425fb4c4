"""Refusal of training data that an algorithm cannot learn from, before environments are made."""

from __future__ import annotations

import inspect
import typing

import pytorch_lightning as pl

from maze_pl.core.batches import Batch
from maze_pl.core.training_data import DeclaresBatches


def learned_type(algorithm: type[pl.LightningModule]) -> type:
    """Return the class of batches that an algorithm learns from; `object` if it does not say.

    It is `batch_type` where that is declared, otherwise the annotation of the batch in
    `training_step` if that is a subclass of `Batch`.
    """
    if isinstance(algorithm, DeclaresBatches) and algorithm.batch_type is not object:
        return algorithm.batch_type
    step = algorithm.training_step
    try:
        hints = typing.get_type_hints(step)
    except (NameError, TypeError):  # annotations that exist for type checkers only
        return object
    parameters = list(inspect.signature(step).parameters)
    annotation = hints.get(parameters[1]) if len(parameters) > 1 else None  # after `self`
    if isinstance(annotation, type) and issubclass(annotation, Batch):
        return annotation
    return object


def require_fitting_module(module: pl.LightningModule, data: object) -> None:
    """Refuse a module that does not learn from what a data module delivers; see `require_fitting_data`."""
    require_fitting_data(module, learned_type(type(module)), data)


def require_fitting_data(module: pl.LightningModule, learned: type, data: object) -> None:
    """Refuse a data module that delivers batches from which a module cannot learn.

    A data module that declares no `batch_type` passes: its batches are checked when they arrive.

    Args:
        module: The algorithm.
        learned: Class of batches that it learns from.
        data: The data module.

    Raises:
        ValueError: The batches do not fit.
    """
    delivered = data.batch_type if isinstance(data, DeclaresBatches) else object
    if delivered is object or issubclass(delivered, learned):
        return
    fault = f"{_learns_from(module, learned)}, but {type(data).__name__} delivers {delivered.__name__}"
    algorithms = _declaring(pl.LightningModule, delivered)
    others = f", or an algorithm that learns from {delivered.__name__}: {_either(algorithms)}" if algorithms else ""
    raise ValueError(f"{fault}: {_remedy(learned)}{others}")


def require_fitting_batch(module: pl.LightningModule, learned: type, batch: object) -> None:
    """Refuse a batch of a class that a module does not learn from.

    Args:
        module: The algorithm.
        learned: Class of batches that it learns from.
        batch: The batch.

    Raises:
        ValueError: The batch is of another class.
    """
    if not isinstance(batch, learned):
        raise ValueError(f"{_learns_from(module, learned)}, not from a {type(batch).__name__}: {_remedy(learned)}")


def _learns_from(module: pl.LightningModule, learned: type) -> str:
    return f"{type(module).__name__} learns from {learned.__name__} batches"


def _remedy(learned: type) -> str:
    """Name the data modules that deliver a class of batches."""
    names = _declaring(pl.LightningDataModule, learned)
    return f"use {_either(names)}" if names else f"use a data module whose batch_type is {learned.__name__}"


def _declaring(base: type, batch_type: type) -> list[str]:
    """Return the names of public classes below `base` that declare batches of a class themselves."""
    names: set[str] = set()
    classes = [base]
    for known in classes:  # grows during the loop
        classes += known.__subclasses__()
        declared = vars(known).get("batch_type", object)
        if declared is not object and issubclass(declared, batch_type) and not known.__name__.startswith("_"):
            names.add(known.__name__)
    return sorted(names)


def _either(names: list[str]) -> str:
    """Join names by commas and "or"."""
    return " or ".join([", ".join(names[:-1]), names[-1]]) if names[1:] else names[0]

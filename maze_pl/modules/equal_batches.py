"""Means of logged values over batches that count equally."""

from __future__ import annotations

from inspect import signature
from typing import Any

from pytorch_lightning import LightningModule

_LOG = signature(LightningModule.log)


class EqualBatches:
    """Lets `log` of a `LightningModule` count each batch once, unless a size is given.

    Lightning would look for a size in the batch, and go through all episodes of a rollout, which
    also waits for a GPU.
    """

    def log(self, name: str, value: Any, *args: Any, **options: Any) -> None:
        """Log a value; see `LightningModule.log`.

        Args:
            name: Name of the value.
            value: A number, or a tensor or metric.
            args: Further arguments of Lightning's method.
            options: Its options; `batch_size`, the weight of the batch in the mean of an epoch, is 1 by default.
        """
        given = _LOG.bind(None, name, value, *args, **options)
        if given.arguments.get("batch_size") is None:
            given.arguments["batch_size"] = 1
        logged: Any = super()
        logged.log(*given.args[1:], **given.kwargs)

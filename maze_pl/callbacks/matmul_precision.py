"""The precision of float32 matrix products during a run of the Trainer."""

from typing import Literal, get_args

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

Precision = Literal["highest", "high", "medium"]


class MatmulPrecision(Callback):
    """Sets the precision of float32 matrix products, and restores the earlier one when the Trainer ends.

    Weights, gradients and results stay float32; only factors are rounded, on devices that gain from it.

    Args:
        precision: As in `torch.set_float32_matmul_precision`: `high` lets GPUs with tensor cores round
            the factors of a product to TF32, with 10 binary digits; `medium` also to bfloat16, with 7;
            `highest` rounds nothing.

    Raises:
        ValueError: There is no such precision.
    """

    def __init__(self, precision: Precision = "high") -> None:
        if precision not in get_args(Precision):
            names = ", ".join(map(repr, get_args(Precision)))
            raise ValueError(f"MatmulPrecision(precision={precision!r}) must be one of {names}")
        self.precision = precision
        self._earlier: str | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Set the precision, also in each process of several devices."""
        if self._earlier is None:
            self._earlier = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self.precision)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Restore the earlier precision."""
        self._restore()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Restore the earlier precision, since a Trainer that fails does not call `teardown`."""
        self._restore()

    def _restore(self) -> None:
        if self._earlier is not None:
            torch.set_float32_matmul_precision(self._earlier)
            self._earlier = None

"""TD errors as algorithms report them to prioritised replay."""

from __future__ import annotations

import copy
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from maze_pl.core.batches import ReplayBatch, TransitionBatch
from tests.modules.kit import fit


class _Seeds(pl.Callback):
    """Seeds the noise of the update."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(self, *arguments: Any) -> None:
        torch.manual_seed(self.seed)


def reported_errors(module: Any, acts: TransitionBatch, seed: int = 0) -> Tensor:
    """The errors [B] that a copy of the module reports of an update on these acts of sub-step 0."""
    reported: list[Any] = []
    batch = ReplayBatch({0: acts.with_tensors(tensor.unsqueeze(0) for tensor in acts.tensors())}, 1, reported.append)
    fit(copy.deepcopy(module), lambda seed: batch, length=1, callbacks=[_Seeds(seed)])
    errors: Tensor
    ((errors,),) = [part[0] for part in reported]
    return errors

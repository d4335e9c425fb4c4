"""Progress of a run: the share of its batches that are done."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytorch_lightning as pl


def run_progress(trainer: pl.Trainer) -> float:
    """Return the share of a run's batches that are done, from 0 to 1.

    The value changes at the end of each batch, so that collecting a batch and learning from it use
    the same one. For the last of n batches it is (n - 1) / n. A resumed run continues with the
    value that an uninterrupted run has at the same point. If it has another `max_epochs` or another
    number of batches in an epoch, the batches so far are a share of the new product of both.

    Args:
        trainer: Trainer of a run whose length `require_length` has checked.
    """
    assert trainer.max_epochs is not None
    n_batches = trainer.max_epochs * trainer.num_training_batches
    batches: Any = trainer.fit_loop.epoch_loop.batch_progress.total
    n_done: int = batches.processed
    return min(n_done / max(n_batches, 1), 1.0)


def require_length(trainer: pl.Trainer, options: Collection[str]) -> None:
    """Refuse schedules in a run of unknown length.

    Args:
        trainer: Trainer of the run.
        options: Names of the options that follow a schedule, such as `lr_schedule=linear`.

    Raises:
        ValueError: An option follows a schedule, but the run has no `max_epochs`.
    """
    if options and trainer.max_epochs in (None, -1):
        needs = "needs" if len(options) == 1 else "need"
        raise ValueError(f"{', '.join(options)} {needs} the length of the run: set trainer.max_epochs")

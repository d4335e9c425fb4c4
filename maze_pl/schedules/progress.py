"""Progress of a run: the share of its batches that are done."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytorch_lightning as pl


def run_progress(trainer: pl.Trainer) -> float:
    """Return the share of a run's batches that are done, from 0 to 1.

    From the end of a batch to the end of the next one it is the progress of that next batch: its
    data is collected and learned from with the same number. The last of n batches has (n - 1) / n.
    A resumed run continues with the number that the whole run has at this place.

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
        ValueError: There are some, but the run has no `max_epochs`.
    """
    if options and trainer.max_epochs in (None, -1):
        needs = "needs" if len(options) == 1 else "need"
        raise ValueError(f"{', '.join(options)} {needs} the length of the run: set trainer.max_epochs")

"""Distinction of a new run from one that its trainer continues."""

import pytorch_lightning as pl


def is_first_fit(trainer: pl.Trainer) -> bool:
    """Return True if a trainer has trained on no batch; otherwise it trains on.

    The state of a resumed run counts only after it is restored, which happens after `setup`.

    Args:
        trainer: The trainer.
    """
    return trainer.fit_loop.total_batch_idx < 0

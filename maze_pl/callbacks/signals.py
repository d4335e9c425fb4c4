"""Ends training where it can be resumed from exactly, when INT or TERM has come.

Lightning itself ends with status 0 after TERM and with a lost epoch after INT, and can wait for ever where there are
several ranks, because its handler communicates.
"""

import signal
import sys
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.trainer.connectors.signal_connector import _SignalConnector
from torch import distributed

from maze_pl.callbacks.checkpoints import LastCheckpoint
from maze_pl.callbacks.epoch_table import env_steps
from maze_pl.signals import StoppedBySignal, StopSignals


class _WithoutTerm(_SignalConnector):
    """Lightning's signal handlers but that for TERM, which communicates with other ranks wherever they are."""

    @staticmethod
    def _register_signal(signum: Any, handlers: Any) -> None:
        if signum != signal.SIGTERM:
            _SignalConnector._register_signal(signum, handlers)


class StopOnSignal(Checkpoint):  # so that Lightning calls it after the module and after all others that do not save
    """After INT or TERM to any rank, ends training on all of them with a checkpoint, and raises `StoppedBySignal`.

    The checkpoint is that of `LastCheckpoint`. It is written when the rollout that is being collected has been learned
    from; during the last rollout of an epoch and its evaluation, after the epoch. A run that is resumed from it ends
    where the run would have ended that was not stopped.

    `maze-pl fit` always has this callback. A script that makes its own Trainer gets the same by adding it:
    `Trainer(callbacks=[LastCheckpoint(), StopOnSignal()])`, behind all that save. Signals are then taken while
    `Trainer.fit` runs.

    Args:
        signals: Takes the signals; a new one, which takes them while training, if None.
        run_dir: Run directory that the user is told to resume.
    """

    def __init__(self, signals: StopSignals | None = None, run_dir: str | None = None) -> None:
        super().__init__()
        self._is_own = signals is None
        self._signals = signals or StopSignals()
        self._run_dir = run_dir

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Take the signals that were held while other ranks were started."""
        trainer._signal_connector = _WithoutTerm(trainer)
        if not self._is_own:
            self._signals.take()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the signals."""
        self._signals.deferred = True
        self._signals.take()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the signals as they were, if they were taken here."""
        if self._is_own:
            self._signals.release()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """As in `on_train_end`, which does not follow an exception."""
        self.on_train_end(trainer, pl_module)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Stop after a rollout, unless an evaluation follows, which a resumed run would leave out."""
        if not trainer.is_last_batch and (trainer.fit_loop.batch_idx + 1) % (trainer.val_check_batch or sys.maxsize):
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop after an epoch and its evaluation, or after a rollout."""
        number = self._signals.received
        if trainer.world_size > 1:
            told = torch.tensor(number, device=trainer.strategy.root_device)
            distributed.all_reduce(told, op=distributed.ReduceOp.MAX)
            number = int(told)
        if not number:
            return
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, LastCheckpoint):
                callback.save(trainer)
        self._signals.received = number
        if trainer.is_global_zero:
            steps = f"{env_steps(pl_module):,} env steps"
            hint = f"; go on by: maze-pl fit --resume {self._run_dir}" if self._run_dir is not None else ""
            sys.stderr.write(f"maze-pl: stopped by {signal.Signals(number).name} after {steps}{hint}\n")
        # Lightning kills all ranks if one that it launched ends with another status than 0.
        strategy: Any = trainer.strategy
        is_launched = trainer.local_rank > 0 and isinstance(strategy.cluster_environment, LightningEnvironment)
        raise StoppedBySignal(number, is_reported=is_launched)

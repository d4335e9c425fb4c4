"""End of training after INT or TERM, with a checkpoint."""

import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import callbacks
from pytorch_lightning.trainer.connectors.signal_connector import _SignalConnector
from torch import distributed

from maze_pl.callbacks.epoch_table import steps_text
from maze_pl.callbacks.last_checkpoint import (
    LastCheckpoint,
    best_checkpoint,
    is_evaluated_now,
    is_within_epoch,
    keep_last,
)
from maze_pl.config.assembling import TRUST_OPTION
from maze_pl.system.signals import StoppedBySignal, StopSignals


class _WithoutTerm(_SignalConnector):
    """Lightning's signal handlers except for TERM.

    Lightning's handler communicates with other ranks regardless of what they are doing, so it can
    wait forever. It exits with status 0 after TERM, and loses an epoch after INT.
    """

    @staticmethod
    def _register_signal(signum: Any, handlers: Any) -> None:
        if signum != signal.SIGTERM:
            _SignalConnector._register_signal(signum, handlers)


class StopOnSignal(callbacks.Checkpoint):  # Lightning calls these after the module and other callbacks
    """Ends training on all ranks after INT or TERM to any of them, with a checkpoint.

    The checkpoint is written by `LastCheckpoint`, once the current rollout has been learned from;
    during the last rollout of an epoch and its evaluation, after the epoch. Then `StoppedBySignal`
    is raised. A run that is resumed from the checkpoint ends as if it had not been stopped.

    A rollout or an evaluation that takes longer than `StopSignals.patience` after the signal is
    abandoned, on all ranks. The previous checkpoint is then the last one, and a message says that later progress
    is lost. The same happens if environments fail after the signal, as their own processes may have received it, too.

    `maze-pl fit` always has this callback. A script with its own Trainer adds it after all
    callbacks that save: `Trainer(callbacks=[LastCheckpoint(), StopOnSignal(signals)])`, inside of
    `with StopSignals() as signals`.

    Args:
        signals: Receives the signals.
        run_dir: Run directory that the message tells the user to resume.
        needs_trust: Whether resuming needs `--trust`.
    """

    def __init__(self, signals: StopSignals, run_dir: str | None = None, needs_trust: bool = False) -> None:
        self._signals = signals
        self._hint = ""
        self._best: callbacks.ModelCheckpoint | None = None
        self._is_training = False
        if run_dir is not None:
            option = f" {TRUST_OPTION}" if needs_trust else ""
            self._hint = f"; to continue: maze-pl fit --resume {shlex.quote(run_dir)}{option}"

    @property
    def best_model_path(self) -> str:
        """Path of the best checkpoint by another callback, for Lightning."""
        return "" if self._best is None else self._best.best_model_path

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Take over signal handling, with signals that were held while other ranks were started."""
        self._best = best_checkpoint(trainer)
        trainer._signal_connector = _WithoutTerm(trainer)
        self._signals.take()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take over signal handling again; from now on signals are only noted."""
        self._signals.deferred = True
        self._signals.take()
        self._is_training = False
        self._let_interrupt(True)  # a run that has nothing left to train evaluates next

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Report what is lost if training ended in the middle of a rollout or an evaluation."""
        is_abandoned = isinstance(exception, StoppedBySignal) and self._signals.has_interrupted
        if not is_abandoned or self._signals.is_reported:
            return
        consequence = "there is no checkpoint yet"
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, LastCheckpoint) and Path(f"{callback.dirpath}/last.ckpt").is_file():
                lost = "progress since the last checkpoint" if self._is_training else "nothing that was learned"
                consequence = f"{lost} is lost{self._hint}"
        name = signal.Signals(self._signals.received).name
        place = f" (at {self._signals.place})" if self._signals.place else ""
        where = f"a rollout or an evaluation that took more than {self._signals.patience:.0f} s longer{place}"
        if self._signals.failure:
            where = f"a rollout or an evaluation that has failed since ({self._signals.failure})"
        sys.stderr.write(f"maze-pl: stopped by {name} in {where}: {consequence}\n")

    def _let_interrupt(self, is_collecting: bool) -> None:
        """Allow interruption while episodes are played, and nothing is learned or written."""
        self._signals.may_interrupt = is_collecting

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Allow interruption: a rollout comes next."""
        self._is_training = True
        self._let_interrupt(True)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Forbid interruption: the rollout is being learned from."""
        self._is_training = True
        self._let_interrupt(False)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Allow interruption: the episodes of an evaluator come next."""
        self._let_interrupt(True)

    def on_validation_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Forbid interruption: the episodes have been played."""
        self._let_interrupt(False)

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Allow interruption if another evaluator follows; otherwise results are being written."""
        self._let_interrupt(dataloader_idx + 1 < len(trainer.num_val_batches))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Allow interruption after an evaluation within an epoch: a rollout comes next."""
        self._let_interrupt(trainer.state.fn == "fit" and not trainer.is_last_batch)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Stop after a rollout, unless an evaluation follows, which a resumed run would skip."""
        if is_within_epoch(trainer) and not is_evaluated_now(trainer):
            self._stop_after_signal(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop after an epoch and its evaluation; if it was the last one, its checkpoint has been written."""
        self._stop_after_signal(trainer, pl_module)
        self._is_training = False

    def _stop_after_signal(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write a checkpoint and end the process if a rank has received a signal."""
        number = self._signals.received
        if trainer.world_size > 1:
            highest = torch.tensor(number, device=trainer.strategy.root_device)
            distributed.all_reduce(highest, op=distributed.ReduceOp.MAX)
            number = int(highest)
        if not number:
            self._let_interrupt(True)
            return
        keep_last(trainer)
        self._signals.received = number
        if trainer.is_global_zero:
            name = signal.Signals(number).name
            sys.stderr.write(f"maze-pl: stopped by {name} after {steps_text(pl_module)}{self._hint}\n")
        # Lightning kills all ranks if one that it launched exits with a status other than 0.
        strategy: Any = trainer.strategy
        is_launched = False
        if trainer.local_rank > 0:
            is_launched = isinstance(strategy.cluster_environment, LightningEnvironment)
        raise StoppedBySignal(number, is_reported=is_launched)

"""Summary of a run, and possible next commands."""

import shlex
import time
from datetime import timedelta
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning import callbacks

from maze_pl.callbacks.early_stopping import EarlyStopping
from maze_pl.callbacks.epoch_table import env_steps, say, step_unit, steps_text
from maze_pl.callbacks.last_checkpoint import LastCheckpoint
from maze_pl.callbacks.stop_at_return import StopAtReturn
from maze_pl.config.assembling import TRUST_OPTION
from maze_pl.loggers.dashboard import dashboards


class RunSummary(callbacks.Callback):
    """Prints at the end why a run ended, its duration and directory, and possible next commands.

    Args:
        run_dir: The run directory.
        needs_trust: Whether these commands need `--trust`.
    """

    def __init__(self, run_dir: str, needs_trust: bool = False) -> None:
        self.run_dir = run_dir
        self._option = f" {TRUST_OPTION}" if needs_trust else ""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._began_at = self._ended_at = time.perf_counter()
        self._began_with = env_steps(pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Record the time; after the last epoch, the rest is not training."""
        self._ended_at = time.perf_counter()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print the summary."""
        seconds = self._ended_at - self._began_at
        steps = env_steps(pl_module)
        new = steps - self._began_with
        reason, more = self._end(trainer)
        run_dir = shlex.quote(self.run_dir)
        commands: list[str] = []
        if _has_checkpoint(trainer):
            commands.append(f"maze-pl validate {run_dir}{self._option}")
            if more is not None:
                commands.append(f"maze-pl fit --resume {run_dir}{more}{self._option}")
        commands += [dashboard.view_command for dashboard in dashboards(trainer)]
        total = steps_text(pl_module, steps) + (f", {new:,} of them" if self._began_with else "")
        rate = f"{new / max(seconds, 1e-9):,.0f} {step_unit(pl_module)}/s"
        duration = f"{total} in {timedelta(seconds=round(seconds))} ({rate})"
        say(trainer, f"ended: {reason}\n{duration}\nrun directory: {self.run_dir}")
        if any(commands):
            say(trainer, "\n".join(["next:", *(f"  {command}" for command in commands if command)]))

    def _end(self, trainer: pl.Trainer) -> tuple[str, str | None]:
        """Return the reason why training ended, and the option with which it would continue, if there is one."""
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return "fast_dev_run; no checkpoint was written", None
        others: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
        for callback in others:
            if isinstance(callback, StopAtReturn) and callback.threshold is not None and not callback.missed:
                reason = f"{callback.monitor} has reached {callback.threshold}"
                return reason, " --stop_at_return.threshold null"
            if isinstance(callback, EarlyStopping) and callback.wait_count >= callback.patience:
                reason = f"{callback.monitor} has not improved for {callback.patience} evaluations"
                return reason, f" --early_stopping.patience {2 * callback.patience}"
            if (why := _early_stop(callback, trainer.current_epoch)) is not None:
                return f"{why}; to continue, leave EarlyStopping out of trainer.callbacks", None
        for index, timer in enumerate(others):
            remaining = timer.time_remaining() if isinstance(timer, callbacks.Timer) else None
            if remaining is None or remaining > 0:
                continue
            if index > others.index(self):  # the trainer appends its own Timer
                return "the time limit of trainer.max_time was reached", " --trainer.max_time null"
            return "the time limit of a Timer was reached; trainer.callbacks sets it", None
        if 0 < trainer.max_steps <= trainer.global_step:
            reason = f"max_steps={trainer.max_steps} optimiser steps reached"
            return reason, " --trainer.max_steps -1"
        if trainer.current_epoch == trainer.max_epochs:
            reason = f"max_epochs={trainer.max_epochs} reached"
            return reason, f" --trainer.max_epochs {2 * trainer.max_epochs}"
        return f"after epoch {trainer.current_epoch}", ""


def _early_stop(callback: pl.Callback, n_epochs: int) -> str | None:
    """Return why Lightning's `EarlyStopping` has ended training; None if it has not.

    Lightning restores its patience from the checkpoint, so that a larger one has no effect.

    Args:
        callback: Any callback of the Trainer.
        n_epochs: Epochs so far; an earlier command may have stopped before.
    """
    if not isinstance(callback, callbacks.EarlyStopping) or isinstance(callback, EarlyStopping):
        return None
    reason = callback.stopping_reason_message
    if reason is None or callback.stopped_epoch != n_epochs - 1:
        return None
    if callback.wait_count >= callback.patience:
        return f"EarlyStopping: {callback.monitor} has not improved for {callback.patience} checks"
    return f"EarlyStopping: {reason.removesuffix('. Signaling Trainer to stop.')}"


def _has_checkpoint(trainer: pl.Trainer) -> bool:
    """True if there is a last checkpoint, by this command or by one that it has resumed."""
    if trainer.fast_dev_run:  # type: ignore[attr-defined]
        return False
    every: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    folders = [callback.dirpath for callback in every if isinstance(callback, LastCheckpoint)]
    return any(folder is not None and Path(folder, "last.ckpt").is_file() for folder in folders)

"""Checkpoints of a run: the best by evaluation and the last of all; and when training ends, by itself or by a signal.

One ModelCheckpoint with both `monitor` and `save_last` leaves a last checkpoint that is stale whenever the metric does
not improve; so there are two callbacks. Both write under another name first and rename, so that a run which is killed
while it saves still has its former checkpoint.
"""

import copy
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import callbacks
from pytorch_lightning.trainer.connectors.signal_connector import _SignalConnector
from torch import distributed

from maze_pl.callbacks.console import env_steps, say
from maze_pl.callbacks.loggers import dashboards
from maze_pl.collect.storage import from_tensors
from maze_pl.core.counts import require_count
from maze_pl.core.ranks import gather_objects
from maze_pl.core.rollout import Evaluation
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.events.display import format_value
from maze_pl.loading import read_checkpoint
from maze_pl.modules.algorithm import CHECKPOINT_KEY as MODULE_KEY
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.statistics import episode_means
from maze_pl.search_path import suggestion
from maze_pl.signals import StoppedBySignal, StopSignals

_NETWORKS = "actor_critic."
_Mode = Literal["max", "min"]


def require_value(callback: callbacks.Callback, monitor: str, metrics: Mapping[str, Any]) -> None:
    """Refuse to wait for a value, such as a KPI, that evaluations do not give.

    Raises:
        ValueError: There is no such value; says which there are.
    """
    if monitor not in metrics:
        short = sorted(name for name in metrics if "_" not in name.partition("/")[0])
        known = f"{', '.join(short)}, and the columns of metrics.csv{suggestion(monitor, metrics)}"
        raise ValueError(f"{type(callback).__name__}(monitor={monitor!r}): no evaluation gives it; it has {known}")


def save_atomically(trainer: pl.Trainer, path: str | Path) -> None:
    """Write a checkpoint so that its file is at every moment the former or the new one; all ranks must call it.

    Raises:
        OSError: It cannot be written, for example because the disk is full.
    """
    temporary = f"{path}.part"
    try:
        trainer.save_checkpoint(temporary, weights_only=False)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        kept = "its former version is kept" if Path(path).is_file() else "it was the first one"
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"the checkpoint {path} cannot be written: {reason}; {kept}") from error
    if trainer.is_global_zero:
        os.replace(temporary, path)
    trainer.strategy.barrier("maze_pl.save_atomically")


def _folder(trainer: pl.Trainer, stage: str, dirpath: str | Path | None) -> str:
    """The folder of a callback's checkpoints, made before training, so that it is known whether it can be."""
    folder = Path(dirpath or Path(trainer.default_root_dir, "checkpoints"))
    if stage == "fit" and trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
        folder.mkdir(parents=True, exist_ok=True)
    return trainer.strategy.broadcast(str(folder))


class BestCheckpoint(callbacks.ModelCheckpoint):
    """Keeps the checkpoint with the best evaluation as `best.ckpt`.

    Args:
        monitor: What is compared after each evaluation: `eval/return`, `eval/kpi/<name>`, or any other logged value.
        mode: Whether more (`max`) or less (`min`) of it is better.
        dirpath: Folder; `checkpoints` in the run directory if None.
    """

    def __init__(self, monitor: str = "eval/return", mode: str = "max", dirpath: str | None = None) -> None:
        # at the end of an epoch, where that is evaluated, so that it can be resumed from exactly
        when: dict[str, Any] = {"save_on_train_epoch_end": True, "enable_version_counter": False}
        super().__init__(dirpath, "best", monitor, mode=mode, **when)
        self._evaluated = False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the folder, without Lightning's warning if it is not empty, as whenever a run is resumed."""
        self.dirpath = _folder(trainer, stage, self.dirpath)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remember that there is something to compare, or compare at once where the epoch goes on."""
        self._evaluated = not trainer.sanity_checking
        if trainer.state.fn == "fit" and not trainer.is_last_batch:
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the checkpoint if the evaluation of this epoch is the best."""
        if self._evaluated:
            require_value(self, str(self.monitor), trainer.callback_metrics)
            super().on_train_epoch_end(trainer, pl_module)
        self._evaluated = False

    def _save_checkpoint(self, trainer: pl.Trainer, filepath: str) -> None:
        save_atomically(trainer, filepath)
        self._last_global_step_saved = trainer.global_step
        self._last_checkpoint_saved = filepath
        say(trainer, f"-> new best {self.monitor} {format_value(trainer.callback_metrics[str(self.monitor)].item())}!")


class LastCheckpoint(callbacks.Checkpoint):
    """Keeps the checkpoint of the last epoch as `last.ckpt`, from which a run is resumed.

    Args:
        every_n_epochs: Epochs between checkpoints; the last epoch is always kept.
        dirpath: Folder; `checkpoints` in the run directory if None.
    """

    def __init__(self, every_n_epochs: int = 1, dirpath: str | None = None) -> None:
        require_count("every_n_epochs", every_n_epochs, 1)
        self.every_n_epochs, self.dirpath = every_n_epochs, dirpath

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the folder."""
        self.dirpath = _folder(trainer, stage, self.dirpath)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the checkpoint, also in the middle of an epoch; all ranks must call it."""
        done = trainer.current_epoch + 1
        due = done % self.every_n_epochs == 0 or trainer.should_stop or done == trainer.max_epochs
        if due and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            save_atomically(trainer, f"{self.dirpath}/last.ckpt")


class EarlyStopping(callbacks.EarlyStopping):
    """Ends training after evaluations without improvement.

    Args:
        patience: How many evaluations in a row may bring no improvement; 0 never ends training.
        monitor: What should improve: `eval/return`, `eval/kpi/<name>`, or any other logged value.
        mode: Whether more (`max`) or less (`min`) of it is better.
        min_delta: The least change that counts as an improvement.
    """

    def __init__(
        self, patience: int = 15, monitor: str = "eval/return", mode: _Mode = "max", min_delta: float = 0.0
    ) -> None:
        if patience < 0:
            raise ValueError(f"patience={patience} must not be negative; 0 never ends training")
        super().__init__(monitor=monitor, mode=mode, min_delta=min_delta, patience=patience or sys.maxsize)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check, unless there are no evaluations that could have given what should improve."""
        if self.monitor in trainer.callback_metrics or any(trainer.num_val_batches):
            super().on_train_epoch_end(trainer, pl_module)

    def _validate_condition_metric(self, logs: dict[str, torch.Tensor]) -> bool:
        require_value(self, self.monitor, logs)
        return super()._validate_condition_metric(logs)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting; the patience itself is that of this run's configuration."""
        super().load_state_dict({**state_dict, "patience": self.patience})


class StopAtReturn(callbacks.Callback):
    """Ends training as soon as an evaluation reaches a threshold; `maze-pl fit` fails if none ever does.

    Args:
        threshold: The value to be reached; None does nothing.
        monitor: What must reach it.

    Attributes:
        best: The highest value so far.
    """

    def __init__(self, threshold: float | None = None, monitor: str = "eval/return") -> None:
        self.threshold, self.monitor = threshold, monitor
        self.best = -torch.inf

    @property
    def missed(self) -> bool:
        """Whether there is a threshold that was not reached."""
        return self.threshold is not None and self.best < self.threshold

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the evaluation's result."""
        if self.threshold is None or trainer.sanity_checking:
            return
        require_value(self, self.monitor, trainer.callback_metrics)
        self.take(trainer)
        trainer.should_stop = trainer.should_stop or not self.missed

    def take(self, trainer: pl.Trainer) -> None:
        """Take in the last evaluation; in the process that spawned those that train, only after training."""
        if self.monitor in trainer.callback_metrics:
            self.best = max(self.best, float(trainer.callback_metrics[self.monitor]))

    @property
    def state_key(self) -> str:
        """What is monitored belongs to it: the best of one value says nothing about another one."""
        return self._generate_state_key(monitor=self.monitor)

    def state_dict(self) -> dict[str, Any]:
        """The best value so far."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from it."""
        self.best = state_dict["best"]


class _WithoutTerm(_SignalConnector):
    """Lightning's signal handlers but that for TERM, which communicates with other ranks wherever they are.

    It ends with status 0 after TERM and with a lost epoch after INT, and can wait for ever where there are several
    ranks.
    """

    @staticmethod
    def _register_signal(signum: Any, handlers: Any) -> None:
        if signum != signal.SIGTERM:
            _SignalConnector._register_signal(signum, handlers)


class StopOnSignal(callbacks.Checkpoint):  # which Lightning calls after the module and after all that do not save
    """After INT or TERM to any rank, ends training on all of them with a checkpoint, and raises `StoppedBySignal`.

    The checkpoint is that of `LastCheckpoint`. It is written when the rollout that is being collected has been learned
    from; during the last rollout of an epoch and its evaluation, after the epoch. A run that is resumed from it ends
    where the run would have ended that was not stopped.

    `maze-pl fit` always has this callback. A script that makes its own Trainer gets the same by adding it:
    `Trainer(callbacks=[LastCheckpoint(), StopOnSignal(signals)])`, behind all that save, inside of
    `with StopSignals() as signals`.

    Args:
        signals: Takes the signals.
        run_dir: Run directory that the user is told to resume.
    """

    def __init__(self, signals: StopSignals, run_dir: str | None = None) -> None:
        self._signals, self._run_dir = signals, run_dir

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Take the signals that were held while other ranks were started."""
        trainer._signal_connector = _WithoutTerm(trainer)
        self._signals.take()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the signals, whoever has taken them since; from now on they are noted only."""
        self._signals.deferred = True
        self._signals.take()

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
        trainer.should_stop = True  # so that a checkpoint is due
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, LastCheckpoint):
                callback.on_train_epoch_end(trainer, pl_module)
        self._signals.received = number
        if trainer.is_global_zero:
            steps = f"{env_steps(pl_module):,} env steps"
            hint = f"; go on by: maze-pl fit --resume {self._run_dir}" if self._run_dir is not None else ""
            sys.stderr.write(f"maze-pl: stopped by {signal.Signals(number).name} after {steps}{hint}\n")
        # Lightning kills all ranks if one that it launched ends with another status than 0.
        strategy: Any = trainer.strategy
        is_launched = trainer.local_rank > 0 and isinstance(strategy.cluster_environment, LightningEnvironment)
        raise StoppedBySignal(number, is_reported=is_launched)


class FinalEvaluation(callbacks.Callback):
    """When training has ended, evaluates the last policy and the one of `best.ckpt` once more, and prints both.

    It needs a `BestCheckpoint`, and a data module with evaluators; otherwise it does nothing. The module, the
    training environments and what is logged stay as they are.
    """

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate, on all ranks, with the seeds that all evaluations have."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(data, EnvironmentDataModule) or not isinstance(pl_module, AlgorithmModule):
            return
        files = [Path(one.best_model_path) for one in trainer.checkpoint_callbacks if isinstance(one, BestCheckpoint)]
        found = None
        if trainer.is_global_zero and data.evaluators and files and files[0].is_file():
            read = read_checkpoint(str(files[0]))
            found = read["state_dict"], read[type(data).__qualname__]["shared"], read[MODULE_KEY]["env_steps"]
        found = trainer.strategy.broadcast(found)  # there may be ranks that do not see the file
        if found is None:
            return
        weights, learned, steps = found
        networks = copy.deepcopy(pl_module.networks)
        own = [name for name in weights if name.startswith(_NETWORKS)]
        networks.load_state_dict({name.removeprefix(_NETWORKS): weights[name] for name in own})
        for name in data.evaluators:
            best_means = _means(data.evaluate(name, networks.policy, from_tensors(learned)))
            last_means = _means(data.evaluate(name, pl_module.policy))
            say(trainer, f"best: {name} {best_means} after {steps:,} env steps (best.ckpt)")
            say(trainer, f"last: {name} {last_means} after {pl_module.env_steps:,} env steps")


def _means(evaluation: Evaluation) -> str:
    """Return and KPIs as text, means over the episodes of all ranks."""
    means = episode_means(chain(*gather_objects(evaluation.summaries)))
    return ", ".join(f"{name} {format_value(value)}" for name, value in means.items())


class RunSummary(callbacks.Callback):
    """Says at the end how a run went, where it lies, and which commands come next.

    Args:
        run_dir: The run directory.
    """

    def __init__(self, run_dir: str) -> None:
        self.run_dir = run_dir

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the time."""
        self._began_at = self._ended_at = time.perf_counter()
        self._began_with = env_steps(pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the time of the last epoch; what follows is not training."""
        self._ended_at = time.perf_counter()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say it."""
        seconds, steps = self._ended_at - self._began_at, env_steps(pl_module)
        new, run_dir, (reason, more) = steps - self._began_with, shlex.quote(self.run_dir), _end(trainer)
        commands = [f"maze-pl validate {run_dir}", f"maze-pl fit --resume {run_dir}{more}"]
        commands += [dashboard.view_command for dashboard in dashboards(trainer)]
        made = f"{steps:,} env steps" + (f", {new:,} of them" if self._began_with else "")
        took = f"{made} in {timedelta(seconds=round(seconds))} ({new / max(seconds, 1e-9):,.0f} env steps/s)"
        say(trainer, f"ended: {reason}\n{took}\nrun directory: {self.run_dir}\nnext:")
        say(trainer, "\n".join(f"  {command}" for command in commands if command))


def _end(trainer: pl.Trainer) -> tuple[str, str]:
    """Why training ended, and the option with which it would go on."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, StopAtReturn) and callback.threshold is not None and not callback.missed:
            return f"{callback.monitor} has reached {callback.threshold}", " --stop_at_return.threshold null"
        if isinstance(callback, EarlyStopping) and callback.wait_count >= callback.patience:
            reason = f"{callback.monitor} has not improved for {callback.patience} evaluations"
            return reason, f" --early_stopping.patience {2 * callback.patience}"
    if trainer.current_epoch == trainer.max_epochs:
        return f"max_epochs={trainer.max_epochs} reached", f" --trainer.max_epochs {2 * trainer.max_epochs}"
    return f"after epoch {trainer.current_epoch}", ""

"""Early warnings about missing evaluations and KPIs."""

import sys
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from maze_pl.callbacks.best_checkpoint import BestCheckpoint
from maze_pl.callbacks.early_stopping import EarlyStopping
from maze_pl.callbacks.epoch_table import say
from maze_pl.callbacks.monitors import own_monitor
from maze_pl.config.search_path import suggestion
from maze_pl.core.batches import Experience
from maze_pl.core.monitored_kpi import MonitoredKpi, monitored_kpi, sources_of
from maze_pl.datamodules.environments import EnvironmentDataModule


class EvaluationCheck(Callback):
    """Refuses monitored KPIs that cannot exist, and warns if no evaluation will take place.

    A calculator that declares its KPIs (`KpiCalculator.kpi_names`) rules out all others. Without a
    declaration, a KPI may be missing in some episodes, so that only an evaluation can prove that it
    does not exist, which then ends the run. In this case the first episodes of training show that
    it probably does not. Only then are episodes read before the end of an epoch, as those on a
    device are waited for.
    """

    _is_waiting = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check everything that is known before the first step.

        Raises:
            ValueError: A callback monitors a KPI that no episode has.
        """
        data = trainer.datamodule  # type: ignore[attr-defined]
        if isinstance(data, EnvironmentDataModule):
            _refuse_undeclared_kpis(trainer, data)
        reason = why_never_evaluated(trainer)
        if reason is not None:
            consequence = "so it writes no best.ckpt"
            say(trainer, f"this run never evaluates its policy: {reason}; {consequence}")
            return
        names = [_kpi_that_may_be_missing(trainer, callback) for callback in _callbacks(trainer)]
        self._is_waiting = any(name is not None for name in names)
        _tell_of_other_monitors(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Check the KPIs of the first finished episodes."""
        if not self._is_waiting or not isinstance(batch, Experience) or not batch.summaries:
            return
        self._is_waiting = False
        known = sorted({name for summary in batch.summaries for name in summary.kpis})
        for callback in _callbacks(trainer):
            name = _kpi_that_may_be_missing(trainer, callback)
            if name is not None and name not in known:
                found = f"have the KPIs {', '.join(known)}" if known else "have no KPI"
                hint = f"the first episodes of training {found}{suggestion(name, known)}"
                say(trainer, f"{_monitoring(callback)}: {hint}")


def _callbacks(trainer: pl.Trainer) -> list[Callback]:
    return trainer.callbacks  # type: ignore[attr-defined, no-any-return]


def _tell_of_other_monitors(trainer: pl.Trainer) -> None:
    """Print that early stopping monitors another value than the best checkpoint, if it does."""
    callbacks = _callbacks(trainer)
    best = [callback.monitor for callback in callbacks if isinstance(callback, BestCheckpoint)]
    for callback in callbacks:
        if not isinstance(callback, EarlyStopping) or callback.patience == sys.maxsize:
            continue
        if best and callback.monitor not in best:
            monitors = f"early stopping monitors {callback.monitor}"
            say(trainer, f"best.ckpt is chosen by {best[0]}, but {monitors}")


def _refuse_undeclared_kpis(trainer: pl.Trainer, data: EnvironmentDataModule) -> None:
    """Raise ValueError if a callback monitors a KPI that the environment does not have."""
    for callback in _callbacks(trainer):
        kpi = _kpi(trainer, callback)
        known = None if kpi is None else data.kpi_names_of(kpi.source)
        if kpi is not None and known is not None and kpi.name not in known:
            found = f"has the KPIs {', '.join(known)}" if known else "has no KPI calculator"
            hint = f"the environment {found}{suggestion(kpi.name, known)}"
            raise ValueError(f"{_monitoring(callback)}: {hint}")


def _monitoring(callback: Any) -> str:
    """Return the class of a callback and the value that it monitors, for messages."""
    return f"{type(callback).__name__}(monitor={callback.monitor!r})"


def _kpi(trainer: pl.Trainer, callback: Callback) -> MonitoredKpi | None:
    """Return the KPI that a callback monitors by itself, if any."""
    data = trainer.datamodule  # type: ignore[attr-defined]
    return monitored_kpi(own_monitor(callback), sources_of(data))


def _kpi_that_may_be_missing(trainer: pl.Trainer, callback: Callback) -> str | None:
    """Return the KPI that a callback monitors if the environment of training, which plays it, declares none."""
    kpi = _kpi(trainer, callback)
    if kpi is None:
        return None
    data = trainer.datamodule  # type: ignore[attr-defined]
    evaluator = getattr(data, "evaluators", {}).get(kpi.source)
    if evaluator is not None and not evaluator.has_env_of_training:
        return None
    is_declared = isinstance(data, EnvironmentDataModule) and data.kpi_names_of(kpi.source) is not None
    return None if is_declared else kpi.name


def why_never_evaluated(trainer: pl.Trainer) -> str | None:
    """Return the reason why training will end without evaluation; None if there is none known.

    Args:
        trainer: Trainer that has just started or resumed training.
    """
    data = trainer.datamodule  # type: ignore[attr-defined]
    if trainer.limit_val_batches == 0:
        return "trainer.limit_val_batches=0"
    if isinstance(data, EnvironmentDataModule) and not data.val_dataloader():
        return "there are no evaluators"
    done = trainer.current_epoch
    epochs = trainer.max_epochs
    if epochs is None or epochs < 0 or done >= epochs:
        return None
    every = trainer.check_val_every_n_epoch
    if every is not None:
        has_none = epochs // every == done // every
        return f"trainer.check_val_every_n_epoch={every}, and max_epochs={epochs}" if has_none else None
    interval = trainer.val_check_batch
    batches = trainer.num_training_batches
    if interval is not None and epochs * batches // interval == done * batches // interval:
        length = f"max_epochs={epochs} of {batches} batches"
        return f"trainer.val_check_interval={trainer.val_check_interval}, and {length}"
    return None

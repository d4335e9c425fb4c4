"""Early warnings about evaluations that a run would wait for in vain."""

import sys

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from maze_pl.callbacks.best_checkpoint import BestCheckpoint
from maze_pl.callbacks.early_stopping import EarlyStopping
from maze_pl.callbacks.epoch_table import say
from maze_pl.callbacks.stop_at_return import StopAtReturn
from maze_pl.config.search_path import suggestion
from maze_pl.core.batches import Experience
from maze_pl.datamodules.environments import EnvironmentDataModule

_KPI = "kpi/"


class EvaluationCheck(Callback):
    """Warns if no evaluation will take place, or if episodes lack a KPI that callbacks monitor.

    A KPI may be missing in some episodes, so only an evaluation can prove that it does not exist,
    which then ends the run. The first episodes of training show that it probably does not.
    """

    _is_waiting = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Warn about everything that is known before the first step."""
        reason = why_never_evaluated(trainer)
        if reason is not None:
            say(trainer, f"this run never evaluates its policy: {reason}; so it writes no best.ckpt")
            return
        self._is_waiting = any(_kpi(callback) for callback in trainer.callbacks)  # type: ignore[attr-defined]
        best = [one.monitor for one in trainer.checkpoint_callbacks if isinstance(one, BestCheckpoint)]
        for callback in trainer.early_stopping_callbacks:
            is_endless = callback.patience == sys.maxsize
            if isinstance(callback, EarlyStopping) and not is_endless and best and callback.monitor not in best:
                say(trainer, f"best.ckpt is chosen by {best[0]}, but early stopping waits for {callback.monitor}")

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Check the KPIs of the first finished episodes."""
        if not self._is_waiting or not isinstance(batch, Experience) or not batch.summaries:
            return
        self._is_waiting = False
        known = sorted({name for summary in batch.summaries for name in summary.kpis})
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            name = _kpi(callback)
            if name and name not in known:
                whose = f"{type(callback).__name__}(monitor={callback.monitor!r})"
                there = f"have {', '.join(known)}" if known else "have no KPI"
                say(trainer, f"{whose}: the first episodes of training {there}{suggestion(name, known)}")


def _kpi(callback: Callback) -> str:
    """Return the KPI that a callback monitors, or an empty text."""
    monitor = getattr(callback, "monitor", None) or ""
    is_idle = isinstance(callback, StopAtReturn) and callback.threshold is None
    return monitor.partition("/")[2].removeprefix(_KPI) if f"/{_KPI}" in monitor and not is_idle else ""


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
    done, epochs, every = trainer.current_epoch, trainer.max_epochs, trainer.check_val_every_n_epoch
    if epochs is None or epochs < 0 or done >= epochs:
        return None
    if every is not None:
        has_none = epochs // every == done // every
        return f"trainer.check_val_every_n_epoch={every}, and max_epochs={epochs}" if has_none else None
    interval, batches = trainer.val_check_batch, trainer.num_training_batches
    if interval is not None and epochs * batches // interval == done * batches // interval:
        return f"trainer.val_check_interval={trainer.val_check_interval}, and max_epochs={epochs} of {batches} batches"
    return None

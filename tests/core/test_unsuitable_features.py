"""Features of Lightning with which algorithms cannot learn: refused by name, from Python as well."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning import callbacks

from maze_pl.core.unsuitable_features import refuse_callbacks, refuse_unsuitable_trainer
from maze_pl.modules.run_module import RunModule


class ByHalves(callbacks.EMAWeightAveraging):
    """Decides by other counts than those of Lightning's options."""

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        return epoch_idx is not None and epoch_idx % 2 == 0


class ByClock(callbacks.ModelCheckpoint):
    """Looks at the time itself."""

    def on_train_batch_end(self, *args: Any) -> None:
        pass


UNSUITABLE = [
    (callbacks.GradientAccumulationScheduler({0: 2}), "model.batch_size"),
    (callbacks.BatchSizeFinder(), "model.batch_size"),
    (callbacks.LearningRateFinder(), "model.lr"),
    (callbacks.StochasticWeightAveraging(1e-3), "EMAWeightAveraging"),
    (callbacks.ModelPruning("l1_unstructured"), "torch.nn.utils.prune"),
    (callbacks.ModelCheckpoint(train_time_interval=timedelta(minutes=10)), "use every_n_epochs"),
    (callbacks.EMAWeightAveraging(update_every_n_steps=10), "several optimiser steps: leave it at 1"),
    (callbacks.EMAWeightAveraging(update_every_n_steps=0), "update_starting_at_epoch"),
]
SUITABLE = [
    callbacks.EMAWeightAveraging(),
    callbacks.EMAWeightAveraging(update_starting_at_step=100),
    callbacks.EMAWeightAveraging(update_every_n_steps=0, update_starting_at_epoch=1),
    callbacks.WeightAveraging(),
    ByHalves(update_every_n_steps=10),
    ByClock(train_time_interval=timedelta(minutes=10)),
    callbacks.ModelCheckpoint(every_n_train_steps=10),
    callbacks.LearningRateMonitor(),
]


@pytest.mark.parametrize(("callback", "remedy"), UNSUITABLE, ids=lambda value: type(value).__name__)
def test_callbacks_that_do_not_fit_are_refused_with_the_alternative(callback: Any, remedy: str) -> None:
    with pytest.raises(ValueError, match=rf"{type(callback).__name__}.* not supported.*{remedy}"):
        refuse_callbacks([*SUITABLE, callback])


def test_all_other_callbacks_are_accepted() -> None:
    refuse_callbacks(SUITABLE)


def test_scaled_losses_are_refused() -> None:
    trainer: Any = SimpleNamespace(callbacks=[], precision="16-mixed", precision_plugin=SimpleNamespace(scaler=1))
    with pytest.raises(ValueError, match="precision='16-mixed' scales losses, which is not supported; use bf16-mixed"):
        refuse_unsuitable_trainer(trainer)


def test_evaluations_by_time_are_refused_with_several_ranks_only() -> None:
    options: Any = {"logger": False, "enable_checkpointing": False, "accelerator": "cpu"}
    refuse_unsuitable_trainer(pl.Trainer(val_check_interval={"seconds": 90}, **options))
    refuse_unsuitable_trainer(pl.Trainer(val_check_interval=2, devices=2, **options))
    for interval in ("00:00:01:30", {"seconds": 90}, timedelta(seconds=90)):
        trainer = pl.Trainer(val_check_interval=interval, devices=2, **options)
        with pytest.raises(ValueError, match=r"val_check_interval is a time \(90 s\).* 2 ranks.*a number of batches"):
            refuse_unsuitable_trainer(trainer)


def test_a_script_is_refused_before_training() -> None:
    trainer = pl.Trainer(callbacks=[UNSUITABLE[3][0]], logger=False, enable_checkpointing=False, accelerator="cpu")
    module = RunModule()
    module.trainer = trainer
    module.setup("validate")
    with pytest.raises(ValueError, match="the callback StochasticWeightAveraging is not supported"):
        module.setup("fit")

"""The callback by itself, with a Trainer from Python: checkpoint, exit status, handlers, and what it resumes to."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.callbacks import LastCheckpoint, StopOnSignal
from maze_pl.datamodules import RolloutDataModule
from maze_pl.modules import A2C
from maze_pl.signals import StoppedBySignal, StopSignals
from tests.distributed.test_data_module_class import make
from tests.faults.moments import FailAt, SignalAt

NUMBERS = [signal.SIGINT, signal.SIGTERM]


def fit(folder: Path, *callbacks: pl.Callback, ckpt_path: Path | None = None, every_n_epochs: int = 1) -> A2C:
    module, data = make(RolloutDataModule)
    data.epoch_length = 3
    with StopSignals() as signals:
        trainer = pl.Trainer(
            max_epochs=2,
            accelerator="cpu",
            devices=1,
            logger=False,
            callbacks=[LastCheckpoint(every_n_epochs, str(folder)), StopOnSignal(signals), *callbacks],
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(module, data, ckpt_path=ckpt_path, weights_only=True if ckpt_path else None)
    return module


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("hook", "env_steps"), [("batch_start", 10), ("validation_start", 15)])
def test_a_script_is_stopped_and_resumed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], number: int, hook: str, env_steps: int
) -> None:
    before = [signal.getsignal(one) for one in NUMBERS]
    pl.seed_everything(1, verbose=False)
    with pytest.raises(StoppedBySignal) as stopped:
        fit(tmp_path, SignalAt(hook, count=0 if hook == "validation_start" else 1, number=number))
    assert stopped.value.code == 128 + number
    assert f"stopped by {signal.Signals(number).name} after {env_steps} env steps" in capfd.readouterr().err
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["maze_pl"]["env_steps"] == env_steps
    assert [signal.getsignal(one) for one in NUMBERS] == before
    assert fit(tmp_path, ckpt_path=tmp_path / "last.ckpt").env_steps == 2 * 3 * 5
    assert [signal.getsignal(one) for one in NUMBERS] == before


@pytest.mark.parametrize(("hook", "env_steps"), [("batch_start", 5), ("validation_start", 15)])
def test_a_script_that_rarely_writes_checkpoints_writes_one_when_it_is_stopped(
    tmp_path: Path, hook: str, env_steps: int
) -> None:
    pl.seed_everything(1, verbose=False)
    with pytest.raises(StoppedBySignal):
        fit(tmp_path, SignalAt(hook), every_n_epochs=5)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["maze_pl"]["env_steps"] == env_steps
    assert fit(tmp_path, ckpt_path=tmp_path / "last.ckpt", every_n_epochs=5).env_steps == 2 * 3 * 5


class HandlerOfTerm(pl.Callback):
    handler: Any = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # before ours is put there
        self.handler = signal.getsignal(signal.SIGTERM)


def test_lightnings_own_handler_for_term_is_never_there(tmp_path: Path) -> None:
    seen = HandlerOfTerm()
    fit(tmp_path, seen)
    assert seen.handler.__func__ is StopSignals._handle


def test_signals_are_left_as_they_were_after_an_error(tmp_path: Path) -> None:
    before = [signal.getsignal(one) for one in NUMBERS]
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path, FailAt("batch_start"))
    assert [signal.getsignal(one) for one in NUMBERS] == before

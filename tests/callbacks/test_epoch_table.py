"""The table of an epoch that is continued."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl

from maze_pl.callbacks import EpochTable, LastCheckpoint
from maze_pl.datamodules import RolloutDataModule
from tests.distributed.cartpole import make

pytestmark = pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")

PAUSE = 10_000.0  # seconds


def trainer_of(folder: Path, **options: Any) -> pl.Trainer:
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    callbacks = [EpochTable(), LastCheckpoint(dirpath=str(folder))]
    return pl.Trainer(accelerator="cpu", max_epochs=1, limit_val_batches=0, callbacks=callbacks, **quiet, **options)


def test_the_time_of_the_rest_of_an_epoch_counts_from_the_start_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, data = make(RolloutDataModule, epoch_length=2)
    trainer_of(tmp_path, max_steps=1).fit(module, data)
    module, data = make(RolloutDataModule, epoch_length=2)
    trainer = trainer_of(tmp_path)
    clock = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + PAUSE)
    capsys.readouterr()
    trainer.fit(module, data, ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    title = re.search(r"epoch 1 \| 10 env steps \| ([\d.]+) s", capsys.readouterr().out)
    assert title is not None
    assert float(title[1]) < PAUSE
    (seconds,) = (value for name, value in module.epoch_statistics["train"].items() if name.endswith("/time_epoch"))
    assert seconds < PAUSE

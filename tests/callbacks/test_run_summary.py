"""The reason why a run ended, and the commands that come next."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping, Timer

from maze_pl.callbacks import EpochTable, LastCheckpoint, RunSummary


class Idle(pl.LightningModule):
    """Learns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def configure_optimizers(self) -> Any:
        return []

    def training_step(self, batch: Any, batch_idx: int) -> None: ...

    def train_dataloader(self) -> list[int]:
        return [0]


LIMIT = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("timers", "options", "reason", "option"),
    [
        (
            [],
            {"max_time": LIMIT},
            "the time limit of trainer.max_time was reached",
            "--trainer.max_time null",
        ),
        ([Timer(LIMIT)], {}, "the time limit of a Timer was reached; trainer.callbacks sets it", None),
        ([Timer(timedelta(days=1))], {}, "max_epochs=2 reached", "--trainer.max_epochs 4"),
    ],
    ids=["max_time", "Timer", "epochs"],
)
def test_a_command_is_suggested_if_it_continues_the_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    timers: list[Timer],
    options: dict[str, Any],
    reason: str,
    option: str | None,
) -> None:
    trainer = pl.Trainer(
        default_root_dir=tmp_path,
        max_epochs=2,
        callbacks=[*timers, EpochTable(), LastCheckpoint(), RunSummary("run")],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(Idle())
    ended, _, *lines = capsys.readouterr().out.partition("ended: ")[2].splitlines()
    assert ended == reason
    assert lines[:3] == ["run directory: run", "next:", "  maze-pl validate run"]
    assert lines[3:] == ([f"  maze-pl fit --resume run {option}"] if option else [])


class Measuring(Idle):
    """Logs the number of the epoch."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.log("x", float(self.trainer.current_epoch), batch_size=1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"patience": 2}, "x has not improved for 2 checks"),
        ({"stopping_threshold": 1.5, "mode": "max"}, "Stopping threshold reached: x = 2.0 > 1.5"),
        ({"patience": 9}, None),
    ],
)
def test_lightnings_early_stopping_is_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any], reason: str | None
) -> None:
    trainer = pl.Trainer(
        default_root_dir=tmp_path,
        max_epochs=5,
        callbacks=[EarlyStopping("x", **options), EpochTable(), LastCheckpoint(), RunSummary("run")],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Measuring())
    ended, _, *lines = capsys.readouterr().out.partition("ended: ")[2].splitlines()
    if reason is None:
        assert ended == "max_epochs=5 reached"
        return
    assert ended == f"EarlyStopping: {reason}; to continue, leave EarlyStopping out of trainer.callbacks"
    assert lines == ["run directory: run", "next:", "  maze-pl validate run"]


def test_a_run_that_saves_nothing_suggests_no_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unsaved = "fast_dev_run; no checkpoint was written"
    for options, reason in (({"fast_dev_run": 2}, unsaved), ({}, "max_epochs=1 reached")):
        saves = [LastCheckpoint()] if options else []
        trainer = pl.Trainer(
            default_root_dir=tmp_path,
            max_epochs=1,
            callbacks=[EpochTable(), *saves, RunSummary("run")],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=bool(options),
            enable_progress_bar=False,
            enable_model_summary=False,
            **options,
        )
        trainer.fit(Idle())
        ended, _, *lines = capsys.readouterr().out.partition("ended: ")[2].splitlines()
        assert (ended, lines) == (reason, ["run directory: run"])


def test_a_resumed_run_that_is_stopped_at_once_still_has_its_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = LastCheckpoint()
    last.dirpath = str(tmp_path)
    summary = RunSummary("run")
    callbacks = [EpochTable(), last, summary]
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, callbacks=callbacks)
    for is_written, n_lines in ((False, 0), (True, 3)):
        if is_written:
            (tmp_path / "last.ckpt").touch()
        summary.on_train_start(trainer, Idle())
        summary.on_train_end(trainer, Idle())
        lines = capsys.readouterr().out.partition("run directory: run\n")[2].splitlines()
        assert len(lines) == n_lines

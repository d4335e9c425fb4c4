"""The callback by itself, with a Trainer from Python: checkpoint, exit status, handlers, and what it resumes to."""

from __future__ import annotations

import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.callbacks import LastCheckpoint, StopOnSignal
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.modules import A2C
from maze_pl.system.signals import StoppedBySignal, StopSignals
from tests.distributed.cartpole import make
from tests.faults.moments import FailAt, SignalAt

NUMBERS = [signal.SIGINT, signal.SIGTERM]


def fit(
    folder: Path,
    *callbacks: pl.Callback,
    ckpt_path: Path | None = None,
    every_n_epochs: int = 1,
    patience: float = 10.0,
    run_dir: str | None = None,
    **options: Any,
) -> A2C:
    module, data = make(RolloutDataModule, epoch_length=3, **options)
    with StopSignals(patience=patience) as signals:
        trainer = pl.Trainer(
            max_epochs=2,
            accelerator="cpu",
            devices=1,
            logger=False,
            callbacks=[LastCheckpoint(every_n_epochs, str(folder)), StopOnSignal(signals, run_dir), *callbacks],
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(module, data, ckpt_path=ckpt_path, weights_only=True if ckpt_path else None)
    return module


@pytest.mark.parametrize(
    ("number", "hook", "env_steps"),
    [(signal.SIGINT, "batch_start", 10), (signal.SIGTERM, "validation_start", 15)],
)
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


def test_the_command_to_continue_can_be_pasted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoppedBySignal):
        fit(tmp_path, SignalAt("batch_start"), run_dir="outputs/größer run")
    assert "; to continue: maze-pl fit --resume 'outputs/größer run'\n" in capfd.readouterr().err


class EndlessAt(TimeLimitWrapper):
    """CartPole that sends a signal to its process in a step, and never returns from it."""

    def __init__(self, env: Any, at: int) -> None:
        super().__init__(env, max_episode_steps=1000)
        self.left = at

    def step(self, action: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGTERM)
            while True:
                signal.pause()
        return super().step(action)


@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
@pytest.mark.parametrize(("at", "is_kept"), [(3, False), (17, True)], ids=["first epoch", "second epoch"])
def test_a_rollout_that_does_not_end_after_a_signal_is_given_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], at: int, is_kept: bool
) -> None:
    before = [signal.getsignal(one) for one in [*NUMBERS, signal.SIGALRM]]
    with pytest.raises(StoppedBySignal) as stopped:
        fit(tmp_path, patience=0.01, evaluators={}, wrappers=[partial(EndlessAt, at=at)])
    assert stopped.value.code == 128 + signal.SIGTERM
    said = "progress since the last checkpoint is lost" if is_kept else "there is no checkpoint yet"
    where = r"a rollout or an evaluation that took more than 0 s longer \(at test_stop_on_signal.py:\d+ in step\)"
    assert re.search(f"stopped by SIGTERM in {where}: {said}", capfd.readouterr().err)
    assert [signal.getsignal(one) for one in [*NUMBERS, signal.SIGALRM]] == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0
    if is_kept:
        assert torch.load(tmp_path / "last.ckpt", weights_only=True)["maze_pl"]["env_steps"] == 15
        assert fit(tmp_path, ckpt_path=tmp_path / "last.ckpt", evaluators={}, wrappers=[]).env_steps == 2 * 3 * 5


class EndlessEnd(pl.Callback):
    """Does something after training that never ends, and during which there is a signal."""

    def on_train_end(self, *_: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        while True:
            signal.pause()


def test_nothing_is_lost_by_a_signal_after_training(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoppedBySignal) as stopped:
        fit(tmp_path, EndlessEnd(), patience=0.01)
    assert stopped.value.code == 128 + signal.SIGTERM
    said = capfd.readouterr().err
    assert ": nothing that was learned is lost" in said and "progress" not in said
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["maze_pl"]["env_steps"] == 2 * 3 * 5


class Slow(pl.Callback):
    """Takes longer than there is patience for while something is learned, and while it is written."""

    def on_train_batch_start(self, *_: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    def on_before_optimizer_step(self, *_: Any) -> None:
        signal.raise_signal(signal.SIGALRM)

    def on_save_checkpoint(self, *_: Any) -> None:
        signal.raise_signal(signal.SIGALRM)


def test_learning_and_writing_are_never_given_up(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoppedBySignal):
        fit(tmp_path, Slow(), patience=100.0)
    assert "stopped by SIGTERM after 5 env steps" in capfd.readouterr().err
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["maze_pl"]["env_steps"] == 5


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

"""Runs that end within an epoch, and are continued to the end of the whole run, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.callbacks import EarlyStopping, LastCheckpoint, StopAtReturn, StopOnSignal
from maze_pl.datamodules import RolloutDataModule
from maze_pl.modules import A2C
from maze_pl.system.signals import StoppedBySignal, StopSignals
from tests.distributed.cartpole import make
from tests.exact.comparison import comparable, differences, without_times
from tests.faults.moments import SignalAt

pytestmark = pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")  # other callbacks

LENGTH = 4  # rollouts in an epoch, of 5 env steps, each of which is one step of the optimiser
EPOCHS = 2
OVER_EPOCHS = {"val_check_interval": 3, "check_val_every_n_epoch": None}
WITHOUT = {"limit_val_batches": 0}


class StopAfter(pl.Callback):
    """Ends training after some batches of this command, as the `Timer` of `max_time` does."""

    def __init__(self, n_batches: int) -> None:
        self.left = n_batches

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.left -= 1
        trainer.should_stop = trainer.should_stop or self.left == 0


class StopsItself(A2C):
    """Ends training after its second batch, once callbacks have seen the end of the batch."""

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_end(outputs, batch, batch_idx)
        self.trainer.should_stop = self.trainer.fit_loop.total_batch_idx == 1


def fit(
    folder: Path,
    *callbacks: pl.Callback,
    ckpt_path: Path | None = None,
    every_n_epochs: int = 1,
    kind: type[A2C] = A2C,
    **options: Any,
) -> dict[str, Any]:
    """Return what must be equal in `last.ckpt` after a command."""
    pl.seed_everything(1, verbose=False)
    module, data = make(RolloutDataModule, epoch_length=LENGTH)
    module.capture = "off"  # tracing takes longer than these runs
    module.__class__ = kind
    given = {"max_epochs": EPOCHS, **options}
    with StopSignals(patience=10.0) as signals:
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            logger=False,
            callbacks=[*callbacks, LastCheckpoint(every_n_epochs, str(folder)), StopOnSignal(signals)],
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            **given,
        )
        trainer.fit(module, data, ckpt_path=ckpt_path, weights_only=True if ckpt_path else None)
    return last(folder)


def last(folder: Path) -> dict[str, Any]:
    path = folder / "last.ckpt"
    loops = torch.load(path, weights_only=True)["loops"]["fit_loop"]
    kept: dict[str, Any] = without_times({**comparable(path), "loops": loops})
    kept["maze_pl"]["ranks"] = [without_times(rank) for rank in kept["maze_pl"]["ranks"]]
    return kept


def n_batches(kept: dict[str, Any]) -> int:
    """Return the number of batches in a run so far, and check that all of its counters agree."""
    done: int = kept["loops"]["epoch_loop.batch_progress"]["total"]["processed"]
    assert kept["maze_pl"]["env_steps"] == 5 * done
    assert kept["global_step"] == done
    return done


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function for the end of the whole run with given options."""
    known: dict[str, dict[str, Any]] = {}

    def run(options: dict[str, Any]) -> dict[str, Any]:
        if str(options) not in known:
            known[str(options)] = fit(tmp_path_factory.mktemp("whole"), **options)
        return known[str(options)]

    return run


ENDS: dict[str, tuple[int, Any, dict[str, Any]]] = {  # batches at the end, what ends the run, options
    "steps": (2, {"max_steps": 2}, {}),
    "steps, evaluation due": (2, {"max_steps": 2}, {"val_check_interval": 0.5}),
    "steps, evaluation due over epochs": (6, {"max_steps": 6}, OVER_EPOCHS),
    "steps, second epoch": (7, {"max_steps": 7}, OVER_EPOCHS),
    "steps, last batch of an epoch": (4, {"max_steps": 4, "every_n_epochs": 5}, {}),
    "steps, rare checkpoints": (5, {"max_steps": 5, "every_n_epochs": 5}, {}),
    "time": (2, lambda: StopAfter(2), {}),
    "time, evaluation due": (2, lambda: StopAfter(2), {"val_check_interval": 0.5}),
    "time, without evaluation": (6, lambda: StopAfter(6), WITHOUT),
    "time, last batch of an epoch": (4, lambda: StopAfter(4), {}),
    "return": (2, lambda: StopAtReturn(0.0), {"val_check_interval": 2}),
    "return over epochs": (3, lambda: StopAtReturn(0.0), OVER_EPOCHS),
    "patience": (6, lambda: EarlyStopping(1, min_delta=1e9), OVER_EPOCHS),
    "patience in batches": (2, lambda: EarlyStopping(1, min_delta=1e9), {"val_check_interval": 1}),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_run_that_ended_within_an_epoch_ends_as_the_whole_run(tmp_path: Path, whole: Any, name: str) -> None:
    at, reason, options = ENDS[name]
    callbacks, limits = ([], reason) if isinstance(reason, dict) else ([reason()], {})
    assert n_batches(fit(tmp_path, *callbacks, **options, **limits)) == at
    continued = fit(tmp_path, ckpt_path=tmp_path / "last.ckpt", **options)
    assert n_batches(continued) == LENGTH * EPOCHS
    assert differences(whole(options), continued) == []


@pytest.mark.parametrize("first", [{"max_steps": 4}, {"max_steps": 3}, {"max_epochs": 1}], ids=str)
def test_a_limit_of_steps_can_be_raised(tmp_path: Path, first: dict[str, Any]) -> None:
    wanted = fit(tmp_path / "whole", max_steps=7)
    assert n_batches(wanted) == 7
    fit(tmp_path, **first)
    assert differences(wanted, fit(tmp_path, ckpt_path=tmp_path / "last.ckpt", max_steps=7)) == []


def test_an_epoch_counts_once_if_a_run_gets_a_limit_of_steps_that_it_does_not_reach(tmp_path: Path, whole: Any) -> None:
    fit(tmp_path, max_epochs=1)
    continued = fit(tmp_path, ckpt_path=tmp_path / "last.ckpt", max_steps=1000)
    assert differences(whole({}), continued) == []


def test_a_module_that_ends_training_itself_loses_no_rollout(tmp_path: Path) -> None:
    assert n_batches(fit(tmp_path, kind=StopsItself, **WITHOUT)) == 2
    assert n_batches(fit(tmp_path, ckpt_path=tmp_path / "last.ckpt", **WITHOUT)) == LENGTH * EPOCHS


@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_a_signal_skips_no_evaluation_that_is_counted_over_epochs(tmp_path: Path, whole: Any, batch: int) -> None:
    with pytest.raises(StoppedBySignal):
        fit(tmp_path, SignalAt("batch_start", count=batch), **OVER_EPOCHS)
    stopped = n_batches(last(tmp_path))
    assert stopped == (batch + 1 if (batch + 1) % 3 else batch + 2)
    assert differences(whole(OVER_EPOCHS), fit(tmp_path, ckpt_path=tmp_path / "last.ckpt", **OVER_EPOCHS)) == []


def test_a_signal_after_an_early_end_keeps_its_checkpoint(tmp_path: Path, whole: Any) -> None:
    with pytest.raises(StoppedBySignal):
        fit(tmp_path, StopAfter(2), SignalAt("validation_start"))
    assert n_batches(last(tmp_path)) == 2
    assert differences(whole({}), fit(tmp_path, ckpt_path=tmp_path / "last.ckpt")) == []

"""Callbacks and loggers given to RunContext as objects."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.callbacks import LearningRateMonitor
from pytorch_lightning.loggers import CSVLogger

from maze_pl import RunContext, load
from maze_pl.config.search_path import ConfigurationError
from maze_pl.config.trust import foreign_names
from tests.run_context.small_run import SMALL

PRECISION = {"class_path": "maze_pl.callbacks.MatmulPrecision"}


class Counting(pl.Callback):
    """Records the number of epochs that it has seen, which checkpoints keep."""

    def __init__(self) -> None:
        self.n_epochs = 0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.n_epochs += 1
        pl_module.record("n_epochs", torch.tensor(float(self.n_epochs)))

    def state_dict(self) -> dict[str, Any]:
        return {"n_epochs": self.n_epochs}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.n_epochs = state_dict["n_epochs"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def described(**options: Any) -> Any:
    """Return the value of the last of some options of the trainer, as it is in the command of a context."""
    overrides = {f"trainer.{name}": value for name, value in options.items()}
    return yaml.safe_load(RunContext(algorithm="a2c", overrides=overrides).command[-1])


def stand_in(kind: str, name: str, description: str) -> dict[str, Any]:
    arguments = {"name": name, "description": description}
    return {"class_path": f"maze_pl.run_context.given.{kind}", "init_args": arguments}


def column(run: Path | str, name: str) -> list[float]:
    with Path(run, "metrics.csv").open() as file:
        return [float(row[name]) for row in csv.DictReader(file)]


def test_callbacks_and_loggers_have_stand_ins_alone_and_in_lists() -> None:
    assert described(callbacks=Counting()) == stand_in("callback", "trainer.callbacks", "a Counting")
    first = stand_in("callback", "trainer.callbacks.0", "a Counting")
    last = stand_in("callback", "trainer.callbacks.2", "a LearningRateMonitor")
    assert described(callbacks=[Counting(), PRECISION, LearningRateMonitor()]) == [first, PRECISION, last]
    assert described(callbacks=[Counting]) == [{"class_path": f"{__name__}.Counting"}]
    assert described(logger=CSVLogger("logs")) == stand_in("logger", "trainer.logger", "a CSVLogger")
    assert described(logger=[CSVLogger("logs")]) == [stand_in("logger", "trainer.logger.0", "a CSVLogger")]


def test_a_saved_configuration_with_callbacks_and_loggers_needs_no_trust() -> None:
    options = {"callbacks": [Counting(), PRECISION, LearningRateMonitor()], "logger": [CSVLogger("a"), CSVLogger("b")]}
    overrides = {f"trainer.{name}": value for name, value in options.items()}
    saved = RunContext(algorithm="a2c", overrides={**SMALL, **overrides}, silent=True).assembled()
    first, precision, last = saved["trainer"]["callbacks"]
    assert first == stand_in("callback", "trainer.callbacks.0", "a Counting")
    assert precision["class_path"] == "maze_pl.callbacks.MatmulPrecision"
    assert last == stand_in("callback", "trainer.callbacks.2", "a LearningRateMonitor")
    assert saved["trainer"]["logger"][1] == stand_in("logger", "trainer.logger.1", "a CSVLogger")
    assert foreign_names(saved) == []


@pytest.mark.slow
def test_each_training_starts_from_copies_of_callbacks_and_loggers() -> None:
    counting = Counting()
    logger = {"class_path": "pytorch_lightning.loggers.CSVLogger", "init_args": {"save_dir": "described"}}
    trainer = {"trainer.callbacks": [counting, PRECISION], "trainer.logger": [CSVLogger("given"), logger]}
    context = RunContext(algorithm="a2c", overrides={**SMALL, **trainer}, silent=True)
    context.train(2)
    runs = [context.run_directory]
    context.train(1)
    runs.append(context.run_directory)
    counts = [column(run, "train_ActorCriticEvents/n_epochs") for run in runs]
    assert counts == [[1.0, 2.0], [1.0]]
    assert counting.n_epochs == 0
    for folder in ("given", "described"):
        assert len(list(Path(folder).rglob("metrics.csv"))) == 2
    assert context.evaluate()
    assert load(context.run_directory).networks is not None


@pytest.mark.slow
def test_a_run_continues_with_callbacks_that_are_passed_again() -> None:
    trainer = {"trainer.callbacks": Counting(), "trainer.logger": CSVLogger("given")}
    RunContext(algorithm="a2c", overrides={**SMALL, **trainer}, run_dir="run", silent=True).train(1)
    message = (
        r"given trainer.logger \(a CSVLogger\), trainer.callbacks \(a Counting\) .* overrides=\{'trainer.logger': "
    )
    with pytest.raises(ConfigurationError, match=message):
        RunContext(run_dir="run", silent=True).train(2)
    resumed = RunContext(run_dir="run", overrides=trainer, silent=True)
    assert resumed.continues
    resumed.train(2)
    resumed.train(3)
    assert column("run", "train_ActorCriticEvents/n_epochs") == [1.0, 2.0, 3.0]

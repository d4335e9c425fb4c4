"""A callback that writes down what a run should have logged, and lets it begin late or end suddenly."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from matplotlib.figure import Figure

from maze_pl.core.histogram import Histogram
from maze_pl.envs.rendering import figure_to_array
from maze_pl.loggers.dashboard import dashboards
from maze_pl.modules.algorithm import AlgorithmModule


class Probe(pl.Callback):
    """Adds a line to a file for each epoch: its env steps and statistics.

    Args:
        path: The file.
        begin_at: Env steps that a new run is said to have done before.
        kill_in_epoch: In this one (from 0) the process is killed, after it was logged and before it is saved.
    """

    def __init__(self, path: str, begin_at: int = 0, kill_in_epoch: int | None = None) -> None:
        self.path, self.begin_at, self.kill_in_epoch = Path(path), begin_at, kill_in_epoch

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: AlgorithmModule) -> None:  # type: ignore[override]
        if pl_module.env_steps == 0:
            pl_module.env_steps = self.begin_at

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: AlgorithmModule) -> None:  # type: ignore[override]
        picture = np.full((8, 6, 3), 10 * trainer.current_epoch, dtype=np.uint8)
        pictures = {"probe/picture": picture, "probe/figure": figure_to_array(_figure())}
        for dashboard in dashboards(trainer):
            dashboard.log_images(pictures, pl_module.env_steps)
            dashboard.save()
        if self.kill_in_epoch == trainer.current_epoch:
            time.sleep(2.5)  # time for what writes in the background
            os.kill(os.getpid(), signal.SIGKILL)
        tables = {
            source: {name: _plain(value) for name, value in table.items()}
            for source, table in pl_module.epoch_statistics.items()
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"env_steps": pl_module.env_steps, "tables": tables}) + "\n")


def _figure() -> Figure:
    figure = Figure(figsize=(1, 1))
    figure.add_subplot().plot([0, 1])
    return figure


def _plain(value: Any) -> Any:
    if isinstance(value, Histogram):
        return {"values": value.values.tolist(), "counts": value.counts.tolist(), "mean": value.mean}
    return value


def expected(path: Path) -> dict[int, dict[str, Any]]:
    """By env steps, all statistics of an epoch under the names that loggers give them."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {
        line["env_steps"]: {
            f"{source}_{name}": value for source, table in line["tables"].items() for name, value in table.items()
        }
        for line in lines
    }


def option(path: Path, **arguments: Any) -> str:
    """The command line's option that adds a probe."""
    node = {"class_path": "tests.run_directory.probe.Probe", "init_args": {"path": str(path), **arguments}}
    return f"--trainer.callbacks+={json.dumps(node)}"

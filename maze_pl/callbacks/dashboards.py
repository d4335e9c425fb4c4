"""What dashboards show beside numbers: the run's configuration, hyper-parameters, distributions, and networks.

Lightning's loggers take numbers. Ours take these, too, each in the way of its dashboard, over env steps.
"""

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers.logger import Logger

from maze_pl.callbacks.epoch_table import say
from maze_pl.core.output_folder import write_file
from maze_pl.envs.rendering import figure_to_array
from maze_pl.events.histogram import Histogram
from maze_pl.events.plots import require_matplotlib
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.perception.drawing import actor_critic_graphs, draw, render
from maze_pl.yaml_text import dump

N_BINS = 64
Bins = tuple[np.ndarray, np.ndarray]  # counts [n] and edges [n + 1]


class Dashboard(Logger):
    """A logger that takes more than numbers; everything happens on the first rank only."""

    @property
    @abstractmethod
    def view_command(self) -> str:
        """The command with which somebody gets to see the run; empty if there is nothing to see."""

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Nothing: `begin` logs the whole configuration, not only that of the module."""

    @abstractmethod
    def begin(self, config: str, command: str, env_steps: int) -> None:
        """Begin, or go on with a run; points that were logged beyond are not shown any more, or not logged again.

        Args:
            config: The configuration, as YAML.
            command: The command line.
            env_steps: Where the run goes on.
        """

    @abstractmethod
    def log_distributions(self, distributions: Mapping[str, Bins], env_steps: int) -> None:
        """Log distributions by name."""

    @abstractmethod
    def log_images(self, images: Mapping[str, Any], env_steps: int) -> None:
        """Log pictures by name: matplotlib figures, or arrays `[height, width, 3]` of bytes or of numbers in 0 to 1."""


class Distributions(Callback):
    """Logs histograms and the plots of events, where a logger takes them, and has what was logged written to disk."""

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log those of the evaluation."""
        if not trainer.sanity_checking:
            self._log(trainer, pl_module, of_training=False)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log those of training."""
        self._log(trainer, pl_module, of_training=True)

    def _log(self, trainer: pl.Trainer, module: pl.LightningModule, of_training: bool) -> None:
        if not isinstance(module, AlgorithmModule):
            return
        for source, values in module.epoch_statistics.items():
            if (source == "train") == of_training:
                log_epoch(dashboards(trainer), source, values, module.epoch_plots[source], module.env_steps)


class NetworkPictures(Callback):
    """Draws policy and critic after the first epoch, as `networks/<name>.svg` and `.png`, and logs the pictures.

    A resumed run draws what is missing. Without matplotlib it says so, and draws nothing.

    Args:
        run_dir: The run directory.
    """

    def __init__(self, run_dir: str) -> None:
        self._folder: Path | None = Path(run_dir, "networks")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw, when the first epoch ends: importing matplotlib would delay the first step."""
        folder, self._folder = self._folder, None
        if folder is None or not trainer.is_global_zero or not isinstance(pl_module, AlgorithmModule):
            return
        try:
            require_matplotlib("drawing the networks")
            graphs = actor_critic_graphs(pl_module.networks)
        except Exception as error:  # of any kind: a network may be the user's, and learns whether it is drawn or not
            say(trainer, f"no pictures of the networks: {error}")
            return
        for name, graph in graphs.items():
            svg, png = (folder / f"{quote(name, safe='')}.{form}" for form in ("svg", "png"))
            if trainer.ckpt_path is not None and svg.is_file() and png.is_file():
                continue
            figure = draw(graph, name)
            for path in (svg, png):
                write_file(path, render(figure, path.suffix[1:]))
            for dashboard in dashboards(trainer):
                dashboard.log_images({f"networks/{name}": figure_to_array(figure)}, pl_module.env_steps)


def log_epoch(
    loggers: Iterable[Logger], source: str, values: Mapping[str, Any], plots: Mapping[str, Any], env_steps: int
) -> None:
    """Log an epoch's distributions and plots where a logger takes them, and have what was logged written to disk.

    Args:
        loggers: Those that are dashboards get it.
        source: What the names begin with, such as `train`.
        values: `<Topic>/<event>/<statistic>` -> value, those that are histograms among others.
        plots: Figures by such names; matplotlib's are closed.
        env_steps: Where it is logged.
    """
    found = {name: bins(value) for name, value in values.items() if isinstance(value, Histogram)}
    histograms = {f"{source}_{name}/histogram": counted for name, counted in found.items() if counted is not None}
    for logger in loggers:
        if isinstance(logger, Dashboard):
            logger.log_distributions(histograms, env_steps)
            logger.log_images({f"{source}_{name}": image for name, image in plots.items()}, env_steps)
        logger.save()
    for image in plots.values():
        if "matplotlib.pyplot" in sys.modules and not isinstance(image, np.ndarray):
            sys.modules["matplotlib.pyplot"].close(image)  # which would keep all figures that it has made


def dashboards(trainer: pl.Trainer) -> list[Dashboard]:
    """The trainer's loggers that are dashboards; none but on the first rank."""
    return [one for one in trainer.loggers if isinstance(one, Dashboard) and trainer.is_global_zero]


def bins(histogram: Histogram) -> Bins | None:
    """Counts and edges: a bin for each of few whole numbers, else 64; None if no value is finite."""
    finite = np.isfinite(histogram.values)
    values, counts = histogram.values[finite].astype(np.float64), histogram.counts[finite]
    if not len(values):
        return None
    are_few_whole = values[-1] - values[0] < N_BINS and np.array_equal(values, np.round(values))
    edges = np.arange(values[0] - 0.5, values[-1] + 1.0) if are_few_whole else N_BINS
    return np.histogram(values, edges, weights=counts)


def hyperparameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of data and model as a flat table: `model` is a class, `model.lr` a number; lists are texts."""
    return dict(row for name in ("seed_everything", "model", "data") for row in _rows(name, config.get(name)))


def _rows(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and "class_path" in value:
        yield name, value["class_path"].rpartition(".")[2]
        value = value.get("init_args") or {}
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _rows(f"{name}.{key}", item)
    elif value is not None:
        yield name, dump(value) if isinstance(value, list) else value

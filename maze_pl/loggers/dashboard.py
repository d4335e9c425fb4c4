"""Dashboards: loggers of configurations, distributions and images besides numbers."""

import math
import sys
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytorch_lightning as pl
from lightning_fabric.utilities.logger import _flatten_dict, _sanitize_params
from pytorch_lightning.loggers.logger import Logger

from maze_pl.core.option_name import option_name
from maze_pl.envs.rendering import figure_to_array
from maze_pl.events import Histogram

X_AXIS = "env_steps"
N_BINS = 64
_LARGEST_WHOLE = 2.0**50
"""Bound below which the edges of bins around whole numbers are exact."""
Bins = tuple[np.ndarray, np.ndarray]
"""Counts [n] of the bins of a distribution, and their edges [n + 1]."""


class Dashboard(Logger):
    """A logger that takes more than numbers; it is only used on rank 0.

    Attributes:
        view_command: Command to view the run; empty if there is nothing to view.
    """

    view_command = ""

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Do nothing: `begin` logs the whole configuration, not only the module's."""

    @abstractmethod
    def begin(self, config: str, command: str, env_steps: int) -> None:
        """Begin or continue a run.

        Points that earlier commands logged beyond this step are hidden, or not logged again.

        Args:
            config: The configuration, as YAML.
            command: The command line.
            env_steps: Env steps at which the run begins or continues.
        """

    def describe_statistics(self, descriptions: Mapping[str, str]) -> None:
        """Show what statistics mean; called once, before the first are logged. Does nothing by default.

        Args:
            descriptions: "<Topic>/<event>" -> description in one line, for statistics named
                "<source>_<Topic>/<event>" or "<source>_<Topic>/<event>/...".
        """

    def conclude(self, results: Mapping[str, float], env_steps: int) -> None:
        """Log the results of the final evaluation, for comparison with other runs. Does nothing by default.

        Args:
            results: "final_<evaluator>/<best or last>/<return or KPI>" -> mean over its episodes.
            env_steps: Env steps at the end of the run.
        """

    @abstractmethod
    def log_distributions(self, distributions: Mapping[str, Bins], env_steps: int) -> None:
        """Log distributions by name."""

    @abstractmethod
    def log_images(self, images: Mapping[str, Any], env_steps: int) -> None:
        """Log images by name: arrays `[height, width, 3]` of bytes or of numbers in 0 to 1."""

    def log_page(self, name: str, page: str, picture: np.ndarray | None, env_steps: int) -> None:
        """Log an HTML page; logs its picture by default.

        Args:
            name: Name of the page.
            page: The self-contained page.
            picture: Picture for dashboards that show no pages, `[height, width, 3]` bytes, if there is one.
            env_steps: Env steps so far.
        """
        if picture is not None:
            self.log_images({name: picture}, env_steps)


def log_epoch(
    loggers: Iterable[Logger], source: str, values: Mapping[str, Any], plots: Mapping[str, Any], env_steps: int
) -> None:
    """Log an epoch's distributions and plots to dashboards, and flush all loggers to disk.

    Args:
        loggers: All loggers; only dashboards get distributions and plots.
        source: Prefix of the names, such as `train`.
        values: `<Topic>/<event>/<statistic>` -> value; only histograms are logged.
        plots: Matplotlib figures, or arrays, by such names.
        env_steps: Position on the x axis.
    """
    histograms: dict[str, Bins] = {}
    for name, value in values.items():
        counted = bins(value) if isinstance(value, Histogram) else None
        if counted is not None:
            histograms[f"{source}_{name}/histogram"] = counted
    images = {f"{source}_{name}": as_array(image) for name, image in plots.items()}
    for logger in loggers:
        if isinstance(logger, Dashboard):
            logger.log_distributions(histograms, env_steps)
            logger.log_images(images, env_steps)
        logger.save()


def as_array(image: Any) -> np.ndarray:
    """Convert an image to an array; figures are closed, as matplotlib's pyplot would keep them."""
    if isinstance(image, np.ndarray):
        return image
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(image)
    return figure_to_array(image)


def dashboards(trainer: pl.Trainer) -> list[Dashboard]:
    """Return the trainer's dashboards; empty except on rank 0."""
    if not trainer.is_global_zero:
        return []
    return [logger for logger in trainer.loggers if isinstance(logger, Dashboard)]


def bins(histogram: Histogram) -> Bins | None:
    """Return counts and edges: one bin per integer if few, else 64; None if no value is finite.

    Numbers that hardly differ, so that 64 bins between them would have no width, share one bin.
    """
    finite = np.isfinite(histogram.values)
    values, counts = histogram.values[finite].astype(np.float64), histogram.counts[finite]
    if not len(values):
        return None
    low, high = float(values[0]), float(values[-1])
    largest = max(abs(low), abs(high))
    smallest_width = 8.0 * math.ulp(largest)  # edges and this width itself are rounded
    if largest < _LARGEST_WHOLE and high - low < N_BINS and np.array_equal(values, np.round(values)):
        edges = np.arange(low - 0.5, high + 1.0)
    elif high / N_BINS - low / N_BINS < smallest_width:
        margin = max(0.5, smallest_width)
        edges = np.clip([low - margin, high + margin], -sys.float_info.max, sys.float_info.max)
    else:
        share = np.linspace(0.0, 1.0, N_BINS + 1)
        edges = low * (1.0 - share) + high * share  # no intermediate result overflows
    return np.histogram(values, edges, weights=counts)


def description_of(name: str, descriptions: Mapping[str, str]) -> str | None:
    """Return the description of a logged statistic, None if it has none.

    Args:
        name: "<source>_<Topic>/<event>" or "<source>_<Topic>/<event>/<statistic>".
        descriptions: "<Topic>/<event>" -> description.

    Example:
        >>> description_of("train_A/loss/substep_0", {"A/loss": "mean loss"})
        'mean loss'
    """
    section, _, rest = name.partition("/")
    event = rest.partition("/")[0]
    while "_" in section:  # the name of the source may contain underscores
        section = section.partition("_")[2]
        if f"{section}/{event}" in descriptions:
            return descriptions[f"{section}/{event}"]
    return None


def hyperparameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten the configuration of data and model, as in `model.lr`; lists become texts.

    If the configuration lists `hyperparameters`, these options are returned, of whatever part. The
    value of an option that is an object is the name of its class.

    Args:
        config: The configuration of a run.
    """
    named = config.get("hyperparameters")
    if named is None:
        parts = {name: config[name] for name in ("seed_everything", "model", "data") if name in config}
        flat = _sanitize_params(_flatten_dict(parts, delimiter="."))
        return {option_name(name): value for name, value in flat.items() if value != "None"}
    chosen: dict[str, Any] = {}
    for name in map(option_name, named):
        value = _configured(config, name)
        if isinstance(value, Mapping):
            path = value.get("class_path")
            value = None if path is None else str(path).rpartition(".")[2]
        if value is not None:
            chosen[name] = value
    return _sanitize_params(chosen)


def _configured(config: Mapping[str, Any], name: str) -> Any:
    """Return the value of an option in a configuration; None if there is none.

    Args:
        config: The configuration of a run.
        name: The option; names below a list are those of its last item.
    """
    node: Any = config
    for key in name.split("."):
        if isinstance(node, list) and node:
            node = node[-1]
        if not isinstance(node, Mapping):
            return None
        arguments = node.get("init_args")
        holder = arguments if isinstance(arguments, Mapping) and key in arguments else node
        node = holder.get(key, arguments if key == "dict_kwargs" else None)  # named ones are among the arguments
    return node

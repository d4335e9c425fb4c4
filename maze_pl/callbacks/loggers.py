"""Where a run goes, over env steps: metrics.csv, and the dashboards of TensorBoard and Weights & Biases.

Lightning's loggers take numbers. Our dashboards take the run's configuration, its hyper-parameters, distributions and
pictures, too. A resumed run goes on with all of them. Lightning's own CSV logger would start its file anew, and keeps
what was not flushed in memory. W&B is imported only where a run asks for it; all its files lie in the run directory.
"""

import contextlib
import csv
import io
import json
import os
import shlex
import sys
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import yaml
from lightning_fabric.loggers.logger import rank_zero_experiment
from lightning_fabric.utilities.logger import _flatten_dict, _sanitize_params
from lightning_utilities.core.imports import lazy_import
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.loggers.logger import Logger
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from torch.utils.tensorboard.summary import hparams

from maze_pl.core.output_folder import write_file
from maze_pl.envs.trajectory_record import figure_to_array
from maze_pl.events import Histogram

X_AXIS = "env_steps"
_COMPARED = ("eval_BaseEnvEvents/reward/mean", "train_BaseEnvEvents/reward/mean")
wandb = lazy_import("wandb")
N_BINS = 64
Bins = tuple[np.ndarray, np.ndarray]  # counts [n] and edges [n + 1]


class Dashboard(Logger):
    """A logger that takes more than numbers; everything happens on the first rank only.

    Attributes:
        view_command: The command with which somebody gets to see the run; empty if there is nothing to see.
    """

    view_command = ""

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
        """Log pictures by name: arrays `[height, width, 3]` of bytes or of numbers in 0 to 1."""


def log_epoch(
    loggers: Iterable[Logger], source: str, values: Mapping[str, Any], plots: Mapping[str, Any], env_steps: int
) -> None:
    """Log an epoch's distributions and plots where a logger takes them, and have what was logged written to disk.

    Args:
        loggers: Those that are dashboards get it.
        source: What the names begin with, such as `train`.
        values: `<Topic>/<event>/<statistic>` -> value, those that are histograms among others.
        plots: Figures of matplotlib, or arrays, by such names.
        env_steps: Where it is logged.
    """
    found = {name: bins(value) for name, value in values.items() if isinstance(value, Histogram)}
    histograms = {f"{source}_{name}/histogram": counted for name, counted in found.items() if counted is not None}
    images = {f"{source}_{name}": as_array(image) for name, image in plots.items()}
    for logger in loggers:
        if isinstance(logger, Dashboard):
            logger.log_distributions(histograms, env_steps)
            logger.log_images(images, env_steps)
        logger.save()


def as_array(image: Any) -> np.ndarray:
    """A picture as numbers; a figure of matplotlib's pyplot, which would keep all that it has made, is closed."""
    if isinstance(image, np.ndarray):
        return image
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(image)
    return figure_to_array(image)


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
    """The configuration of data and model as a flat table: `model.class_path`, `model.lr`; lists are texts."""
    given = {name: config[name] for name in ("seed_everything", "model", "data") if name in config}
    table = _sanitize_params(_flatten_dict(given, delimiter="."))
    return {name.replace(".init_args", ""): value for name, value in table.items() if value != "None"}


class MetricsFile(Logger):
    """Writes metrics to one CSV file; the column `step` counts env steps.

    Args:
        save_dir: Folder of the file.
        filename: Its name.
    """

    def __init__(self, save_dir: str, filename: str = "metrics.csv") -> None:
        super().__init__()
        self.save_dir, self._path = save_dir, Path(save_dir, filename)
        self._columns: list[str] = []
        self._row: dict[str, Any] = {}  # the last one, which stands at the offset
        self._offset = 0

    name = version = save_dir = ""  # no folders of their own for experiments and versions

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Nothing: the run directory holds the whole configuration."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append a row, or complete the last one if it is of the same step.

        Args:
            metrics: Name -> value; a new name becomes a new column.
            step: Env steps so far.
        """
        same = step is not None and self._row.get("step") == step
        numbers = {name: value if isinstance(value, int) else float(value) for name, value in metrics.items()}
        row = {**(self._row if same else {"step": step}), **numbers}
        is_new = not row.keys() <= set(self._columns)
        if is_new:
            lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.is_file() else []
            rows = list(csv.DictReader(lines))[: -1 if same else None]
            if not self._columns:  # rows of a former run that lie beyond where this one goes on are dropped
                rows = [one for one in rows if step is None or int(one["step"] or -1) < step]
            self._columns = list(dict.fromkeys([*self._columns, *(rows[0] if rows else ()), *row]))
            text = io.StringIO()
            writer = csv.DictWriter(text, self._columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
            write_file(self._path, text.getvalue().encode())
        if is_new or not same:
            self._offset = self._path.stat().st_size
        try:
            with self._path.open("r+", newline="", encoding="utf-8") as file:
                file.seek(self._offset)
                csv.DictWriter(file, self._columns, restval="").writerow(row)
                file.truncate()
        except OSError as error:  # the disk is full, for example
            os.truncate(self._path, self._offset)  # no half row
            raise OSError(error.errno, f"{self._path} cannot be written: {error.strerror}") from error
        self._row = row


class TensorBoardLog(Dashboard, TensorBoardLogger):
    """Writes event files to one folder, with configuration, hyper-parameters and distributions.

    Args:
        save_dir: The run directory.
        name: Folder of the event files in it.
    """

    def __init__(self, save_dir: str, name: str = "tensorboard") -> None:
        super().__init__(save_dir, name="", version=name, default_hp_metric=False)
        self.view_command = f"tensorboard --logdir {shlex.quote(self.log_dir)}"

    def begin(self, config: str, command: str, env_steps: int) -> None:
        """Log configuration and command as texts and, for a new run, what the HPARAMS tab compares runs by."""
        writer = self.experiment._get_file_writer()
        # TensorBoard drops everything that stands in earlier files at this step or later.
        writer.add_event(Event(step=env_steps + 1, session_log=SessionLog(status=SessionLog.START)))
        if env_steps == 0:
            parameters = hyperparameters(yaml.safe_load(config))
            for summary in hparams(parameters, dict.fromkeys(_COMPARED, 0.0))[:2]:  # type: ignore[no-untyped-call]
                writer.add_summary(summary)
        self.experiment.add_text("configuration", f"```yaml\n{config}\n```", env_steps)
        self.experiment.add_text("command", f"`{command}`", env_steps)
        self.save()

    def log_distributions(self, distributions: Mapping[str, Bins], env_steps: int) -> None:
        """Log histograms, for the tabs HISTOGRAMS and DISTRIBUTIONS."""
        for name, (counts, edges) in distributions.items():
            centres = (edges[1:] + edges[:-1]) / 2
            sums = int(counts.sum()), float(counts @ centres), float(counts @ centres**2)
            limits_and_counts = edges[1:].tolist(), counts.tolist()
            self.experiment.add_histogram_raw(name, edges[0], edges[-1], *sums, *limits_and_counts, env_steps)

    def log_images(self, images: Mapping[str, Any], env_steps: int) -> None:
        """Log pictures, for the tab IMAGES."""
        for name, image in images.items():
            self.experiment.add_image(name, image, env_steps, dataformats="HWC")

    def save(self) -> None:
        """Write to disk; there is no file of hyper-parameters, as the run directory holds the configuration."""
        self.experiment.flush()

    def finalize(self, status: str) -> None:
        """Write what is left; where the disk is full, that was said, and must not hide what a run has failed with."""
        with contextlib.suppress(OSError) if status == "failed" else contextlib.nullcontext():
            super().finalize(status)


class WandbLog(Dashboard):
    """Logs a run to Weights & Biases: online if the user is logged in, else to files that `wandb sync` uploads.

    A resumed run goes on as the same one. Its history can only be added to, so what a run that was killed had logged
    beyond its last checkpoint stays, and is not logged once more. W&B's own environment variables say where the run is
    filed, such as WANDB_PROJECT; without them that is the project `maze_pl`, named after its run directory.

    Args:
        save_dir: The run directory; files go to `wandb/` in it.
    """

    name = version = ""

    def __init__(self, save_dir: str) -> None:
        super().__init__()
        self._folder = Path(save_dir)
        self._record = self._folder / "wandb" / "maze_pl.json"
        self._run: Any = None
        self._logged: dict[str, int] = {}  # name -> env steps of its last point

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The `wandb.Run`, which is begun when somebody asks for it."""
        if self._run is not None:
            return self._run
        record = json.loads(self._record.read_text(encoding="utf-8")) if self._record.is_file() else {}
        identity, self._logged = record.get("id") or uuid.uuid4().hex[:8], record.get("logged", {})
        self._record.parent.mkdir(parents=True, exist_ok=True)  # or its files would go elsewhere
        settings: dict[str, Any] = {"console": "off", "silent": True}  # run.log has what the console said
        if "x_transaction_log_flush_interval" in getattr(wandb.Settings, "model_fields", {}):
            settings["x_transaction_log_flush_interval"] = 1.0  # of 15 seconds, which a killed run would lose
        folder = self._folder.resolve()
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "maze_pl"),
            name=os.environ.get("WANDB_NAME", folder.name),
            group=os.environ.get("WANDB_RUN_GROUP", folder.parent.name),
            id=identity,
            dir=str(folder),
            mode=os.environ.get("WANDB_MODE") or (None if is_logged_in() else "offline"),
            resume="allow" if record else None,
            settings=wandb.Settings(**settings),
        )
        if self._run.offline:  # asking for an address would make it complain
            self.view_command = f"wandb sync {shlex.quote(str(self._folder))}/wandb/offline-run-*"
        elif self._run.url:  # there is none where WANDB_MODE has disabled all of it
            self.view_command = f"python -m webbrowser {self._run.url}"
        self._run.define_metric(X_AXIS)
        self._run.define_metric("*", step_metric=X_AXIS)
        self._keep(identity)
        return self._run

    def _keep(self, identity: str) -> None:
        write_file(self._record, json.dumps({"id": identity, "logged": self._logged}).encode())

    def begin(self, config: str, command: str, env_steps: int) -> None:
        """Log the configuration, as the run's and as a text, and the command."""
        self.experiment.config.update({**yaml.safe_load(config), "command": command}, allow_val_change=True)
        texts = {"configuration": config, "command": command}
        panels = {name: wandb.Html(f"<pre>{escape(text)}</pre>", inject=False) for name, text in texts.items()}
        self.experiment.log({**panels, X_AXIS: env_steps})

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log numbers.

        Args:
            metrics: Name -> value.
            step: Env steps so far.
        """
        run = self.experiment
        if step is None:
            run.log(dict(metrics))
            return
        new = {name: value for name, value in metrics.items() if self._logged.get(name, -1) < step}
        if new:
            run.log({**new, X_AXIS: step})
            self._logged |= dict.fromkeys(new, step)
            self._keep(run.id)

    def log_distributions(self, distributions: Mapping[str, Bins], env_steps: int) -> None:
        """Log histograms."""
        self.log_metrics({name: wandb.Histogram(np_histogram=one) for name, one in distributions.items()}, env_steps)

    def log_images(self, images: Mapping[str, Any], env_steps: int) -> None:
        """Log pictures."""
        self.log_metrics({name: wandb.Image(image) for name, image in images.items()}, env_steps)

    def finalize(self, status: str) -> None:
        """End the run, as one that failed if it did."""
        if self._run is not None:
            self._run.finish(exit_code=int(status == "failed"))
            self._run = None


def is_logged_in() -> bool:
    """Whether there is a key for Weights & Biases, in the environment or in the file of `wandb login`."""
    from requests.utils import get_netrc_auth  # wandb needs it, too

    server = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    return bool(os.environ.get("WANDB_API_KEY")) or get_netrc_auth(server) is not None

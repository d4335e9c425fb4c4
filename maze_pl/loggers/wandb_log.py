"""Logger for Weights & Biases."""

import json
import os
import shlex
import uuid
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import yaml
from lightning_fabric.loggers.logger import rank_zero_experiment
from lightning_utilities.core.rank_zero import rank_zero_only

from maze_pl.loggers.dashboard import X_AXIS, Bins, Dashboard, hyperparameters
from maze_pl.loggers.log_folder import is_in_run_directory, log_folder, set_aside
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE, shown_path, write_file

_RECORD = Path("wandb", "maze_pl.json")


class WandbLog(Dashboard):
    """Logs a run to Weights & Biases: online if logged in, else to files for `wandb sync`.

    A resumed run continues as the same W&B run, whose id is in `wandb/maze_pl.json` in the run
    directory, or in `save_dir` without a run. If that file is damaged, it gets a number, as in
    `maze_pl.1.json`, and the run continues as another W&B run. Its history is append-only: points
    that a killed run logged after its last checkpoint stay, and are not logged again. W&B's
    environment variables, such as WANDB_PROJECT, set the destination; by default it is the project
    `maze_pl` and the name of the run directory.

    Args:
        save_dir: Folder whose folder `wandb/` gets the files; None means the run directory.
    """

    name = version = ""

    def __init__(self, save_dir: str | None = None) -> None:
        super().__init__()
        self._folder = log_folder(save_dir)
        self._shown_folder = shown_path(self._folder)
        has_run = bool(os.environ.get(RUN_DIR_VARIABLE))
        self._record = (log_folder(None) if has_run else self._folder) / _RECORD
        self._continued: Path | None = self._record  # None: the record is of another run
        self._run: Any = None
        self._logged: dict[str, int] = {}  # name -> env steps of its last point

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The `wandb.Run`, which starts on first access."""
        if self._run is not None:
            return self._run
        import wandb  # costs half a second, in runs that log to it only

        record = None if self._continued is None else _read_record(self._continued)
        identity, self._logged = (uuid.uuid4().hex[:8], {}) if record is None else record
        (self._folder / "wandb").mkdir(parents=True, exist_ok=True)  # else its files would go elsewhere
        folder = self._folder.resolve()
        mode: Any = os.environ.get("WANDB_MODE") or (None if is_logged_in() else "offline")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "maze_pl"),
            name=os.environ.get("WANDB_NAME", folder.name),
            group=os.environ.get("WANDB_RUN_GROUP", folder.parent.name),
            id=identity,
            dir=str(folder),
            mode=mode,
            resume=None if record is None else "allow",
            reinit="default" if wandb.run is None else "create_new",  # "default" would join that run
            settings=_settings(wandb),
        )
        self.view_command = self._command_to_view()
        self._run.define_metric(X_AXIS)
        self._run.define_metric("*", step_metric=X_AXIS)
        self._keep(identity)
        return self._run

    def _command_to_view(self) -> str:
        """Return the command to view the run; empty with WANDB_MODE=disabled."""
        if self._run.offline:  # reading its url would cause a warning
            return f"wandb sync {shlex.quote(self._shown_folder)}/wandb/offline-run-*"
        return f"python -m webbrowser {self._run.url}" if self._run.url else ""

    def _keep(self, identity: str) -> None:
        """Record the id of the W&B run and the last env steps of each name, to continue there."""
        write_file(self._record, json.dumps({"id": identity, "logged": self._logged}).encode())

    def begin(self, config: str, command: str, env_steps: int) -> None:
        """Log the configuration, as run config and as a text, and the command."""
        import wandb

        if env_steps == 0 and not is_in_run_directory(self._record):
            self._continued = None
        elif env_steps > 0 and not self._record.is_file():  # earlier versions kept it there
            self._continued = self._folder / _RECORD
        content = yaml.safe_load(config)
        values = {**content, "command": command}
        if content.get("hyperparameters") is not None:
            values["hyperparameters"] = hyperparameters(content)
        self.experiment.config.update(values, allow_val_change=True)
        panels = {}
        for name, text in (("configuration", config), ("command", command)):
            panels[name] = wandb.Html(f"<pre>{escape(text)}</pre>", inject=False)
        self.experiment.log({**panels, X_AXIS: env_steps})

    def conclude(self, results: Mapping[str, float], env_steps: int) -> None:
        """Add the final results to the summary of the run, which the table of runs shows."""
        self.experiment.summary.update({**results, f"final_{X_AXIS}": env_steps})

    def describe_statistics(self, descriptions: Mapping[str, str]) -> None:
        """Add the descriptions to the config of the run, since W&B has none at its charts."""
        self.experiment.config.update({"statistics": dict(descriptions)}, allow_val_change=True)

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
        import wandb

        histograms = {}
        for name, counts_and_edges in distributions.items():
            histograms[name] = wandb.Histogram(np_histogram=counts_and_edges)
        self.log_metrics(histograms, env_steps)

    def log_images(self, images: Mapping[str, Any], env_steps: int) -> None:
        """Log images."""
        import wandb

        self.log_metrics({name: wandb.Image(image) for name, image in images.items()}, env_steps)

    def log_page(self, name: str, page: str, picture: Any, env_steps: int) -> None:
        """Log an HTML page."""
        import wandb

        self.log_metrics({name: wandb.Html(page, inject=False)}, env_steps)

    def finalize(self, status: str) -> None:
        """Finish the run; mark it as failed if it did."""
        if self._run is not None:
            self._run.finish(exit_code=int(status == "failed"))
            self._run = None


def _read_record(path: Path) -> tuple[str, dict[str, int]] | None:
    """Return the id of the W&B run and the last env steps of each name, as `WandbLog` has recorded them.

    Args:
        path: The record. A damaged one is renamed, with a message.

    Returns:
        None if there is no record.
    """
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        identity, logged = content["id"], content.get("logged", {})
        steps_are_numbers = all(isinstance(step, int | float) for step in logged.values())
        is_whole = isinstance(identity, str) and identity != "" and steps_are_numbers
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_whole = False
    if not is_whole:
        set_aside(path, "is damaged, so this is logged as a new run of Weights & Biases;")
        return None
    return identity, logged


def _settings(wandb: Any) -> Any:
    """Return the settings of W&B for a run of maze_pl."""
    settings: dict[str, Any] = {"console": "off", "silent": True}  # run.log has the console output
    if "x_transaction_log_flush_interval" in getattr(wandb.Settings, "model_fields", {}):
        settings["x_transaction_log_flush_interval"] = 1.0  # a killed run would lose 15 seconds
    return wandb.Settings(**settings)


def is_logged_in() -> bool:
    """True if there is a Weights & Biases key, in the environment or from `wandb login`."""
    from requests.utils import get_netrc_auth  # a dependency of wandb as well

    server = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    return bool(os.environ.get("WANDB_API_KEY")) or get_netrc_auth(server) is not None

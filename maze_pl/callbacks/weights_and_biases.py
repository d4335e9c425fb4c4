"""Weights & Biases: imported only where a run asks for it, with all its files in the run directory."""

import json
import netrc
import os
import shlex
import uuid
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from lightning_fabric.loggers.logger import rank_zero_experiment
from lightning_utilities.core.imports import lazy_import
from lightning_utilities.core.rank_zero import rank_zero_only

from maze_pl.callbacks.dashboards import Bins, Dashboard
from maze_pl.core.output_folder import write_file

X_AXIS = "env_steps"
wandb = lazy_import("wandb")


class WandbLog(Dashboard):
    """Logs a run to Weights & Biases: online if the user is logged in, else to files that `wandb sync` uploads.

    A resumed run goes on as the same one. Its history can only be added to, so what a run that was killed had logged
    beyond its last checkpoint stays, and is not logged once more. W&B's own environment variables say where the run is
    filed, such as WANDB_PROJECT; without them that is the project `maze_pl`, named after its run directory.

    Args:
        save_dir: The run directory; files go to `wandb/` in it.
    """

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
            project=self.name,
            name=os.environ.get("WANDB_NAME", folder.name),
            group=os.environ.get("WANDB_RUN_GROUP", folder.parent.name),
            id=identity,
            dir=str(folder),
            mode=None if "WANDB_MODE" in os.environ or is_logged_in() else "offline",
            resume="allow" if record else None,
            settings=wandb.Settings(**settings),
        )
        self._run.define_metric(X_AXIS)
        self._run.define_metric("*", step_metric=X_AXIS)
        self._keep(identity)
        return self._run

    def _keep(self, identity: str) -> None:
        write_file(self._record, json.dumps({"id": identity, "logged": self._logged}).encode())

    @property
    def name(self) -> str:
        """The project."""
        return os.environ.get("WANDB_PROJECT", "maze_pl")

    @property
    def version(self) -> str | None:
        """Id of the run, once it has begun."""
        return None if self._run is None else str(self._run.id)

    @property
    def view_command(self) -> str:
        """Opens the run, or uploads it; empty where WANDB_MODE has disabled all of it."""
        if self._run is not None and not self._run.offline:  # asking for an address would make it complain
            return f"python -m webbrowser {self._run.url}" if self._run.url else ""
        return f"wandb sync {shlex.quote(str(self._folder))}/wandb/offline-run-*"

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
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).netloc
    path = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    try:
        return netrc.netrc(str(path)).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False

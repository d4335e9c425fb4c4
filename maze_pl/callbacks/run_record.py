"""What a run is, said at its start, and what came of it and what to do next, said at its end."""

import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml
from pytorch_lightning.callbacks import Callback

from maze_pl.callbacks.dashboards import dashboards
from maze_pl.callbacks.epoch_table import WIDTH, env_steps, say
from maze_pl.callbacks.stopping import EarlyStopping, StopAtReturn
from maze_pl.configuration import RUN_CONFIG
from maze_pl.core.output_folder import write_file


class RunRecord(Callback):
    """Writes `config.yaml` and `command.txt`, shows both, and gives them to the dashboards.

    Args:
        run_dir: The run directory.
        config: The assembled configuration, as YAML.
        command: The command line; a resumed run adds its own to that of the former one.
        defaults: What the configuration is without anything given; what is like it is not shown on the console.
    """

    def __init__(self, run_dir: str, config: str, command: Sequence[str], defaults: Mapping[str, Any]) -> None:
        self.run_dir, self.config, self.command, self.defaults = run_dir, config, shlex.join(command), defaults

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Write the files, and show them."""
        if stage != "fit" or not trainer.is_global_zero:
            return
        folder = Path(self.run_dir)
        write_file(folder / RUN_CONFIG, self.config.encode())
        with (folder / "command.txt").open("a", encoding="utf-8") as file:
            file.write(self.command + "\n")
        given = readable(yaml.safe_load(self.config), self.defaults)
        say(trainer, f"command: {self.command}\nrun directory: {self.run_dir}\n")
        say(trainer, f"# configuration; what is missing here has its default, {RUN_CONFIG} has it all\n{given}")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin, or go on, in the dashboards; a checkpoint has been restored by now."""
        for dashboard in dashboards(trainer):
            dashboard.begin(self.config, self.command, env_steps(pl_module))


def readable(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """A configuration as YAML, without options that nobody has given."""
    given: dict[str, Any] = {}
    for name, section in config.items():
        usual = defaults.get(name)
        if isinstance(section, dict) and isinstance(usual, dict):
            section = {key: value for key, value in section.items() if key not in usual or usual[key] != value}
        if section != {} and (section != usual or name == "seed_everything"):
            given[name] = section
    return str(yaml.safe_dump(_without_nulls(given), sort_keys=False, default_flow_style=None, width=WIDTH))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_nulls(item) for key, item in value.items() if item is not None}
        return {key: item for key, item in kept.items() if item != {} or value[key] == {}}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


class RunSummary(Callback):
    """Says at the end how a run went, where it lies, and which commands come next.

    Args:
        run_dir: The run directory.
    """

    def __init__(self, run_dir: str) -> None:
        self.run_dir = run_dir
        self._began_at = self._ended_at = 0.0
        self._began_with = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the time."""
        self._began_at = self._ended_at = time.perf_counter()
        self._began_with = env_steps(pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the time of the last epoch; what follows is not training."""
        self._ended_at = time.perf_counter()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say it."""
        seconds, steps = self._ended_at - self._began_at, env_steps(pl_module)
        new, run_dir, (reason, more) = steps - self._began_with, shlex.quote(self.run_dir), _end(trainer)
        commands = [f"maze-pl validate {run_dir}", f"maze-pl fit --resume {run_dir}{more}"]
        commands += [dashboard.view_command for dashboard in dashboards(trainer)]
        made = f"{steps:,} env steps" + (f", {new:,} of them" if self._began_with else "")
        took = f"{made} in {timedelta(seconds=round(seconds))} ({new / max(seconds, 1e-9):,.0f} env steps/s)"
        say(trainer, f"ended: {reason}\n{took}\nrun directory: {self.run_dir}\nnext:")
        say(trainer, "\n".join(f"  {command}" for command in commands if command))


def _end(trainer: pl.Trainer) -> tuple[str, str]:
    """Why training ended, and the option with which it would go on."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, StopAtReturn) and callback.threshold is not None and not callback.missed:
            return f"{callback.monitor} has reached {callback.threshold}", " --stop_at_return.threshold null"
        if isinstance(callback, EarlyStopping) and callback.wait_count >= callback.patience:
            reason = f"{callback.monitor} has not improved for {callback.patience} evaluations"
            return reason, f" --early_stopping.patience {2 * callback.patience}"
    if trainer.current_epoch == trainer.max_epochs:
        return f"max_epochs={trainer.max_epochs} reached", f" --trainer.max_epochs {2 * trainer.max_epochs}"
    return f"after epoch {trainer.current_epoch}", ""

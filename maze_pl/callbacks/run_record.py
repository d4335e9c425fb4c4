"""What a run is, said at its start, and what came of it and what to do next, said at its end."""

import copy
import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml
from pytorch_lightning.callbacks import Callback

from maze_pl.callbacks.checkpoints import BestCheckpoint, EarlyStopping, StopAtReturn
from maze_pl.callbacks.dashboards import dashboards
from maze_pl.callbacks.epoch_table import env_steps, say
from maze_pl.collect.serialization import from_tensors
from maze_pl.configuration import RUN_CONFIG
from maze_pl.core.output_folder import write_file
from maze_pl.core.ranks import gather_objects
from maze_pl.core.rollout import Evaluation
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.events.statistics_table import WIDTH, format_value
from maze_pl.loading import read_checkpoint
from maze_pl.modules.algorithm import CHECKPOINT_KEY, AlgorithmModule
from maze_pl.modules.statistics import episode_means

_NETWORKS = "actor_critic."


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


class FinalEvaluation(Callback):
    """When training has ended, evaluates the last policy and the one of `best.ckpt` once more, and prints both.

    It needs a `BestCheckpoint`, and a data module with evaluators; otherwise it does nothing. The module, the
    training environments and what is logged stay as they are.
    """

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate, on all ranks, with the seeds that all evaluations have."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(data, EnvironmentDataModule) or not isinstance(pl_module, AlgorithmModule):
            return
        best: dict[str, Any] | None = None
        for callback in trainer.checkpoint_callbacks if trainer.is_global_zero and data.evaluators else []:
            if isinstance(callback, BestCheckpoint) and Path(callback.best_model_path).is_file():
                best = _read(callback.best_model_path, type(data).__qualname__)
        best = trainer.strategy.broadcast(best)  # there may be ranks that do not see the file
        if best is None:
            return
        networks = copy.deepcopy(pl_module.networks)
        networks.load_state_dict(best["networks"])
        for name in data.evaluators:
            best_means = _means(data.evaluate(name, networks.policy, best["learned"]))
            last_means = _means(data.evaluate(name, pl_module.policy))
            say(trainer, f"best: {name} {best_means} after {best['env_steps']:,} env steps (best.ckpt)")
            say(trainer, f"last: {name} {last_means} after {pl_module.env_steps:,} env steps")


def _read(path: str, data_class: str) -> dict[str, Any]:
    """What of a checkpoint an evaluation needs."""
    checkpoint = read_checkpoint(path)
    weights = checkpoint["state_dict"]
    return {
        "networks": {name[len(_NETWORKS) :]: weights[name] for name in weights if name.startswith(_NETWORKS)},
        "learned": from_tensors(checkpoint[data_class]["shared"]),
        "env_steps": checkpoint[CHECKPOINT_KEY]["env_steps"],
    }


def _means(evaluation: Evaluation) -> str:
    """Return and KPIs as text, means over the episodes of all ranks."""
    means = episode_means(chain(*gather_objects(evaluation.summaries)))
    return ", ".join(f"{name} {format_value(value)}" for name, value in means.items())


class RunSummary(Callback):
    """Says at the end how a run went, where it lies, and which commands come next.

    Args:
        run_dir: The run directory.
    """

    def __init__(self, run_dir: str) -> None:
        self.run_dir = run_dir

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

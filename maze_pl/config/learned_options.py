"""Options of a run that decide what it learns: runs in which only others differ are runs of one configuration."""

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from maze_pl.config.pieces import CALL_OPTIONS, PROVENANCE_FILE, RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, read
from maze_pl.core.provenance import Provenance

_NOT_LEARNED: Final = (*CALL_OPTIONS, "hyperparameters", "last_checkpoint")
_NOT_LEARNED_OF_TRAINER: Final = (
    *("logger", "profiler", "log_every_n_steps", "model_registry", "enable_autolog_hparams"),
    *("enable_checkpointing", "enable_model_summary", "enable_progress_bar"),
)
_FOLDERS: Final = ("dirpath", "default_root_dir")  # of checkpoints and other files, below these options
_WITH_FOLDERS: Final = ("best_checkpoint", "trainer")
_CONTINUED: Final = "resume"
_STARTS: Final = {
    "--warm-start": "warm_start",
    "--warm_start": "warm_start",
    "--ckpt_path": "ckpt_path",
    "--resume": _CONTINUED,
}
"""Options of commands that begin with weights, and their names."""
_MODULES: Final = ("PopulationDataModule", "ReplayDataModule", "RolloutDataModule", "SelfLabellingDataModule")
_ON_ANY_ENGINE: Final = frozenset(f"maze_pl.datamodules.{name}" for name in (*_MODULES, "TrajectoryDataModule"))
"""Data modules that deliver the same numbers on all engines, unlike asynchronous actors."""
_SEED_FOLDER: Final = re.compile(r"(?<![^/])seed_\d+(?![^/])")
_ANY_SEED: Final = "seed_*"
_OF_RUN: Final = re.compile(r"(?P<run_dir>.*)/checkpoints/best\.ckpt")

Seeds = tuple[Any, Any]
"""`seed_everything`, and the seed of the data module."""


def learned_options(run_dir: Path) -> tuple[dict[str, Any], Seeds]:
    """Return a run's options without those that do not affect learning, and its seeds.

    Places and names of files, loggers, progress bars, the last checkpoint and the engine do not affect
    learning; with asynchronous actors, the engine does. The selection of the best checkpoint and all
    evaluations count, as they decide which policy is compared. So does the run or checkpoint that a run
    began with, by its path; the seeds of one training are one start.

    Args:
        run_dir: The run directory.

    Returns:
        The options without seeds, and the seeds.

    Raises:
        ConfigurationError: The configuration of the run cannot be read.
    """
    file = run_dir / RUN_CONFIG
    configuration = read(file)
    if not isinstance(configuration, Mapping):
        raise ConfigurationError(f"{file} is damaged: it holds no options")
    options, seeds = learned_part(configuration)
    return {**options, **_start(run_dir)}, seeds


def learned_part(configuration: Mapping[str, Any]) -> tuple[dict[str, Any], Seeds]:
    """Return the options of a configuration without those that do not affect learning, and its seeds.

    Args:
        configuration: As a run saves it.
    """
    content = {key: value for key, value in configuration.items() if key not in _NOT_LEARNED}
    seed = content.pop("seed_everything", None)
    for name in _WITH_FOLDERS:
        if name in content:
            content[name] = _without_folders(content[name])
    if isinstance(content.get("trainer"), Mapping):
        trainer = content["trainer"]
        content["trainer"] = {key: value for key, value in trainer.items() if key not in _NOT_LEARNED_OF_TRAINER}
    data = content.get("data")
    if not isinstance(data, Mapping) or not isinstance(data.get("init_args"), Mapping):
        return content, (seed, None)
    arguments = dict(data["init_args"])
    data_seed = arguments.pop("seed", None)
    if "env" in arguments:
        arguments["env"] = with_class_path(arguments["env"])
    if isinstance(arguments.get("evaluators"), Mapping):
        evaluators = arguments["evaluators"]
        arguments["evaluators"] = {name: _with_class_path_of_env(options) for name, options in evaluators.items()}
    if data.get("class_path") in _ON_ANY_ENGINE:
        arguments.pop("engine", None)
    content["data"] = {**data, "init_args": arguments}
    return content, (seed, data_seed)


def with_class_path(environment: Any) -> Any:
    """Return the configuration of an environment in one form, as runs store a callable without arguments in two.

    Args:
        environment: A node with class_path and init_args, the path alone, or None.
    """
    if isinstance(environment, str):
        return {"class_path": environment}
    if isinstance(environment, Mapping):
        return {key: value for key, value in environment.items() if value not in (None, {})}
    return environment


def _with_class_path_of_env(options: Any) -> Any:
    """Return the options of an evaluator with its environment in one form."""
    if not isinstance(options, Mapping) or "env" not in options:
        return options
    return {**options, "env": with_class_path(options["env"])}


def _start(run_dir: Path) -> dict[str, str]:
    """Return the run or checkpoint whose weights a run began with, by the name of the option; empty without one."""
    try:
        content: Any = json.loads((run_dir / PROVENANCE_FILE).read_text(encoding="utf-8"))
        first = _start_of(commands_of_training(content["commands"])[0])
        return {name: _same_for_seeds(path) for name, path in first.items() if name != _CONTINUED}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}  # it is missing or damaged


def commands_of_training(commands: Sequence[Provenance]) -> Sequence[Provenance]:
    """Return the commands that belong to the training in a run directory.

    They are the last one that did not continue the run, and those after it. Earlier ones failed
    before they trained.

    Args:
        commands: The provenance of all commands, in order.
    """
    first = 0
    for place, command in enumerate(commands):
        if _CONTINUED not in _start_of(command):
            first = place
    return commands[first:]


def _start_of(entry: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the start of one command of a run; version 0.2.0 has recorded its words only."""
    if "start" in entry:
        start: Mapping[str, str] = entry["start"]
        return start
    try:
        return _named_start(shlex.split(entry["command"]))
    except ValueError:  # damaged
        return {}


def _same_for_seeds(path: str) -> str:
    """Return the start at a path, the same for all seeds of a training.

    A run directory means its best checkpoint.
    """
    path = _SEED_FOLDER.sub(_ANY_SEED, path)
    found = _OF_RUN.fullmatch(path)
    return path if found is None else found["run_dir"]


def _named_start(words: Sequence[str]) -> dict[str, str]:
    """Return the start that the words of a command name."""
    start: dict[str, str] = {}
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in _STARTS:
            start[_STARTS[option]] = os.path.realpath(value if equals else "".join(words[place + 1 : place + 2]))
    return start


def _without_folders(node: Any) -> Any:
    """Return a nested value without the options that name folders."""
    if isinstance(node, Mapping):
        return {key: _without_folders(value) for key, value in node.items() if key not in _FOLDERS}
    if isinstance(node, list):
        return [_without_folders(item) for item in node]
    return node

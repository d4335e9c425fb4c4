"""Folders of a run's loggers, so that no two runs write to the same files."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from jsonargparse import Namespace
from pytorch_lightning.loggers import Logger, TensorBoardLogger

from maze_pl import callbacks
from maze_pl.config.assembling import SEEDS_FILE, SWEEP_FILE
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.run_directory import is_first_rank
from maze_pl.runs.run_move import Move

_OURS: Final = (callbacks.TensorBoardLog, callbacks.MetricsFile, callbacks.WandbLog)


def run_loggers(configured: Any, run_dir: str | None, *, has_wandb: bool) -> list[Logger] | bool:
    """Return the loggers of a command: the configured ones or TensorBoard, and `metrics.csv`.

    A message says how to keep TensorBoard where other loggers take its place.

    Args:
        configured: Logger or loggers in the configuration; None or True if it has none.
        run_dir: The run directory; None for a command that does not train, and has no loggers.
        has_wandb: Whether the run is also logged to Weights & Biases.
    """
    if run_dir is None:
        return False
    loggers: list[Logger] = []
    if configured is None or configured is True:
        loggers.append(callbacks.TensorBoardLog(run_dir))
    elif isinstance(configured, list | tuple):
        loggers += configured
    else:
        loggers.append(configured)
    if not any(isinstance(logger, TensorBoardLogger) for logger in loggers) and is_first_rank():
        remedy = "to keep it, add --trainer.logger+ maze_pl.callbacks.TensorBoardLog"
        sys.stderr.write(f"maze-pl: trainer.logger takes the place of TensorBoard: {remedy}\n")
    if has_wandb:
        loggers.append(callbacks.WandbLog(run_dir))
    if not any(isinstance(logger, callbacks.MetricsFile) for logger in loggers):
        loggers.append(callbacks.MetricsFile(run_dir))
    return loggers


def move_log_folders(configurations: Iterable[Namespace], move: Move) -> None:
    """Move loggers that write to the directory of the run that is continued along to the new directory.

    Args:
        configurations: Parsed configurations, whose `save_dir` is changed.
        move: The move of the run.
    """
    for configuration in configurations:
        for logger in _with_save_dir(configuration):
            logger.save_dir = move.moved(logger.save_dir)


def separate_log_folders(configuration: Namespace, run_dir: str) -> None:
    """Give the loggers of a seed or trial a subfolder, if several of them have the same `save_dir`.

    Args:
        configuration: Parsed configuration, whose `save_dir` is changed.
        run_dir: Directory of this run.

    Raises:
        ConfigurationError: A `save_dir` is the directory of another run.
    """
    here = Path(run_dir).resolve()
    names = _names_in_group(here)
    for logger in _with_save_dir(configuration, _OURS):
        folder = Path(logger.save_dir)
        if folder.resolve().is_relative_to(here):
            continue
        if (folder / RUN_CONFIG).is_file():
            fault = f"trainer.logger: save_dir={folder} is the directory of another run"
            raise ConfigurationError(f"{fault}: omit it, so that the logger writes to the run directory, {run_dir}")
        if names:
            logger.save_dir = str(folder.joinpath(*names))


def _with_save_dir(configuration: Namespace, classes: tuple[type, ...] = (object,)) -> Iterator[Namespace]:
    """Yield the arguments of those configured loggers that have a `save_dir`, and that derive from a class."""
    configured: Any = configuration.trainer.logger
    nodes = configured if isinstance(configured, list) else [configured]
    for node in nodes:
        if not isinstance(node, Namespace) or not isinstance(node.get("init_args"), Namespace):
            continue
        module, _, name = str(node.get("class_path")).rpartition(".")
        logger_class = getattr(sys.modules.get(module), name, None)  # parsing has imported it
        is_wanted = isinstance(logger_class, type) and issubclass(logger_class, classes)
        if is_wanted and node.init_args.get("save_dir") is not None:
            yield node.init_args


def _names_in_group(run_dir: Path) -> list[str]:
    """Return the names of a run in the folder of its seeds or sweep, such as `trial_0001`, `seed_0`."""
    names: list[str] = []
    folder = run_dir
    while any((folder.parent / file).is_file() for file in (SEEDS_FILE, SWEEP_FILE)):
        names.insert(0, folder.name)
        folder = folder.parent
    return names

"""Folders of a run's checkpoints, so that no run replaces the checkpoints of another one."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from jsonargparse import Namespace

from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.run_directory import has_trained
from maze_pl.runs.run_move import Move

WRITERS: Final = ("best_checkpoint", "last_checkpoint", "trainer")
"""Options of those that write checkpoints."""
_FOLDERS: Final = ("dirpath", "default_root_dir")  # options of these and of callbacks in `trainer`


class CheckpointFolder(NamedTuple):
    """A configured folder for checkpoints.

    Attributes:
        option: The option that names it.
        holder: The part of the configuration with its value.
        key: Name of the value there.
    """

    option: str
    holder: Any
    key: str

    @property
    def path(self) -> str:
        """The configured value."""
        return str(self.holder[self.key])


def folders_below(node: Any, option: str) -> Iterator[CheckpointFolder]:
    """Yield the folders for checkpoints below an option.

    Args:
        node: Value of the option, parsed or as in a file.
        option: Its name, one of `WRITERS`.
    """
    if isinstance(node, list):
        for entry in node:
            yield from folders_below(entry, option)
    elif isinstance(node, dict | Namespace):
        for key, value in (vars(node) if isinstance(node, Namespace) else node).items():
            if key in _FOLDERS and value is not None:
                yield CheckpointFolder(f"{option}.{key}", node, key)
            else:
                yield from folders_below(value, option if key == "init_args" else f"{option}.{key}")


def move_checkpoint_folders(configurations: Iterable[Namespace], move: Move) -> None:
    """Move folders in the directory of the run that is continued along to the new directory.

    Args:
        configurations: Parsed configurations, whose folders are changed.
        move: The move of the run.
    """
    for configuration in configurations:
        for folder in _folders(configuration):
            folder.holder[folder.key] = move.moved(folder.path)


def refuse_folders_of_other_runs(configuration: Namespace, run_dir: str) -> None:
    """Refuse folders for checkpoints that are in the directory of another run.

    Args:
        configuration: Parsed configuration.
        run_dir: Directory of this run.

    Raises:
        ConfigurationError: There is such a folder.
    """
    here = Path(run_dir).resolve()
    for folder in _folders(configuration):
        path = Path(folder.path).resolve()
        if path.is_relative_to(here):
            continue
        for other in (path, *path.parents):
            if has_trained(other) and not here.is_relative_to(other):
                fault = f"{folder.option}={folder.path} is in the directory of another run, {other}"
                remedy = f"choose another folder, or null for the run directory, {run_dir}"
                raise ConfigurationError(f"{fault}: {remedy}")


def _folders(configuration: Namespace) -> Iterator[CheckpointFolder]:
    """Yield the folders for checkpoints of a parsed configuration."""
    for option in WRITERS:
        yield from folders_below(configuration.get(option), option)

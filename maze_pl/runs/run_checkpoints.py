"""Folders of a run's checkpoints, according to its configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, read
from maze_pl.runs.run_move import Move

BEST: Final = "best"
LAST: Final = "last"
CHECKPOINTS: Final = "checkpoints"
"""Folder in a run directory for checkpoints, unless the configuration names another one."""
_CALLBACKS: Final = {BEST: "BestCheckpoint", LAST: "LastCheckpoint"}


class RunCheckpoint(NamedTuple):
    """Place of `best.ckpt` or `last.ckpt` of a run.

    Attributes:
        file: The file, which may be missing.
        option: Option that names the folder; None if it is the one in the run directory.
    """

    file: Path
    option: str | None

    @property
    def folder(self) -> Path:
        """Folder of the file."""
        return self.file.parent

    def require_folder(self, run_dir: str | Path, remedy: str) -> None:
        """Refuse a configured folder that does not exist, for example from another current folder.

        Args:
            run_dir: The run directory, for the message.
            remedy: What to do, for the message.

        Raises:
            ConfigurationError: There is no such folder.
        """
        if self.option is None or self.folder.is_dir():
            return
        fault = f"--{self.option} {self.folder} of the run {run_dir} does not exist"
        raise ConfigurationError(f"{fault}: {remedy}")


def run_checkpoints(run_dir: str | Path) -> dict[str, RunCheckpoint]:
    """Return the places of `best` and `last` in a run, which may have been moved.

    Args:
        run_dir: The run directory; without a configuration, it has the default folder.

    Raises:
        ConfigurationError: The configuration cannot be read.
    """
    file = Path(run_dir, RUN_CONFIG)
    content = read(file) if file.is_file() else None
    configuration = content if isinstance(content, Mapping) else {}
    return configured_checkpoints(run_dir, configuration, Move(str(run_dir), str(run_dir)))


def configured_checkpoints(
    run_dir: str | Path, configuration: Mapping[str, Any], move: Move | None = None
) -> dict[str, RunCheckpoint]:
    """Return the places of `best` and `last` in a run with a certain configuration.

    Args:
        run_dir: The run directory.
        configuration: The configuration, as in the file of a run.
        move: Move of the run since it was configured, if any.
    """
    places: dict[str, RunCheckpoint] = {}
    for name in _CALLBACKS:
        folder, option = _configured(configuration, name)
        if folder is None:
            folder = Path(run_dir, CHECKPOINTS)
        elif move is not None:
            folder = Path(move.moved(str(folder)))
        places[name] = RunCheckpoint(folder / f"{name}.ckpt", option)
    return places


def _configured(configuration: Mapping[str, Any], name: str) -> tuple[Path | None, str | None]:
    """Return the configured folder for a checkpoint, and the option that names it; None and None without one."""
    trainer = _mapping(configuration.get("trainer"))
    option, arguments = f"{name}_checkpoint.dirpath", _mapping(configuration.get(f"{name}_checkpoint"))
    callbacks = trainer.get("callbacks")
    for callback in map(_mapping, callbacks if isinstance(callbacks, list) else [callbacks]):
        module, _, class_name = str(callback.get("class_path")).rpartition(".")
        if class_name == _CALLBACKS[name] and module.startswith("maze_pl."):
            # it replaces the callback that each run has
            option, arguments = "trainer.callbacks.dirpath", _mapping(callback.get("init_args"))
            break
    if isinstance(arguments.get("dirpath"), str):
        return Path(arguments["dirpath"]), option
    root = trainer.get("default_root_dir")
    if isinstance(root, str | Path):
        return Path(root, CHECKPOINTS), "trainer.default_root_dir"
    return None, None


def _mapping(node: Any) -> Mapping[str, Any]:
    """Return a mapping in a configuration; an empty one in place of anything else."""
    return node if isinstance(node, Mapping) else {}


def checkpoint_folders(run_dir: str | Path) -> list[Path]:
    """Return the folders in which checkpoints of a run may be, the default one first.

    Args:
        run_dir: The run directory.

    Raises:
        ConfigurationError: The configuration cannot be read.
    """
    places = run_checkpoints(run_dir).values()
    return list(dict.fromkeys([Path(run_dir, CHECKPOINTS), *(place.folder for place in places)]))


def holds_checkpoints(folder: Path) -> bool:
    """True if a path is the directory of a run that has a folder for checkpoints."""
    if not (folder / RUN_CONFIG).is_file():
        return False
    return (folder / CHECKPOINTS).is_dir() or any(one.is_dir() for one in checkpoint_folders(folder))


def directory_of_run(path: str | Path) -> Path:
    """Return the run directory at a path, or that of the checkpoint at a path.

    Args:
        path: A folder, or a checkpoint. Its run is the innermost one around it; without one, its
            folder is taken for the folder of checkpoints in a run directory.
    """
    path = Path(path).resolve()
    if path.is_dir():
        return path
    runs = (folder for folder in path.parents if (folder / RUN_CONFIG).is_file())
    return next(runs, path.parent.parent)

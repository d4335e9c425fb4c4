"""Folders of loggers: the run directory, unless another one is given."""

import os
from pathlib import Path

from maze_pl.system.atomic_files import RUN_DIR_VARIABLE, output_folder


def log_folder(save_dir: str | None) -> Path:
    """Return the absolute path of a logger's folder: by default the run directory, or the current folder."""
    return (output_folder("") if save_dir is None else Path(save_dir)).absolute()


def is_in_run_directory(folder: Path) -> bool:
    """True if a folder is the run directory or below it, so that all of its files are of this run."""
    run_dir = os.environ.get(RUN_DIR_VARIABLE)
    return bool(run_dir) and folder.resolve().is_relative_to(Path(str(run_dir)).resolve())

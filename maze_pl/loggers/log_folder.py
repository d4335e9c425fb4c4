"""Folders of loggers: the run directory, unless another one is given; and files there that cannot be continued."""

import os
from pathlib import Path

from lightning_utilities.core.rank_zero import rank_zero_info

from maze_pl.system.atomic_files import RUN_DIR_VARIABLE, output_folder, shown_path


def log_folder(save_dir: str | None) -> Path:
    """Return the absolute path of a logger's folder: by default the run directory, or the current folder."""
    return (output_folder("") if save_dir is None else Path(save_dir)).absolute()


def is_in_run_directory(folder: Path) -> bool:
    """True if a folder is the run directory or below it, so that all of its files are of this run."""
    run_dir = os.environ.get(RUN_DIR_VARIABLE)
    return bool(run_dir) and folder.resolve().is_relative_to(Path(str(run_dir)).resolve())


def set_aside(path: Path, reason: str) -> None:
    """Rename a file that a logger cannot continue to the first name with a number that is free; a message says so.

    Args:
        path: The file, such as `metrics.csv`, which becomes `metrics.1.csv`.
        reason: The fault, between its path and "it is now" in the message.
    """
    number = 1
    while (kept := path.with_suffix(f".{number}{path.suffix}")).exists():
        number += 1
    path.rename(kept)
    rank_zero_info(f"{shown_path(path)} {reason} it is now {shown_path(kept)}")

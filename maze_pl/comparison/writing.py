"""Files of a comparison, in a folder that appears once it is complete."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from maze_pl.comparison.page import page_text
from maze_pl.comparison.picture import save_picture
from maze_pl.comparison.playing import KPI, RETURN, Tournament
from maze_pl.comparison.results import Comparison
from maze_pl.comparison.tables import csv_text
from maze_pl.comparison.views import write_views
from maze_pl.config.search_path import ConfigurationError
from maze_pl.events.display import require_matplotlib
from maze_pl.system.atomic_files import PART_SUFFIX, part_path, require_short_names, write_file

RESULTS_FILE: Final = "comparison.json"
PAGE_FILE: Final = "comparison.html"


def require_new_folder(folder: Path) -> None:
    """Refuse a folder that files cannot be written to, before anything is played.

    Raises:
        ConfigurationError: It is a file, or not empty, or cannot be made.
        ImportError: matplotlib, which draws the picture, is not installed.
    """
    require_matplotlib("a comparison with files")
    target = _target_of(folder)
    try:
        require_short_names(target)
        _require_empty(folder)
    except OSError as error:
        raise ConfigurationError(f"the folder {folder} cannot be made: {error.strerror}") from error
    if target.is_symlink():
        fault = "it is a symbolic link that leads to itself"
        raise ConfigurationError(f"the folder {folder} cannot be made: {fault}")
    parent = next(path for path in (target, *target.parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ConfigurationError(f"the folder {folder} cannot be made: {parent} is not writable")


def _require_empty(folder: Path) -> None:
    """Raise ConfigurationError for a file, or a folder with files other than incomplete ones."""
    if not folder.exists():
        return
    if not folder.is_dir() or not all(_is_incomplete(path) for path in folder.iterdir()):
        fault = "is not empty" if folder.is_dir() else "is a file"
        raise ConfigurationError(f"the folder {folder} {fault}: choose one that does not exist or is empty")


def _is_incomplete(path: Path) -> bool:
    """True for what a comparison is writing, or was writing when it was killed."""
    return path.name.startswith(".") and path.name.endswith(PART_SUFFIX)


def _target_of(folder: Path) -> Path:
    """Return the absolute path of a folder, which may be missing, without symbolic links."""
    return Path(os.path.realpath(folder))


@contextmanager
def _complete_folder(folder: Path) -> Iterator[Path]:
    """Move files to a folder once all of them are written; leave nothing if that fails.

    A missing folder appears when it is complete. An empty one stays where it is, as it may be a
    mount point; the page, which refers to the other files, is moved to it last.

    Args:
        folder: The folder, which is missing or empty.

    Yields:
        The folder to write to.

    Raises:
        ConfigurationError: It has other files when these are moved.
    """
    target = _target_of(folder)
    is_present = target.is_dir()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = part_path(target / target.name if is_present else target)
    try:
        part.mkdir()
        yield part
        _require_empty(folder)
        if is_present:
            _move_files(part, target)
        else:
            os.replace(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _move_files(source: Path, target: Path) -> None:
    """Move all files and folders to an empty folder, the page last; leave nothing if that fails."""
    names = [path.name for path in source.iterdir()]
    names.sort(key=lambda name: (name == PAGE_FILE, name))
    moved: list[str] = []
    try:
        for name in names:
            os.rename(source / name, target / name)
            moved.append(name)
    except OSError:
        for name in reversed(moved):
            os.rename(target / name, source / name)
        raise


def write_comparison(
    folder: Path, comparison: Comparison, played: Tournament, command: str | None, with_views: bool
) -> None:
    """Write the results, tables, the picture and the page of a comparison.

    Args:
        folder: The folder, which is missing or empty.
        comparison: The table.
        played: The episodes.
        command: The command line, if any.
        with_views: Whether some of the episodes are written for the viewer.
    """
    with _complete_folder(folder) as part:
        content = {**comparison.to_dict(), "command": command}
        text = f"{json.dumps(content, indent=1, allow_nan=False)}\n"
        write_file(part / RESULTS_FILE, text.encode())
        write_file(part / "comparison.csv", csv_text(comparison.rows).encode())
        write_file(part / "episodes.csv", csv_text(_episode_rows(played)).encode())
        save_picture(part / "comparison.png", comparison)
        links = write_views(part, comparison, played) if with_views else []
        write_file(part / PAGE_FILE, page_text(comparison, command, links).encode())


def _episode_rows(played: Tournament) -> list[dict[str, Any]]:
    """Return a row for each episode of each run."""
    metrics = played.metrics
    rows = []
    for entry, runs in zip(played.entries, played.episodes, strict=True):
        for player, results in zip(entry.players, runs, strict=True):
            for index, seed in enumerate(results.seeds):
                row: dict[str, Any] = {"entry": entry.name, "source": player.source, "episode": index, "seed": seed}
                row[RETURN] = results.returns[index]
                for metric in metrics:
                    if metric != RETURN:
                        row[metric] = results.kpis[index].get(metric.removeprefix(KPI), "")
                rows.append(row)
    return rows

"""Moves of run directories, which change the places of the folders in them."""

import shlex
from pathlib import Path
from typing import Final

from maze_pl.runs.provenance import recorded_provenance

_RUN_OPTIONS: Final = ("--run_dir", "--resume")  # in recorded commands


class Move:
    """The move of a run to another directory, or of its configuration to a new run.

    Args:
        source: Run that is resumed or read, perhaps moved, or whose configuration a new run has.
        run_dir: Directory of this run.
    """

    def __init__(self, source: str, run_dir: str) -> None:
        self._run_dir = run_dir
        self._now = Path(run_dir).resolve()
        self._before = _directories(Path(source))

    def moved(self, path: str) -> str:
        """Return the place of a folder after the move; one that is not in the run's directory stays.

        Args:
            path: The folder before the move.
        """
        folder = Path(path).resolve()
        around = [directory for directory in (self._now, *self._before) if folder.is_relative_to(directory)]
        # the innermost: with the run directory as the current folder, `run/best` also seems to be inside of it
        directory = max(around, key=lambda one: len(one.parts), default=self._now)
        return path if directory == self._now else str(Path(self._run_dir, folder.relative_to(directory)))


def _directories(source: Path) -> list[Path]:
    """Return the directories in which a run was, the present one first, according to its commands."""
    directories = [source.resolve()]
    current = Path.cwd()
    for entry in recorded_provenance(source):
        try:
            words = shlex.split(entry["command"])
        except ValueError:  # of a file that was edited
            continue
        for place, word in enumerate(words):
            option, _, value = word.partition("=")
            if option not in _RUN_OPTIONS:
                continue
            path = Path(value or "".join(words[place + 1 : place + 2])).resolve()
            if not current.is_relative_to(path):  # as `--resume .` in another folder
                directories.append(path)
    return directories

"""Ends of event logs at the time of a checkpoint, to which a resumed run cuts them back.

Without this, the rows after the checkpoint would stay, and come once more when the acts are repeated.
Only folders in the run directory are cut, as they belong to the run alone; see `EventLogFiles`.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from maze_pl.system.atomic_files import RUN_DIR_VARIABLE

EventLogEnds = dict[str, dict[str, int | str]]
"""Folder in the run directory -> table -> bytes of a CSV file, or name of the last Parquet file."""
EVENT_LOG_ENDS: Final = "event_log_ends"
"""Key in the state of data modules."""
_START: Final = b"episode_id,episode_started,env_time"
_N_DIGITS: Final = 20
_PARQUET_PART: Final = re.compile(rf"\d{{{_N_DIGITS}}}-[0-9a-f]{{32}}\.parquet")


def event_log_ends(folders: Iterable[str]) -> EventLogEnds:
    """Return where the event logs end, once all pending rows are written.

    Args:
        folders: Folders of `EventLogFiles`; those outside of the run directory are left out.
    """
    ends: EventLogEnds = {}
    run_dir = _run_dir()
    for folder in dict.fromkeys(Path(os.path.abspath(folder)) for folder in folders):
        if run_dir is not None and folder.is_relative_to(run_dir):
            ends[folder.relative_to(run_dir).as_posix()] = _ends_in(folder)
    return ends


def last_ends(ends_of_ranks: Iterable[EventLogEnds]) -> EventLogEnds:
    """Return the last end of each table that any rank has seen.

    Args:
        ends_of_ranks: Result of `event_log_ends` of each rank.
    """
    last: EventLogEnds = {}
    for ends in ends_of_ranks:
        for folder, tables in ends.items():
            known = last.setdefault(folder, {})
            for name, end in tables.items():
                known[name] = max(known.get(name, end), end)
    return last


def log_folders(ends: EventLogEnds) -> list[str]:
    """Return the paths of the folders whose ends are known; none outside of a run.

    Args:
        ends: Result of `event_log_ends`.
    """
    run_dir = _run_dir()
    return [] if run_dir is None else [str(run_dir / folder) for folder in ends]


def cut_event_logs(ends: EventLogEnds) -> None:
    """Remove the rows of the run directory's event logs that were written after a checkpoint.

    Args:
        ends: Result of `event_log_ends` at the time of the checkpoint.

    Raises:
        OSError: A file cannot be changed.
    """
    run_dir = _run_dir()
    for folder, tables in ends.items():
        if run_dir is None or not (run_dir / folder).is_dir():
            continue
        for path in list((run_dir / folder).iterdir()):
            if _is_csv(path):
                _cut(path, int(tables.get(path.name, 0)))
            elif _is_parquet(path):
                _cut_parts(path, str(tables.get(path.name, "")))


def _run_dir() -> Path | None:
    """Return the directory of the run; None outside of a run."""
    run_dir = os.environ.get(RUN_DIR_VARIABLE)
    return Path(os.path.abspath(run_dir)) if run_dir else None


def _ends_in(folder: Path) -> dict[str, int | str]:
    """Return the end of each table in a folder."""
    ends: dict[str, int | str] = {}
    if not folder.is_dir():
        return ends
    for path in folder.iterdir():
        if _is_csv(path):
            ends[path.name] = path.stat().st_size
        elif _is_parquet(path):
            ends[path.name] = max(_parts(path), default="")
    return ends


def _is_csv(path: Path) -> bool:
    """True for a CSV file of events."""
    if path.suffix != ".csv" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_START)) == _START


def _is_parquet(path: Path) -> bool:
    """True for a folder of Parquet files of events."""
    return path.suffix == ".parquet" and path.is_dir()


def _parts(path: Path) -> list[str]:
    """Return the names of a table's Parquet files, which begin with the time at which they were written."""
    return [name for name in os.listdir(path) if _PARQUET_PART.fullmatch(name)]


def _cut(path: Path, n_bytes: int) -> None:
    """Cut a CSV file back to a number of bytes; without any, it is removed."""
    if n_bytes == 0:
        path.unlink()
        return
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # closing the file releases it
        if file.seek(0, os.SEEK_END) > n_bytes:
            file.truncate(n_bytes)


def _cut_parts(path: Path, saved_end: str) -> None:
    """Remove the Parquet files of a table that were written after a checkpoint.

    If the clock of this machine is behind that of the machine that wrote the others, these are numbered from 0
    on, in their order, so that they sort before those that will be written now.

    Args:
        path: Folder of the table.
        saved_end: Name of the last file at the time of the checkpoint, which may have another number since.
    """
    parts = sorted(_parts(path))
    end = next((part for part in parts if part[_N_DIGITS:] == saved_end[_N_DIGITS:]), saved_end)
    kept = [part for part in parts if part <= end]
    for part in parts[len(kept) :]:
        (path / part).unlink()
    if kept and kept[-1] >= f"{time.time_ns():0{_N_DIGITS}}":
        for number, part in enumerate(kept):
            (path / part).rename(path / f"{number:0{_N_DIGITS}}{part[_N_DIGITS:]}")

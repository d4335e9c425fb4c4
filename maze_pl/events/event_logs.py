"""Raw event logs: each event with all its attributes in a file of its kind, for analyses that nobody has thought of.

Actions are no part of them: recorded trajectories hold those. Rewards are, as `BaseEnvEvents.reward`.
"""

import csv
import errno
import fcntl
import importlib.util
import io
import mmap
import os
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from maze_pl.core.output_folder import output_folder
from maze_pl.events.pubsub import EventRecord, Subscriber
from maze_pl.events.topics import declarations

_COLUMNS: Final = {"episode_id": "str", "episode_started": "float", "env_time": "int"}
_PAGE: Final = mmap.PAGESIZE
_ARROW_TYPES: Final = {"bool": "bool", "int": "int64", "float": "float64"}


class EventLogWriter(Subscriber):
    """Writes the events of one environment somewhere; configurations name it by its class path.

    `EventLogsWrapper` registers it with the environment's pubsub and tells it where episodes end.
    """

    @abstractmethod
    def write(self, episode_id: str, record: EventRecord) -> None:
        """Take an event, in the order in which they happen.

        Args:
            episode_id: UUID of the episode.
            record: The event; its attributes belong to the environment, which may change them later.
        """

    def end_episode(self) -> None:
        """Be told that an episode has ended; nothing happens by default."""

    def close(self) -> None:
        """Write what is left; events may follow all the same. Nothing happens by default."""

    def get_interfaces(self) -> list[type]:
        """All topics."""
        return [object]

    def notify_event(self, record: EventRecord) -> None:
        """Write the event if it belongs into logs."""
        if self.pubsub.context.is_logged:
            self.write(self.pubsub.context.episode_id, record)


class EventLogFiles(EventLogWriter):
    """Writes a file for each kind of event, with a row for each event that happened.

    The columns are `episode_id`, `episode_started` (Unix time: evaluations play episodes of the same seeds, and so of
    the same ids, again and again), `env_time` (environment steps completed before its own), and the event's
    attributes; what is neither a number nor text is written as Python shows it, `(4, 3)`. Any number of environments
    and processes may write to one folder, at the same time or one after the other. Files can be read at any time, also
    after a writer was killed, which takes with it only the rows that it had not yet written.

    - `csv`: `<Topic>.<event>.csv`, for `pandas.read_csv`. Written at the end of each episode at the latest.
    - `parquet`: a folder `<Topic>.<event>.parquet` of parts, for `pandas.read_parquet`. Attributes that are declared as
      `bool`, `int` or `float` are columns of that type, all others are text. It needs pyarrow.

    Args:
        folder: Where they lie; relative to the run directory in `maze-pl fit`.
        format: `csv` or `parquet`.
        n_rows: How many rows of one kind are collected before they are written; 100 or 10,000 if None.

    Raises:
        ImportError: pyarrow is missing.
    """

    __slots__ = ("_rows",)  # apart from what copies and `clone_from` take over, and must not write once more

    def __init__(
        self, folder: str = "event_logs", format: Literal["csv", "parquet"] = "csv", n_rows: int | None = None
    ) -> None:
        super().__init__()
        if format not in ("csv", "parquet"):
            raise ValueError(f"format={format!r} must be 'csv' or 'parquet'")
        if format == "parquet" and importlib.util.find_spec("pyarrow") is None:
            raise ImportError("event logs in Parquet need pyarrow: pip install 'maze-pl[parquet]'")
        self.folder, self.is_csv = output_folder(folder), format == "csv"
        self.n_rows = n_rows or (100 if self.is_csv else 10_000)
        self._rows: dict[tuple[type, str], list[tuple[Any, ...]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._rows = {}

    def write(self, episode_id: str, record: EventRecord) -> None:
        """Take an event; see `EventLogWriter.write`."""
        topic, event = record.topic, record.event.__name__
        rows = self._rows.setdefault((topic, event), [])
        cells = [_cell(record.attributes[name]) for name in declarations(topic)[event].signature.parameters]
        rows.append((episode_id, self.pubsub.context.episode_started, record.env_time, *cells))
        if len(rows) >= self.n_rows:
            self._save(topic, event)

    def end_episode(self) -> None:
        """Write what there is, unless that would make a file of its own."""
        if self.is_csv:
            self.close()

    def close(self) -> None:
        """Write what there is."""
        for topic, event in list(self._rows):
            self._save(topic, event)

    def _save(self, topic: type, event: str) -> None:
        attributes = declarations(topic)[event].signature.parameters.values()
        declared = {one.name: getattr(one.annotation, "__name__", one.annotation) for one in attributes}
        columns = {f"{name}_" if name in _COLUMNS else name: kind for name, kind in declared.items()}
        self.append(f"{topic.__name__}.{event}", _COLUMNS | columns, self._rows.pop((topic, event)))

    def append(self, name: str, columns: dict[str, str], rows: list[tuple[Any, ...]]) -> None:
        """Write rows.

        Args:
            name: `<Topic>.<event>`.
            columns: Names of the columns with the types that are declared.
            rows: Their cells.
        """
        path = self.folder / f"{name}.{'csv' if self.is_csv else 'parquet'}"
        try:
            (path.parent if self.is_csv else path).mkdir(parents=True, exist_ok=True)
            (_append if self.is_csv else _add_part)(path, columns, rows)
        except OSError as error:
            raise OSError(error.errno, f"the event log {path} cannot be written: {error.strerror}") from error


def _cell(value: Any) -> bool | int | float | str | None:
    """A number or a text that nobody can change any more."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _append(path: Path, columns: dict[str, str], rows: list[tuple[Any, ...]]) -> None:
    """Append rows to a CSV file, with its header if it is new.

    Files grow by pages, and a process may be killed between two of them. Blank lines, which readers pass over, keep
    rows from crossing the border, so that what others see is whole at every moment.
    """
    header = _line(columns)
    with path.open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # closing the file gives it back
        file.seek(0)
        if file.read(len(header)) not in (b"", header):
            raise ValueError(f"{path} has other columns than {list(columns)}: name another folder, or remove the file")
        end, content = file.seek(0, os.SEEK_END), bytearray()
        for line in (*([] if end else [header]), *map(_line, rows)):
            room = _PAGE - (end + len(content)) % _PAGE
            content += (b"\n" * room if room < len(line) <= _PAGE else b"") + line
        if file.write(content) != len(content):
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _line(row: Iterable[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(row)
    return text.getvalue().encode()


def _add_part(path: Path, columns: dict[str, str], rows: list[tuple[Any, ...]]) -> None:
    """Add a file with rows to a folder of Parquet files; readers pass over hidden files."""
    import pyarrow as pa
    from pyarrow import parquet

    arrays = {}
    for (name, declared), values in zip(columns.items(), zip(*rows, strict=True), strict=True):
        kind = _ARROW_TYPES.get(declared, "string")
        try:
            texts = [value if value is None else str(value) for value in values]
            arrays[name] = pa.array(texts if kind == "string" else values).cast(kind)  # refuses what would lose digits
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"{path.stem}: the attribute {name!r} is declared as {declared}: {error}") from error
    part = f"{time.time_ns():020}-{uuid.uuid4().hex}.parquet"  # sorted by time
    parquet.write_table(pa.table(arrays), path / f".{part}")
    os.replace(path / f".{part}", path / part)

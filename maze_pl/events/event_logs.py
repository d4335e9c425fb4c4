"""Raw event logs: every event with all its attributes, in one file per kind of event.

Actions are not included; recorded trajectories hold them. Rewards are included as
`BaseEnvEvents.reward`, and the KPIs of completed episodes as `BaseEnvEvents.kpi`.
"""

import csv
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
from typing import Any, BinaryIO, Final, Literal

import numpy as np

from maze_pl.events.attribute_values import is_tensor
from maze_pl.events.pubsub import EventRecord, Subscriber
from maze_pl.events.topics import declarations
from maze_pl.system.atomic_files import output_folder
from maze_pl.system.deferred_files import deferred_files

_COLUMNS: Final = {"episode_id": "str", "episode_started": "float", "env_time": "int"}
_PAGE: Final = mmap.PAGESIZE
_ARROW_TYPES: Final = {"bool": "bool", "int": "int64", "float": "float64"}


class EventLogWriter(Subscriber):
    """Writer for the events of one environment; configurations name it by its class path.

    `EventLogsWrapper` registers it with the environment's pubsub and tells it when episodes end.

    Attributes:
        has_news: Whether an event was written since the last end of an episode.
    """

    has_news = False

    @abstractmethod
    def write(self, episode_id: str, record: EventRecord) -> None:
        """Receive an event; events come in the order in which they happen.

        Args:
            episode_id: UUID of the episode.
            record: The event; `EventRecord` tells which of its attributes the environment may change later.
        """

    def end_episode(self) -> None:
        """Handle the end of an episode; does nothing by default.

        If KPIs are computed, their events follow, and this is called once more after them.
        """

    def write_pending(self) -> str | None:
        """Write pending events before a checkpoint is written, from which a run may be resumed.

        Does nothing by default. It is also called in a temporary environment that is made to look at it.

        Returns:
            Folder of `EventLogFiles` in which a resumed run removes the rows after its checkpoint, see
            `cut_event_logs`; None if there is no such folder.
        """
        return None

    def close(self) -> None:
        """Write pending events; more events may follow. Does nothing by default."""

    def get_interfaces(self) -> list[type]:
        """All topics."""
        return [object]

    def notify_event(self, record: EventRecord) -> None:
        """Write the event if it belongs in the logs."""
        if self.pubsub.context.is_logged:
            self.has_news = True
            self.write(self.pubsub.context.episode_id, record)


class EventLogFiles(EventLogWriter):
    """Writes a table for each kind of event, with a row for each event that happened.

    The columns are `episode_id`, `episode_started` (Unix time, as evaluations repeat episodes with
    the same seeds and thus the same ids), `env_time` (environment steps completed before the step
    of the event), and the event's attributes. Values that are neither numbers nor text are written
    as Python prints them, such as `(4, 3)`. Any number of environments and processes may write to
    one folder, concurrently or in turn. Files can be read at any time, even after a writer was
    killed: only the rows that it had not yet written are lost. All rows are written before a
    checkpoint, and a resumed run removes those after it if the folder is in the run directory.

    - `csv`: `<Topic>.<event>.csv`, for `pandas.read_csv`. Written at the end of each episode at the latest.
    - `parquet`: a folder `<Topic>.<event>.parquet` of parts, for `pandas.read_parquet`. Attributes that are declared as
      `bool`, `int` or `float` are columns of that type; all others are text. This needs pyarrow.

    Args:
        folder: Folder of the files; relative to the run directory in `maze-pl fit`.
        format: `csv` or `parquet`.
        n_rows: Number of rows of one kind that are collected before they are written; if None, 100
            for `csv` and 10,000 for `parquet`.

    Raises:
        ImportError: pyarrow is missing.
    """

    __slots__ = ("_rows",)  # excluded from copies and `clone_from`, which must not write rows twice

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
        """Receive an event; see `EventLogWriter.write`."""
        topic, event = record.topic, record.event.__name__
        rows = self._rows.setdefault((topic, event), [])
        cells = [_cell(record.attributes[name]) for name in declarations(topic)[event].signature.parameters]
        rows.append((episode_id, self.pubsub.context.episode_started, record.env_time, *cells))
        if len(rows) >= self.n_rows:
            self._save(topic, event)

    def end_episode(self) -> None:
        """Write pending rows as CSV; Parquet waits for more, as each write adds a file."""
        if self.is_csv:
            self.write_pending()

    def write_pending(self) -> str | None:
        """Write pending rows, and return the folder."""
        for topic, event in list(self._rows):
            self._save(topic, event)
        return str(self.folder)

    def close(self) -> None:
        """Write pending rows, and wait until all files of this process have their names."""
        self.write_pending()
        if not self.is_csv:
            deferred_files().flush()

    def _save(self, topic: type, event: str) -> None:
        attributes = declarations(topic)[event].signature.parameters.values()
        declared = {one.name: getattr(one.annotation, "__name__", one.annotation) for one in attributes}
        columns = {f"{name}_" if name in _COLUMNS else name: kind for name, kind in declared.items()}
        self.append(f"{topic.__name__}.{event}", _COLUMNS | columns, self._rows.pop((topic, event)))

    def append(self, name: str, columns: dict[str, str], rows: list[tuple[Any, ...]]) -> None:
        """Write rows of one kind of event.

        Args:
            name: `<Topic>.<event>`.
            columns: Names of the columns with their declared types.
            rows: Their cells.
        """
        path = self.folder / f"{name}.{'csv' if self.is_csv else 'parquet'}"
        try:
            if self.is_csv:
                self.folder.mkdir(parents=True, exist_ok=True)
                _append(path, columns, rows)
            else:
                path.mkdir(parents=True, exist_ok=True)
                _add_part(path, columns, rows)
        except OSError as error:
            raise OSError(error.errno, f"the event log {path} cannot be written: {error.strerror}") from error


def _cell(value: Any) -> bool | int | float | str | None:
    """Immutable number or text that stands for a value in a row."""
    if isinstance(value, np.generic | np.ndarray) or is_tensor(value):
        value = value.tolist()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _append(path: Path, columns: dict[str, str], rows: list[tuple[Any, ...]]) -> None:
    """Append rows to a CSV file, with its header if it is new.

    Files grow by pages, and a process may be killed between two of them. Blank lines, which readers
    skip, keep rows from crossing page boundaries, so that others only ever see whole rows.
    """
    header = _line(columns)
    with path.open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # closing the file releases it
        file.seek(0)
        start = file.read(len(header))
        if start != header and not header.startswith((start + file.read()).rstrip(b"\0")):
            raise ValueError(f"{path} has columns other than {list(columns)}: name another folder, or remove the file")
        _drop_incomplete_row(file)
        end = file.seek(0, os.SEEK_END)
        lines = list(map(_line, rows))
        if end == 0:
            lines.insert(0, header)
        content = bytearray()
        for line in lines:
            room = _PAGE - (end + len(content)) % _PAGE  # bytes up to the end of the page
            if room < len(line) <= _PAGE:
                content += b"\n" * room
            content += line
        try:
            written = 0
            while written < len(content):  # at a limit, a part is written, and then the error is raised
                written += file.write(content[written:])
        except OSError:
            file.truncate(end)
            raise


def _drop_incomplete_row(file: BinaryIO) -> None:
    """Remove a last row, or header, that is incomplete, as after a power failure; the next row would complete it."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - 1))
    if file.read(1) in (b"", b"\n"):
        return
    file.seek(0)
    content = file.read()
    n_kept = content.rfind(b"\n") + 1
    while content.count(b'"', 0, n_kept) % 2:  # the line break is within a cell
        n_kept = content.rfind(b"\n", 0, n_kept - 1) + 1
    file.truncate(n_kept)


def _line(row: Iterable[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(row)
    return text.getvalue().encode()


def _add_part(path: Path, columns: dict[str, str], rows: list[tuple[Any, ...]]) -> None:
    """Add a file with rows to a folder of Parquet files; readers skip hidden files."""
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
    part = f"{time.time_ns():020}-{uuid.uuid4().hex}.parquet"  # sorted by time; see `cut_event_logs`
    with deferred_files().replaced(path / part) as unfinished:
        parquet.write_table(pa.table(arrays), unfinished)

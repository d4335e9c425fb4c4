"""Numbers in TensorBoard's event files; TensorBoard itself leaves the rest of a damaged file out without a word."""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from maze_pl.config.search_path import ConfigurationError

_LENGTH: Final = struct.Struct("<QI")  # length of a record, and its checksum
_CHECKSUM: Final = struct.Struct("<I")  # after the content
_N_EXTRA: Final = _LENGTH.size + _CHECKSUM.size


def read_scalars(files: Sequence[Path]) -> dict[str, list[tuple[int, float]]]:
    """Read the numbers of a log, without points that a resumed run has replaced.

    Args:
        files: Its event files, in any order. Names do not tell the order of files of the same second.

    Returns:
        Tag -> pairs of step and value. A last record that is incomplete is left out.

    Raises:
        ConfigurationError: A file is damaged.
    """
    points: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(files, key=_started_at):
        for event in _events(file):
            if event.HasField("session_log") and event.session_log.status == SessionLog.START:
                for tag, known in points.items():
                    points[tag] = [point for point in known if point[0] < event.step]
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    points.setdefault(value.tag, []).append((event.step, value.simple_value))
    return points


def _started_at(file: Path) -> float:
    """The time of a file's first event, in seconds since 1970; 0 if it has none."""
    first = next(_events(file), None)
    return 0.0 if first is None else first.wall_time


def _events(file: Path) -> Iterator[Event]:
    """Yield the events of a file.

    Raises:
        ConfigurationError: It is damaged.
    """
    n_read = 0
    for record in RawEventFileLoader(str(file)).Load():
        n_read += len(record) + _N_EXTRA
        yield Event.FromString(record)
    with file.open("rb") as content:
        content.seek(n_read)
        if _is_damaged(content.read()):
            others = "move it away to read the other files, or read metrics.csv with `maze_pl.read_metrics`"
            raise ConfigurationError(f"the event file {file} is damaged after {n_read:,} bytes: {others}")


def _is_damaged(rest: bytes) -> bool:
    """True if the bytes after the last intact record of a file do not begin another record.

    A running process may be writing one, and may have completed it by now. Zeros are where a power failure
    has prevented that.
    """
    if len(rest) < _LENGTH.size or not any(rest):
        return False
    length, checksum = _LENGTH.unpack_from(rest)
    if masked_crc32c(rest[:8]) != checksum:
        return True
    if length + _N_EXTRA > len(rest):
        return False
    content = rest[_LENGTH.size : _LENGTH.size + length]
    (checksum,) = _CHECKSUM.unpack_from(rest, _LENGTH.size + length)
    return bool(masked_crc32c(content) != checksum)

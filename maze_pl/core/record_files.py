"""Files of recorded episodes: what is whole can be read, whatever became of the rest.

A file begins with 64 bytes: a line of text that names the kind of its records and the version of the format, and where
its last whole episode ends. Then come episodes: each a head of 16 bytes (length of the body, CRC-32 of both) and a
body, whose length is a multiple of 16. Numbers are little-endian.
"""

import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from maze_pl.core.output_folder import write_file

FORMAT: Final = 1
_HEAD, _END = struct.Struct("<QI4x"), struct.Struct("<Q")
_LINE_LENGTH: Final = 56

Record = TypeVar("Record")


def write_record(path: str | Path, kind: str, body: bytes) -> None:
    """Write a file with one episode, which replaces a former one once it is complete.

    Args:
        path: The file.
        kind: Of records: `spaces` or `states`.
        body: The episode.
    """
    content = _framed(body)
    write_file(path, _line(kind) + _END.pack(_LINE_LENGTH + _END.size + len(content)) + content)


def append_record(path: Path, kind: str, body: bytes) -> None:
    """Append an episode to a file, in place of an unfinished one that a killed process left.

    Args:
        path: The file, made if it is not there.
        kind: Of records: `spaces` or `states`.
        body: The episode.

    Raises:
        ValueError: The file holds something else.
        OSError: It cannot be written; all former episodes are in it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    content, line = _framed(body), _line(kind)
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # closing the file gives it back
        begun = file.read(_LINE_LENGTH)
        if begun != line[: len(begun)]:
            raise ValueError(f"{path} exists and holds no {kind}: name another file, or remove it")
        end = max(*_END.unpack(file.read(_END.size).ljust(_END.size, b"\0")), _LINE_LENGTH + _END.size)
        file.seek(0)
        file.write(line)
        file.truncate(end)
        file.seek(end)
        file.write(content)
        file.seek(_LINE_LENGTH)  # writes what is before
        file.write(_END.pack(end + len(content)))


def read_records(
    path: str | Path, decoders: Mapping[str, Callable[[bytearray], Record]], damaged: list[str] | None = None
) -> Iterator[Record]:
    """The episodes of a file, one after the other; nothing is allocated that the file cannot hold.

    Args:
        path: The file.
        decoders: For each kind of records that may come, what makes one of a body.
        damaged: Where messages about what cannot be read go, in place of exceptions.

    Raises:
        ValueError: Something is damaged or missing, or the file holds something else; the message names it.
    """
    with open(path, "rb", buffering=1 << 16) as file:  # most episodes are read in one go
        left, end, size, decode = 0, 0, 0, None
        while decode is None or left > 0 or (left == 0 and end > size):  # if whole episodes are cut off
            try:
                if decode is None:
                    decode = decoders[_kind(file.read(_LINE_LENGTH), decoders)]
                    (end,) = _END.unpack(file.read(_END.size).ljust(_END.size, b"\0"))
                    size = os.fstat(file.fileno()).st_size  # after `end`, as somebody may be appending
                    left = size - _LINE_LENGTH - _END.size
                head = file.read(_HEAD.size)
                length, checksum = _HEAD.unpack(head.ljust(_HEAD.size, b"\xff"))
                left -= _HEAD.size + length
                if left < 0:
                    raise ValueError("it is cut short: its last episode is not whole")
                body = bytearray(length)
                cast(Any, file).readinto(body)
                if zlib.crc32(body, zlib.crc32(head[:8])) != checksum:
                    raise ValueError(f"it is damaged: what ends {left} bytes before the end is not what was written")
                record = decode(body)
            except Exception as error:  # a body that is made up may lead to anything
                problem = f"{path}: {error}" if type(error) is ValueError else f"{path} holds no episode: {error!r}"
                if damaged is None:
                    raise ValueError(problem) from error
                damaged.append(problem)
                if decode is None:
                    return
            else:
                yield record


def _kind(line: bytes, kinds: Mapping[str, object]) -> str:
    """The kind of records in a file that begins with this line."""
    known = {_line(kind): kind for kind in kinds}
    if line in known:
        return known[line]
    special = {b"": "is empty", b"\x80": "is a pickle, which runs whatever code it holds and is not read"}
    found = special.get(line[:1], f"begins with {line.decode(errors='replace').strip()!r}")
    expected = " or ".join(one.decode().strip() for one in known)
    raise ValueError(f"it {found}, expected {expected!r}; a higher format needs a newer maze_pl")


def _line(kind: str) -> bytes:
    return f"maze_pl {kind} format {FORMAT}".ljust(_LINE_LENGTH - 1).encode() + b"\n"


def _framed(body: bytes) -> bytes:
    body += bytes(-len(body) % 16)
    length = _END.pack(len(body))
    return _HEAD.pack(len(body), zlib.crc32(body, zlib.crc32(length))) + body

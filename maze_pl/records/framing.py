"""Framing of episodes in files, common to all kinds of records, with checksums.

These files hold numbers, a description of the spaces (JSON) and the bytes of arrays. Nothing in
them is executed, and nothing is trusted before it is checked. Intact episodes can be read even if
the rest of the file is damaged.

A file begins with 64 bytes: a line of text that names the kind of its records and the version of
the format, and the offset at which its last complete episode ends. Episodes follow, each with a
header of 16 bytes (length of the body, CRC-32 of both) and a body, whose length is a multiple of
16. Numbers are little-endian.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from maze_pl.system.atomic_files import write_file
from maze_pl.system.deferred_files import deferred_files

FORMAT: Final = 1
HEAD, END = struct.Struct("<QI4x"), struct.Struct("<Q")
LINE_LENGTH: Final = 56
_MOST_UNREADABLE: Final = 100
"""Consecutive unreadable episodes after which the rest of a file is given up."""

Record = TypeVar("Record")


def file_content(record_kind: str, body: bytes) -> bytes:
    """Content of a file with one episode.

    Args:
        record_kind: Kind of records: `spaces` or `states`.
        body: The episode.
    """
    content = _framed(body)
    head = first_line(record_kind) + END.pack(LINE_LENGTH + END.size + len(content))
    return head + content


def write_record(path: str | Path, record_kind: str, body: bytes) -> None:
    """Write a file with one episode; it replaces a previous file once it is on the disk.

    Args:
        path: The file.
        record_kind: Kind of records: `spaces` or `states`.
        body: The episode.
    """
    write_file(path, file_content(record_kind, body))


def append_record(path: Path, record_kind: str, body: bytes) -> None:
    """Append an episode to a file; overwrites an incomplete episode left by a killed process.

    Args:
        path: The file, created if it does not exist.
        record_kind: Kind of records: `spaces` or `states`.
        body: The episode.

    Raises:
        ValueError: The file holds something else.
        OSError: The file cannot be written; it keeps all previous episodes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    content, line = _framed(body), first_line(record_kind)
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # closing the file releases the lock
        begun = file.read(LINE_LENGTH)
        if begun != line[: len(begun)]:
            raise ValueError(f"{path} exists and holds no records of {record_kind}: name another file, or remove it")
        end = max(*END.unpack(file.read(END.size).ljust(END.size, b"\0")), LINE_LENGTH + END.size)
        file.seek(0)
        file.write(line)
        file.truncate(end)
        file.seek(end)
        file.write(content)
        file.seek(LINE_LENGTH)  # flushes the content before the offset that makes it valid
        file.write(END.pack(end + len(content)))


def read_records(
    path: str | Path, decoders: Mapping[str, Callable[[bytearray], Record]], damaged: list[str] | None = None
) -> Iterator[Record]:
    """Yield the episodes of a file in order; allocates no more than the file can hold.

    Args:
        path: The file.
        decoders: For each accepted kind of records, the function that decodes a body.
        damaged: Collects messages about unreadable parts, in place of exceptions.

    Raises:
        ValueError: Something is damaged or missing, or the file holds something else; the message names it.
    """
    deferred_files().flush()  # files of this process that are not on the disk yet
    with open(path, "rb", buffering=1 << 16) as file:  # most episodes take a single read
        try:
            decode = decoders[kind_of(file.read(LINE_LENGTH), decoders)]
            (end,) = END.unpack(file.read(END.size).ljust(END.size, b"\0"))
            size = written_size(path)  # after `end`, as another process may be appending
        except Exception as error:
            problem = _problem_of(path, error)
            if damaged is None:
                raise ValueError(problem) from error
            damaged.append(problem)
            return
        left = size - LINE_LENGTH - END.size  # bytes that follow; negative if they are of no use
        n_unreadable = 0
        is_complete = False
        while not is_complete:
            try:
                head = file.read(HEAD.size)
                length, checksum = HEAD.unpack(head.ljust(HEAD.size, b"\xff"))
                rest = left
                left -= HEAD.size + length
                if left < 0:
                    raise ValueError("it is cut short: its last episode is not whole")
                if length == 0:
                    left = -1
                    raise ValueError(f"it is damaged: its last {rest} bytes are an empty episode")
                body = bytearray(length)
                cast(Any, file).readinto(body)
                if zlib.crc32(body, zlib.crc32(head[:8])) != checksum:
                    raise ValueError(f"it is damaged: the checksum {left} bytes before the end is wrong")
                record = decode(body)
            except Exception as error:  # a forged body may raise anything
                problem = _problem_of(path, error)
                if damaged is None:
                    raise ValueError(problem) from error
                n_unreadable += 1
                if n_unreadable == _MOST_UNREADABLE and left > 0:
                    problem += (
                        f"; the {left} bytes after it are skipped, as {n_unreadable} episodes in a row are damaged"
                    )
                    left = -1
                damaged.append(problem)
            else:
                n_unreadable = 0
                yield record
            is_complete = left < 0 or (left == 0 and end <= size)  # if not, episodes are missing


def _problem_of(path: str | Path, error: Exception) -> str:
    """Describe an error in reading a file; errors other than ValueError come from forged bodies."""
    if type(error) is ValueError:
        return f"{path}: {error}"
    return f"{path} holds no episode: {error!r}"


def written_size(path: str | Path) -> int:
    """Size in bytes of a file that is not sparse.

    Args:
        path: The file.

    Raises:
        ValueError: The file is sparse: a few bytes on the disk may claim any size.
    """
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        first_hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE) if size else 0
    if first_hole < size:
        remedy = "if this is intended, copy it with cp --sparse=never"
        raise ValueError(
            f"it is sparse: from byte {first_hole} on, some of its {size} bytes were never written; {remedy}"
        )
    return size


def kind_of(line: bytes, kinds: Iterable[str]) -> str:
    """Return the kind of the records in a file that begins with a line.

    Args:
        line: The line, of `LINE_LENGTH` bytes.
        kinds: Accepted kinds.

    Raises:
        ValueError: It is another kind, or no record file.
    """
    known = {first_line(kind): kind for kind in kinds}
    if line in known:
        return known[line]
    special = {b"": "is empty", b"\x80": "is a pickle, which runs whatever code it holds and is not read"}
    found = special.get(line[:1], f"begins with {line.decode(errors='replace').strip()!r}")
    expected = " or ".join(one.decode().strip() for one in known)
    raise ValueError(f"it {found}, expected {expected!r}; a higher format needs a newer maze_pl")


def first_line(kind: str) -> bytes:
    """Return the line with which a file of records begins."""
    return f"maze_pl {kind} format {FORMAT}".ljust(LINE_LENGTH - 1).encode() + b"\n"


def _framed(body: bytes) -> bytes:
    body += bytes(-len(body) % 16)
    length = END.pack(len(body))
    return HEAD.pack(len(body), zlib.crc32(body, zlib.crc32(length))) + body

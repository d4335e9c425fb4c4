"""Contents of record files, read from their headers: no arrays are decoded, and no pickle is loaded."""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from maze_pl.core.provenance import PROVENANCE_KEY
from maze_pl.records.framing import END, FORMAT, HEAD, LINE_LENGTH, kind_of, written_size
from maze_pl.records.record_files import FIXED


@dataclass(frozen=True)
class FileContents:
    """Contents of a record file.

    Attributes:
        kind: Kind of its records: `spaces` or `states`.
        format: Version of the format.
        n_episodes: Number of episodes.
        n_acts: Number of acts of all episodes; None for state records, which are pickles.
        n_env_steps: Number of environment steps of all episodes; None for state records.
        spec: Description of the spaces of the first episode; None for state records.
        provenance: Origin of the first episode, if the file names it.
    """

    kind: str
    format: int
    n_episodes: int
    n_acts: int | None = None
    n_env_steps: int | None = None
    spec: dict[str, Any] | None = None
    provenance: dict[str, Any] | None = None


def file_contents(path: str | Path) -> FileContents:
    """Read the headers of a record file.

    Args:
        path: The file. Only the first episode's checksum is verified.

    Raises:
        ValueError: The file is damaged or cut short, or holds something else; the message names it.
    """
    try:
        size = written_size(path)
        with open(path, "rb") as file:
            return _contents(file, size)
    except (ValueError, RecursionError) as error:
        reason = error if type(error) is ValueError else "its description is damaged"
        raise ValueError(f"{path}: {reason}") from error


def _contents(file: IO[bytes], size: int) -> FileContents:
    """Read the headers of an open file of a size in bytes."""
    kind = kind_of(file.read(LINE_LENGTH), ("spaces", "states"))
    (end,) = END.unpack(file.read(END.size).ljust(END.size, b"\0"))
    if end > size:
        raise ValueError(f"it is cut short: {end - size} bytes are missing")
    n_episodes = n_acts = n_env_steps = 0
    description: dict[str, Any] = {}
    place = LINE_LENGTH + END.size
    while place < end:
        file.seek(place)
        head = file.read(HEAD.size)
        if len(head) < HEAD.size:
            raise ValueError("it is cut short: its last episode is not whole")
        length, checksum = HEAD.unpack(head)
        place += HEAD.size + length
        if length == 0 or place > end:
            raise ValueError(f"it is damaged after {n_episodes} episodes: an episode cannot have {length} bytes")
        if kind == "spaces":
            fixed = file.read(min(FIXED.size, length)).ljust(FIXED.size, b"\0")
            n, last_env_time, _, _, n_spec, _, _ = FIXED.unpack(fixed)
            if n_episodes == 0:
                body = fixed + file.read(length - FIXED.size) if length > FIXED.size else fixed
                if zlib.crc32(body, zlib.crc32(head[:8])) != checksum:
                    raise ValueError("it is damaged: the checksum of its first episode is wrong")
                description = json.loads(body[FIXED.size : FIXED.size + n_spec])
            n_acts += n
            n_env_steps += last_env_time
        n_episodes += 1
    if n_episodes == 0:
        raise ValueError("it holds no episode")
    if kind == "states":
        return FileContents(kind, FORMAT, n_episodes)
    provenance = description.pop(PROVENANCE_KEY, None)
    return FileContents(kind, FORMAT, n_episodes, n_acts, n_env_steps, description, provenance)

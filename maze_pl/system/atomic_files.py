"""Output folders, which lie in the run directory if a command sets it, and atomic replacement of files."""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

RUN_DIR_VARIABLE: Final = "MAZE_PL_RUN_DIR"
"""Environment variable with the run directory, in all processes of a run."""
PART_SUFFIX: Final = ".part"
"""Suffix of incomplete files, which are useless once the process that writes them has died."""
_N_DIGITS: Final = 16  # of the digest in a shortened name
_CANNOT_SYNCHRONIZE: Final = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # of network file systems


def output_folder(folder: str | Path) -> Path:
    """Resolve a folder relative to the run directory, or the current one without a run."""
    return Path(os.environ.get(RUN_DIR_VARIABLE, ""), folder)


def shown_path(path: str | Path) -> str:
    """Return a path as a user would write it in the current folder."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else str(path)


def write_file(path: str | Path, content: bytes) -> None:
    """Write a file atomically: at any time either the previous or the new content is complete.

    Args:
        path: The file; its folders are created.
        content: The whole content.

    Raises:
        OSError: It cannot be written, or it is not a regular file; see `replaced`.
    """
    with replaced(path) as part:
        part.write_bytes(content)


@contextlib.contextmanager
def replaced(path: str | Path, follows_links: bool = True) -> Iterator[Path]:
    """Replace a file atomically by one written under another name; no change on failure.

    Returns once the file is on the disk, so that it also survives a power failure. That takes 10 to
    20 ms; `DeferredFiles` waits in the background.

    Args:
        path: The file; its folders are created.
        follows_links: Whether the file that a symbolic link names is replaced, not the link.

    Yields:
        The path to write to.

    Raises:
        OSError: It cannot be written, or it is a device, a pipe or a folder.
    """
    path = Path(path)
    require_replaceable(path)
    if follows_links:
        path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_path(path)
    try:
        yield part
        put_in_place(part, path)
    finally:
        part.unlink(missing_ok=True)


def part_path(path: Path, number: int | None = None) -> Path:
    """Return the path that a file is written to before it takes its name.

    Args:
        path: The file, in a folder that exists. If its name is almost as long as names may be, a
            part of it and a digest stand for it.
        number: Number that tells files of one name apart, if this process writes several at a time.
    """
    ending = f".{os.getpid()}{PART_SUFFIX}" if number is None else f".{os.getpid()}-{number}{PART_SUFFIX}"
    name = os.fsencode(path.name)
    n_bytes = os.pathconf(path.parent, "PC_NAME_MAX") - len(ending) - 1
    if len(name) <= n_bytes:
        return path.with_name(f".{path.name}{ending}")
    digest = hashlib.sha256(name).hexdigest()[:_N_DIGITS]
    start = name[: n_bytes - _N_DIGITS - 1].decode("utf-8", "ignore")  # without half a character
    return path.with_name(f".{start}~{digest}{ending}")


def require_replaceable(path: Path) -> None:
    """Refuse a path that a file must not replace.

    Args:
        path: A path, or a symbolic link to one, which may be missing.

    Raises:
        OSError: It exists, and is not a regular file but a device, a pipe, a socket or a folder; or
            it is a symbolic link that ends nowhere, because it leads back to itself. Or a name in
            the path is too long.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        require_short_names(path)
        return
    except NotADirectoryError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        fault = "it is a device, a pipe or a socket, which a file would replace"
        raise OSError(errno.EINVAL, fault, str(path))


def require_short_names(path: Path) -> None:
    """Refuse a path with a name that the file system does not allow, also of folders that are still to be made.

    Raises:
        OSError: A name is too long.
    """
    target = Path(os.path.realpath(path))
    folder = next(parent for parent in (target, *target.parents) if parent.exists())
    longest = os.pathconf(folder, "PC_NAME_MAX")
    if any(len(os.fsencode(name)) > longest for name in target.parts):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))


def put_in_place(part: Path, path: Path) -> None:
    """Rename a complete file so that it replaces another one; see `replaced`."""
    put_in_place_together([(part, path)])


def put_in_place_together(files: Sequence[tuple[Path, Path]]) -> None:
    """Rename complete files so that they replace others, in their order.

    Args:
        files: Present path and new path of each file.
    """
    for part, _ in files:
        _synchronize(part)
    for part, path in files:
        os.replace(part, path)
    for folder in dict.fromkeys(path.parent for _, path in files):
        try:
            _synchronize(folder)
        except OSError as error:
            if error.errno not in _CANNOT_SYNCHRONIZE:
                raise


def _synchronize(path: Path) -> None:
    """Wait until a file, or the directory entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

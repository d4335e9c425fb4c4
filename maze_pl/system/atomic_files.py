"""Output folders, which lie in the run directory if a command sets it, and atomic replacement of files."""

import contextlib
import errno
import hashlib
import itertools
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

RUN_DIR_VARIABLE: Final = "MAZE_PL_RUN_DIR"
"""Environment variable with the run directory, in all processes of a run."""
PART_SUFFIX: Final = ".part"
"""Suffix of incomplete files, which are useless once the process that writes them has died."""
LOCK_FILE: Final = ".lock"
"""File in the directory of a run, which is locked while a process writes to the directory."""
_PART_NAME: Final = re.compile(rf"\..+\.(\d+)(?:-\d+)?{re.escape(PART_SUFFIX)}", re.DOTALL)
_SECONDS_LEFT: Final = 24 * 3600
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
    20 ms; `DeferredFiles` waits in the background. Incomplete files of the same name that a killed
    process left more than a day ago are removed.

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
    _remove_left_parts(path)
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


def _remove_left_parts(path: Path) -> None:
    """Remove incomplete files of a name that killed processes have left.

    Processes of other machines and containers may write to the same folder, and their numbers mean
    nothing here. So a file is removed only if there is no such process here and it was last
    written more than a day ago. Files of `DeferredFiles` are included.

    Args:
        path: The file whose parts are removed.
    """
    start = part_path(path).name.removesuffix(f"{os.getpid()}{PART_SUFFIX}")
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if not entry.name.startswith(start) or not entry.name.endswith(PART_SUFFIX):
                continue
            process, _, number = entry.name[len(start) : -len(PART_SUFFIX)].partition("-")
            is_named_so = process.isdecimal() and (not number or number.isdecimal())
            if not is_named_so or not entry.is_file(follow_symlinks=False) or _is_alive(int(process)):
                continue
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > _SECONDS_LEFT:
                os.unlink(entry.path)


def remove_parts_below(folder: Path) -> None:
    """Remove incomplete files in all subfolders of a folder whose processes have ended on this machine.

    Args:
        folder: The folder of a run whose processes have all ended. Subfolders of other runs are left alone.
    """
    for parent, subfolders, names in os.walk(folder):
        subfolders[:] = [name for name in subfolders if not os.path.exists(os.path.join(parent, name, LOCK_FILE))]
        for name in names:
            written_by = _PART_NAME.fullmatch(name)
            if written_by is not None and not _is_alive(int(written_by[1])):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(parent, name))


def _is_alive(process: int) -> bool:
    """True if there is a process of a number on this machine."""
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


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
    put_in_place_together([Renaming(part, path)])


class Renaming(NamedTuple):
    """A complete file, and its new path.

    Attributes:
        part: Its present path.
        path: Its new path.
        further: Names in the same folder to try in turn if a file has the new path already; None if it
            replaces that file.
    """

    part: Path
    path: Path
    further: Iterable[str] | None = None


def put_in_place_together(files: Sequence[Renaming]) -> None:
    """Rename complete files, in their order; those that fail do not keep the others from their names.

    Raises:
        OSError: The first error, after all other files have their names.
    """
    errors: list[OSError] = []
    written = []
    for file in files:
        with _collected(errors):
            _synchronize(file.part)
            written.append(file)
    folders: dict[Path, None] = {}  # in order
    for file in written:
        with _collected(errors):
            if file.further is None:
                os.replace(file.part, file.path)
            else:
                _take_free_name(file.part, file.path.parent, itertools.chain([file.path.name], file.further))
            folders[file.path.parent] = None
    for folder in folders:
        with _collected(errors):
            _synchronize_entries(folder)
    if errors:
        raise errors[0]


@contextlib.contextmanager
def _collected(errors: list[OSError]) -> Iterator[None]:
    """Append an error of the system to a list, instead of raising it."""
    try:
        yield
    except OSError as error:
        errors.append(error)


def _synchronize_entries(folder: Path) -> None:
    """Wait until the directory entries of a folder are on the disk, where the file system can tell."""
    try:
        _synchronize(folder)
    except OSError as error:
        if error.errno not in _CANNOT_SYNCHRONIZE:
            raise


def _take_free_name(part: Path, folder: Path, names: Iterable[str]) -> None:
    """Rename a file to the first of several names that is free, also if other processes do the same now."""
    for name in names:
        try:
            os.link(part, folder / name)
        except FileExistsError:
            continue
        except OSError:  # the file system has no hard links
            if not _replace_reserved(part, folder / name):
                continue
        part.unlink(missing_ok=True)
        return


def _replace_reserved(part: Path, path: Path) -> bool:
    """Rename a file to a path that is reserved by an empty file; False if there is a file."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    try:
        os.replace(part, path)
    except OSError:
        path.unlink()
        raise
    return True


def _synchronize(path: Path) -> None:
    """Wait until a file, or the directory entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Where a run goes: its directory belongs to one process while it trains, and is left as it was if it is refused."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from lightning_utilities.core.rank_zero import rank_zero_info, rank_zero_only

from maze_pl.core.output_folder import RUN_DIR_VARIABLE, write_file
from maze_pl.loading import checkpoint_path
from maze_pl.search_path import OUTPUT_FOLDER, ConfigurationError


def is_first_rank() -> bool:
    """Whether this process speaks and writes for all that train together."""
    return getattr(rank_zero_only, "rank", 0) == 0


def run_directory(resumed: str | None, named: str | None, experiment: str | None) -> str:
    """The directory of this run, the same in all processes of this machine.

    Args:
        resumed: That of the run that goes on.
        named: The one that was asked for.
        experiment: Folder under `outputs` in which a new one is made otherwise.

    Raises:
        ConfigurationError: A new run would write into a directory that already holds something.
    """
    is_first = is_first_rank()
    if resumed is None and not is_first and RUN_DIR_VARIABLE in os.environ:
        return os.environ[RUN_DIR_VARIABLE]
    path = Path(resumed or named or new_directory(Path(OUTPUT_FOLDER, experiment or "run"), is_first))
    if resumed is None and is_first and path.is_dir() and any(path.iterdir()):
        remedy = f"name another one, or go on with the run in it by `maze-pl fit --resume {path}`"
        raise ConfigurationError(f"the run directory {path} already holds something: {remedy}")
    os.environ[RUN_DIR_VARIABLE] = str(path)
    return str(path)


def new_directory(experiment: Path, is_made: bool) -> Path:
    """A directory named after this second, made at once so that no other run that begins in it takes the same one."""
    now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    path, number = experiment / now, 1
    while is_made:  # but by a node that does not know the first rank's, and writes nothing
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            number += 1
            path = experiment / f"{now}-{number}"
    return path


def remove_if_empty() -> None:
    """Remove a directory that was made under `outputs`, if the run has failed before it wrote anything."""
    run_dir = Path(os.environ.get(RUN_DIR_VARIABLE, ""))
    if run_dir.parts[:1] == (OUTPUT_FOLDER,):
        remove_empty((run_dir, *run_dir.parents[:2]))


def last_checkpoint(run_dir: str) -> str | None:
    """The checkpoint from which a run goes on; None if it ended before there was any, so that it starts once more."""
    try:
        return str(checkpoint_path(run_dir, ("last",)))
    except ConfigurationError:
        if any(Path(run_dir).rglob("*.ckpt")):
            raise
        rank_zero_info(f"{run_dir} holds no checkpoint yet: the run starts from the beginning")
        return None


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Keep other processes from training in a run directory; put it back as it was if they fail before any result.

    The lock ends with the process that holds it, however that ends.

    Raises:
        ConfigurationError: The directory cannot be written, or another process trains in it.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(remove_empty, [folder for folder in (path, *path.parents) if not folder.exists()])
        try:
            path.mkdir(parents=True, exist_ok=True)
            before, results = _content(path), _results(path)
            lock = stack.enter_context((path / ".lock").open("a+b", buffering=0))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            process = f"process {lock.read().decode().strip()} trains in it; wait for it, or stop it by INT or TERM"
            raise ConfigurationError(f"the run directory {path} is in use: {process}") from None
        except OSError as error:
            raise ConfigurationError(f"the run directory {path} cannot be written: {error.strerror}") from error
        try:
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n".encode())
            yield
        except Exception:
            if _results(path) == results:
                _restore(path, before)
            raise


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, the innermost first, but for those that hold something or were never made."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _content(path: Path) -> dict[Path, bytes]:
    """All that a directory holds, with the content of what is written anew or appended to."""
    return {one: one.read_bytes() if one.parent == path and one.is_file() else b"" for one in path.rglob("*")}


def _results(path: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for pattern in ("*.ckpt", "metrics.csv") for file in path.rglob(pattern)}


def _restore(path: Path, before: dict[Path, bytes]) -> None:
    for one in sorted(path.rglob("*"), reverse=True):  # what a folder holds comes before it
        if one not in before:
            one.rmdir() if one.is_dir() and not one.is_symlink() else one.unlink()
        elif one.parent == path and one.is_file() and one.read_bytes() != before[one]:
            with contextlib.suppress(OSError):
                write_file(one, before[one])  # a new file: others may still write into the present one

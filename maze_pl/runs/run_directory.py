"""Run directories: each belongs to one process during training, and no written file is removed."""

import contextlib
import math
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from lightning_utilities.core.rank_zero import rank_zero_info, rank_zero_only

from maze_pl.config.assembling import SEEDS_FILE, SWEEP_FILE
from maze_pl.config.pieces import PROVENANCE_FILE, RUN_CONFIG
from maze_pl.config.search_path import OUTPUT_FOLDER, ConfigurationError
from maze_pl.config.trust import SOURCE_FOLDERS
from maze_pl.core.checkpoint_content import checkpoint_entry
from maze_pl.core.metrics_table import STEP_COLUMN
from maze_pl.runs.checkpoint_files import read_checkpoint
from maze_pl.runs.metrics import read_columns
from maze_pl.runs.run_checkpoints import BEST, CHECKPOINTS, LAST, RunCheckpoint, run_checkpoints
from maze_pl.runs.run_lock import lock_for_writing
from maze_pl.runs.seed_results import has_ended
from maze_pl.system.atomic_files import LOCK_FILE, PART_SUFFIX, RUN_DIR_VARIABLE, remove_parts_below

_RECORDS = (
    *(LOCK_FILE, RUN_CONFIG, SOURCE_FOLDERS, "run.log", "command.txt", PROVENANCE_FILE, "tensorboard", "wandb"),
    *("event_logs", "trajectories", "renderings"),
)
"""Files and folders that a run writes before its first epoch ends, with its lock."""


def is_first_rank() -> bool:
    """True if this is rank 0, which prints and writes for all ranks."""
    return getattr(rank_zero_only, "rank", 0) == 0


def run_directory(
    resumed: str | None,
    requested: str | None,
    experiment: str | None,
    undo: contextlib.ExitStack,
    is_training: bool = True,
    is_one_run: bool = True,
) -> str:
    """Return the directory of this run as the user would write it, the same in all processes of this machine.

    Args:
        resumed: Directory of the run that is resumed, if any.
        requested: Directory that the user asked for, if any.
        experiment: Folder under `outputs` in which a new directory is made otherwise.
        undo: On closing, removes directories that were made for this run and are still empty.
        is_training: Whether it could continue what a requested directory holds.
        is_one_run: Whether the directory is that of one run, not of several seeds or of a sweep.

    Raises:
        ConfigurationError: A new run would write into a directory that is not empty, or the
            experiment is not a folder below `outputs`.
    """
    is_first = is_first_rank()
    if experiment is not None and (Path(experiment).is_absolute() or ".." in Path(experiment).parts):
        fault = f"experiment={experiment!r} is not a folder below {OUTPUT_FOLDER}/"
        remedy = f"use --run_dir for a directory elsewhere, such as --run_dir {shlex.quote(experiment)}"
        raise ConfigurationError(f"{fault}; {remedy}")
    if resumed is None and not is_first and RUN_DIR_VARIABLE in os.environ:
        path = Path(os.environ[RUN_DIR_VARIABLE])
    elif resumed is not None:
        path = Path(resumed)
    elif requested is None:
        path = new_directory(Path(OUTPUT_FOLDER, experiment or "run"), is_first, undo)
    else:
        path = Path(requested)
        if is_first:
            require_empty(path, is_training, is_one_run)
        undo.enter_context(removed_if_empty(path))
    shown = str(path)
    absolute = str(path.absolute())  # environments may change the current folder
    if "torch" in sys.modules:  # ranks of an earlier run of this process may still be connected
        from maze_pl.system.ranks import from_first_rank

        shown, absolute = from_first_rank((shown, absolute))
    os.environ[RUN_DIR_VARIABLE] = absolute
    return shown


def require_empty(path: Path, is_training: bool = True, is_one_run: bool = True) -> None:
    """Refuse a directory with files, other than the lock of a run.

    A new run may use the directory of one that has trained nothing. Its records stay, to which the
    new run appends.

    Args:
        path: The directory, which may be missing.
        is_training: Whether the message says how to continue a run in the directory.
        is_one_run: Whether one new run uses it.

    Raises:
        ConfigurationError: It is not empty.
    """
    if not path.is_dir() or all(file.name == LOCK_FILE for file in path.iterdir()):
        return
    if is_training and is_one_run and has_failed(path):
        return
    if not is_training:
        remedy = "choose one that does not exist or is empty"
        raise ConfigurationError(f"the folder {path} is not empty: {remedy}")
    remedy = "choose another one"
    if (path / SWEEP_FILE).is_file():
        remedy += f", or continue its sweep with `maze-pl sweep --resume {shlex.quote(str(path))}`"
    elif (path / SEEDS_FILE).is_file() or has_trained(path):
        remedy += f", or continue its run with `maze-pl fit --resume {shlex.quote(str(path))}`"
        if not (path / SEEDS_FILE).is_file():
            remedy += f", in Python with RunContext(run_dir={str(path)!r})"
    raise ConfigurationError(f"the run directory {path} is not empty: {remedy}")


def has_trained(path: Path) -> bool:
    """True if training has written to a directory; a rollout also writes the configuration."""
    has_files = (path / "checkpoints").is_dir() or (path / "run.log").is_file()
    return has_files and (path / RUN_CONFIG).is_file()


def has_failed(path: Path) -> bool:
    """True if a run in a directory has failed or was killed before its first epoch ended, and has left its records."""
    if not has_trained(path) or has_ended(path):
        return False
    if any(file.name not in (*_RECORDS, CHECKPOINTS) for file in path.iterdir()) or any(path.rglob("*.ckpt")):
        return False
    try:
        return not any(place.file.is_file() for place in run_checkpoints(path).values())
    except ConfigurationError:
        return False


def new_directory(experiment: Path, is_made: bool, undo: contextlib.ExitStack) -> Path:
    """Return a directory named after the current second, created at once to reserve it.

    Args:
        experiment: Its parent folder.
        is_made: False on a node that does not know the directory of rank 0, and writes nothing.
        undo: On closing, removes directories that were made here and are still empty.
    """
    now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    path = experiment / now
    if not is_made:
        return path
    undo.enter_context(removed_if_empty(experiment))
    experiment.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
            path = experiment / f"{now}-{number}"
        else:
            undo.callback(_remove_empty, [path.absolute()])
            return path


@contextlib.contextmanager
def removed_if_empty(path: Path) -> Iterator[None]:
    """On exit, remove a directory and its parents if they were made in the block and are empty.

    Args:
        path: The directory; parts that exist before the block are left alone.
    """
    path = path.absolute()
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    finally:
        _remove_empty(made)


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, the innermost first, unless they are not empty or do not exist."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def last_checkpoint(run_dir: str, places: Mapping[str, RunCheckpoint] | None = None) -> str | None:
    """Return the checkpoint that a run resumes from; None if it has none and starts again.

    That is `last.ckpt`. A run that was killed before it wrote the first one resumes from `best.ckpt`,
    if it has written that. Other checkpoints may be from any moment, so that resuming from them may
    not be exact: without an epoch in `metrics.csv`, the run starts again in spite of them.

    Args:
        run_dir: The run directory.
        places: Places of `best` and `last`; None means those in the configuration of the run.

    Raises:
        ConfigurationError: The folder does not exist, or the run has checkpoints, but no last one,
            although it has trained for longer; or `best.ckpt` cannot be read.
    """
    places = run_checkpoints(run_dir) if places is None else places
    remedy = "resume in the directory where the run was started, or set the option to the folder"
    places[LAST].require_folder(run_dir, remedy)
    file = places[LAST].file
    if file.is_file():
        return str(file)
    steps = _logged_steps(run_dir)
    best = places[BEST].file
    if best.is_file() and _env_steps(best) >= steps:
        rank_zero_info(f"{run_dir} was stopped before it wrote last.ckpt: it continues from {best}")
        return str(best)
    others = [best] if best.is_file() else sorted(Path(run_dir).rglob("*.ckpt"))
    if others and steps > 0:
        remedy = f"restore it, or continue from another one with --ckpt_path {shlex.quote(str(others[0]))}"
        raise ConfigurationError(f"the last checkpoint of {run_dir}, {file}, is missing: {remedy}")
    kept = "no last.ckpt" if others else "no checkpoint"
    rank_zero_info(f"{run_dir} contains {kept} yet: the run starts from the beginning")
    return None


def _logged_steps(run_dir: str) -> float:
    """Return the steps of the last row in `metrics.csv`, 0 without one."""
    try:
        steps = read_columns(run_dir).get(STEP_COLUMN)
    except ConfigurationError:
        return 0.0
    return 0.0 if steps is None or not len(steps) else float(steps[-1])


def _env_steps(checkpoint: Path) -> float:
    """Return the env steps of a checkpoint; infinity if its module does not count any."""
    entry = checkpoint_entry(read_checkpoint(checkpoint)) or {}
    return float(entry.get("env_steps", math.inf))


@contextlib.contextmanager
def claimed(path: Path, keeps_lock_file: bool = True) -> Iterator[None]:
    """Lock a run directory, so that no other process writes to it.

    The lock ends with the process that holds it, however that ends. Its file is removed if the run
    has written nothing else. All other files stay, even if the run fails, as they may tell why.

    Args:
        path: The directory, which is made if it is missing.
        keeps_lock_file: False if nothing is written to the directory later, so that the lock's file
            is removed in any case.

    Raises:
        ConfigurationError: The directory cannot be written, or another process writes to it.
    """
    folder = path.absolute()
    lock_file = folder / LOCK_FILE
    with contextlib.ExitStack() as stack:
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(lock_file.open("a+b", buffering=0))
            lock_for_writing(lock)
        except BlockingIOError:
            lock.seek(0)
            process = f"process {lock.read().decode().strip()} writes to it"
            remedy = "wait for it, or stop it with SIGINT or SIGTERM"
            raise ConfigurationError(f"the run directory {path} is in use: {process}; {remedy}") from None
        except OSError as error:
            fault = f"the run directory {path} cannot be written: {error.strerror}"
            raise ConfigurationError(fault) from error
        try:
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n".encode())
            for parent in (folder, folder / "checkpoints"):
                for part in parent.glob(f".*{PART_SUFFIX}"):  # left by a killed process
                    if not part.is_dir():  # a comparison may be writing that folder
                        part.unlink()
            remove_parts_below(folder)
            with removed_if_empty(folder / "checkpoints"):
                yield
        finally:
            if not keeps_lock_file or list(folder.iterdir()) == [lock_file]:
                lock_file.unlink()

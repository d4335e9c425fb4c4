"""Files of checkpoints: finding, reading and writing them.

`maze_pl.core.checkpoint_content` defines their content.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from maze_pl.config.assembling import require_single_run
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.checkpoint_content import WEIGHTS_ONLY, RunConfiguration, checkpoint_entry, wrapper_statistics
from maze_pl.runs.run_checkpoints import BEST, LAST, checkpoint_folders, run_checkpoints
from maze_pl.system.atomic_files import replaced
from maze_pl.system.deferred_files import deferred_files

if TYPE_CHECKING:
    import pytorch_lightning as pl

_DAMAGES = (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error)
"""Errors of `zipfile` for damaged archives."""
_REMEDY: Final = "restore it from a copy, or use another checkpoint of the run"


def checkpoint_path(location: str | Path, preference: Sequence[str] = (BEST, LAST)) -> Path:
    """Return the checkpoint file that a path refers to.

    Args:
        location: A checkpoint, or a run directory; its configuration names the folders of its checkpoints.
        preference: `best`, `last` or both; the first one that exists is used.

    Raises:
        ConfigurationError: There is no such file, or no such folder, or the path is a folder of several runs.
    """
    if Path(location).is_file():
        return Path(location)
    require_single_run(Path(location))
    places = run_checkpoints(location)
    remedy = "repeat this in the folder where the run was started, or name a checkpoint file"
    for name in preference:
        if places[name].file.is_file():
            return places[name].file
        places[name].require_folder(location, remedy)
    paths = [Path(location), *(places[name].file for name in preference)]
    raise ConfigurationError(f"there is no checkpoint: none of {', '.join(map(str, paths))} is a file")


def best_or_last(run_dir: str | Path) -> Path:
    """Return the best checkpoint of a run or, with a message, the last one if there is no best.

    Raises:
        ConfigurationError: Neither exists.
    """
    path = checkpoint_path(run_dir)
    if path != Path(run_dir) and path.stem == LAST:
        from maze_pl.runs.seed_results import FINAL_FILE

        reason = "because no evaluation has selected one"
        if Path(run_dir, FINAL_FILE).is_file():  # of the best and the last policy
            reason = "though its final evaluation played with one: the file has been removed"
        sys.stderr.write(f"maze-pl: {run_dir} has no best.ckpt, {reason}; using {path}\n")
    return path


def named_checkpoint(location: str | Path, name: str = BEST) -> Path:
    """Return the checkpoint that an option names.

    Args:
        location: A run directory; or a checkpoint, if no other one is named.
        name: `best` (or, with a message, the last one if there is no best), `last`, a file, or the
            name of another checkpoint in the run directory, without its suffix.

    Raises:
        ConfigurationError: There is no such file, or two checkpoints are given.
    """
    if name == BEST:
        return best_or_last(location)
    if Path(location).is_file():
        remedy = f"name no other one ({name}), or give its run directory"
        raise ConfigurationError(f"{location} is a checkpoint: {remedy}")
    if name == LAST:
        return checkpoint_path(location, (LAST,))
    if Path(name).is_file():
        return Path(name)
    require_single_run(Path(location))
    paths = [folder / f"{name}.ckpt" for folder in checkpoint_folders(location)]
    for path in paths:
        if path.is_file():
            return path
    fault = f"neither {' nor '.join(map(str, [name, *paths]))} is a file"
    raise ConfigurationError(f"there is no checkpoint {name}: {fault}")


def checkpoint_digest(path: Path) -> str:
    """Return the SHA-256 digest of a checkpoint's file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint, or the best one of a run directory, to the CPU.

    Only tensors and plain values are read, so that an untrusted checkpoint cannot run code.

    Args:
        path: A checkpoint file, or a run directory.

    Returns:
        Content as described in `maze_pl.core.checkpoint_content`; without an entry of maze_pl if it was
        written by another program.

    Raises:
        ConfigurationError: It is missing or damaged, is not a checkpoint, or has another format.
    """
    import torch

    file = checkpoint_path(path)
    require_intact(file)
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises all kinds of errors for foreign files
        reason = error.strerror if isinstance(error, OSError) else _what_is_wrong(file)
        raise ConfigurationError(f"the checkpoint {file} cannot be read: {reason}") from error
    if not isinstance(content, dict) or "state_dict" not in content:
        fault = "was not written by maze_pl: it has no state_dict"
        raise ConfigurationError(f"the checkpoint {file} {fault}")
    try:
        checkpoint_entry(content, f"the checkpoint {file}")
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return cast(dict[str, Any], content)


def write_checkpoint(trainer: pl.Trainer, path: str | Path) -> None:
    """Write a checkpoint, replacing the previous one atomically; all ranks must call it.

    A symbolic link is replaced as well, so that the file that it names stays as it is.

    Raises:
        OSError: It cannot be written, or an earlier file cannot, for example because the disk is full.
    """
    deferred_files().flush()  # what the checkpoint takes for recorded must be on the disk before it
    try:
        with contextlib.ExitStack() as stack:
            part = Path(path)
            if trainer.is_global_zero:
                # a link to another checkpoint is replaced, not that checkpoint
                part = stack.enter_context(replaced(path, follows_links=False))
            trainer.save_checkpoint(part, weights_only=False)
    except OSError as error:
        kept = "the previous version is kept" if Path(path).is_file() else "there was no previous version"
        reason = error.strerror or str(error)
        message = f"the checkpoint {path} cannot be written: {reason}; {kept}"
        raise OSError(error.errno, message) from error
    trainer.strategy.barrier("maze_pl.write_checkpoint")


def run_configuration(checkpoint: dict[str, Any], path: str | Path) -> RunConfiguration:
    """Return the configuration of the run that wrote a checkpoint.

    Args:
        checkpoint: Content of a checkpoint, see `read_checkpoint`.
        path: Path of the checkpoint, for messages.

    Raises:
        ConfigurationError: The checkpoint does not hold it.
    """
    entry = checkpoint_entry(checkpoint) or {}
    if "config" not in entry:
        if entry and "optimizer_states" not in checkpoint:
            raise ConfigurationError(f"{path} {WEIGHTS_ONLY}")
        module = str(entry.get("class_path", "its module")).rpartition(".")[2]
        remedy = f"use {module}.load_from_checkpoint(path, networks=...), or write it with `maze-pl fit` or RunContext"
        raise ConfigurationError(f"{path} does not hold the configuration of its run: {remedy}")
    return entry["config"]


def wrapper_statistics_in(checkpoint: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """Return a run's wrapper statistics, from the state that Lightning stores for the data module.

    Args:
        checkpoint: Content of a checkpoint, see `read_checkpoint`.
        path: Path of the checkpoint, for messages.

    Raises:
        ConfigurationError: The checkpoint does not name the class of the data module.
    """
    from maze_pl.collect.state_tensors import from_tensors

    class_name = run_configuration(checkpoint, path)["data"]["class_path"].rpartition(".")[2]
    statistics = wrapper_statistics(checkpoint, class_name)
    return {} if statistics is None else cast(dict[str, Any], from_tensors(statistics))


def require_intact(file: Path) -> None:
    """Verify the checksums in a checkpoint, which torch ignores when loading it.

    Args:
        file: The checkpoint. A file that is not a torch archive has no checksums, and passes.

    Raises:
        ConfigurationError: A part of it is damaged.
    """
    try:
        if not zipfile.is_zipfile(file):
            return
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        problem = f"its part {damaged!r} does not match its checksum" if damaged is not None else ""
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(f"the checkpoint {file} cannot be read: {reason}") from error
    except _DAMAGES as error:
        problem = str(error)
    if problem:
        raise ConfigurationError(f"the checkpoint {file} is damaged: {problem}; {_REMEDY}")


def _what_is_wrong(file: Path) -> str:
    """Return the reason why torch cannot read a file."""
    content = file.read_bytes()
    if not content:
        return f"it is empty; {_REMEDY}"
    if not content.startswith(b"PK"):
        return "it was not written by maze_pl"
    if zipfile.is_zipfile(file):
        return "it contains more than tensors and plain values"
    return f"it is truncated; {_REMEDY}"

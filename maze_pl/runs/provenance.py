"""Provenance of commands: collected once per command, and kept in the run directory."""

import importlib.metadata
import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeGuard

from maze_pl.config.pieces import PROVENANCE_FILE as PROVENANCE_FILE
from maze_pl.core.provenance import Provenance, adopt_provenance, share_provenance, shared_provenance
from maze_pl.core.version import __version__
from maze_pl.system.atomic_files import write_file
from maze_pl.system.git_state import GitProbe

_FORM: Final[dict[str, type]] = {
    "command": str,
    "versions": dict,
    "git": dict,  # or None
    "machine": dict,
    "checkpoint": dict,
    "started": str,
    "configuration": str,
    "summary": str,
    "step_unit": str,
    "start": dict,
}
_REQUIRED: Final = ("command", "versions", "git")
_PACKAGES: Final = ("torch", "pytorch-lightning", "gymnasium", "numpy", "jsonargparse")


def collect_provenance(
    command: Sequence[str] | str,
    seed: int | None,
    configuration: str = "",
    summary: str = "",
    probe: GitProbe | None = None,
    start: dict[str, str] | None = None,
) -> Provenance:
    """Collect the provenance of the running command.

    Args:
        command: The command line.
        seed: Its seed.
        configuration: The assembled configuration, as YAML.
        summary: The differences from the configuration that it starts from.
        probe: Probe of the repository; None begins one.
        start: Checkpoint whose weights the run begins with, by the option that named it; None for
            other commands.
    """
    git = (GitProbe() if probe is None else probe).result()
    provenance: Provenance = {
        "command": command if isinstance(command, str) else shlex.join(command),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "versions": _versions(),
        "git": git,
        "machine": _machine(),
    }
    if configuration:
        provenance["configuration"] = configuration
    if summary:
        provenance["summary"] = summary
    if start is not None:
        provenance["start"] = start
    return provenance


def share_among_ranks(provenance: Provenance | None) -> None:
    """Share the provenance of a command with all of its processes.

    Those that Lightning starts later inherit it. Ranks that an earlier run of this process has started receive it.

    Args:
        provenance: The provenance; None on all ranks but the first.
    """
    if provenance is not None:
        share_provenance(provenance)
    if "torch" in sys.modules:  # ranks of an earlier run may still be connected
        from maze_pl.system.ranks import from_first_rank

        adopt_provenance(from_first_rank(shared_provenance()))


def append_provenance(run_dir: Path, provenance: Provenance) -> None:
    """Append the provenance of a command to that of earlier ones; a damaged file begins again."""
    commands = [*recorded_provenance(run_dir), provenance]
    write_file(run_dir / PROVENANCE_FILE, provenance_text(commands).encode())


def provenance_text(commands: Sequence[Provenance]) -> str:
    """Return the content of `PROVENANCE_FILE` for commands, in order."""
    return f"{json.dumps({'commands': commands}, indent=1)}\n"


def recorded_provenance(run_dir: Path) -> list[Provenance]:
    """Return the provenance of the commands that have written to a run directory, in order.

    Entries that are not as `append_provenance` writes them are left out; see `fault_of_file`.
    """
    try:
        entries = _entries(run_dir)
    except (OSError, ValueError, RecursionError):
        return []
    return [entry for entry in entries if is_provenance(entry)]


def fault_of_file(run_dir: Path) -> str | None:
    """Return why a run directory's `PROVENANCE_FILE`, or a part of it, is left out; None if there is no reason."""
    try:
        faults = [fault_of_provenance(entry) for entry in _entries(run_dir)]
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    except (ValueError, RecursionError) as error:
        return f"it is damaged: {error if type(error) is ValueError else 'it is not JSON'}"
    found = [f"{fault} (command {n})" for n, fault in enumerate(faults, 1) if fault is not None]
    return f"it is damaged: {'; '.join(found)}" if found else None


def _entries(run_dir: Path) -> list[Any]:
    """Return the entries of `PROVENANCE_FILE`, in any form.

    Raises:
        OSError: It is missing, or cannot be read.
        ValueError: It is damaged; or RecursionError, if its JSON is nested too deep.
    """
    content: Any = json.loads((run_dir / PROVENANCE_FILE).read_text(encoding="utf-8"))
    entries = content.get("commands") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ValueError("it has no list `commands`")
    return entries


def is_provenance(value: Any) -> TypeGuard[Provenance]:
    """True if a value read from a file has the form of provenance."""
    return fault_of_provenance(value) is None


def fault_of_provenance(value: Any) -> str | None:
    """Return in which way a value read from a file does not have the form of provenance; None if it has it."""
    if not isinstance(value, dict):
        return f"provenance is of type {type(value).__name__} instead of dict"
    for name in _REQUIRED:
        if name not in value:
            return f"{name} is missing"
    for name, kind in _FORM.items():
        is_absent = name not in value or (name == "git" and value[name] is None)
        if not is_absent and not isinstance(value[name], kind):
            return f"{name} is of type {type(value[name]).__name__} instead of {kind.__name__}"
    return None


def _versions() -> dict[str, str]:
    """Return versions of maze_pl, Python and the packages that results depend on."""
    versions = {"maze_pl": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _machine() -> dict[str, str]:
    """Return properties of this machine that results and times depend on."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"system": platform.platform(), "architecture": platform.machine(), "cores": str(n_cores)}

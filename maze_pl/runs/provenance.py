"""Provenance of commands: collected once per command, and kept in the run directory."""

import importlib.metadata
import json
import os
import platform
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeGuard

from maze_pl.core.provenance import Provenance
from maze_pl.core.version import __version__
from maze_pl.system.atomic_files import write_file
from maze_pl.system.git_state import GitProbe

PROVENANCE_FILE: Final = "provenance.json"
"""File in a run directory with the provenance of all commands that have written there."""
_PACKAGES: Final = ("torch", "pytorch-lightning", "gymnasium", "numpy", "jsonargparse")


def collect_provenance(
    command: Sequence[str] | str,
    seed: int | None,
    configuration: str = "",
    summary: str = "",
    probe: GitProbe | None = None,
) -> Provenance:
    """Collect the provenance of the running command.

    Args:
        command: The command line.
        seed: Its seed.
        configuration: The assembled configuration, as YAML.
        summary: The differences from the configuration that it starts from.
        probe: Probe of the repository; None begins one.
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
    return provenance


def append_provenance(run_dir: Path, provenance: Provenance) -> None:
    """Append the provenance of a command to that of earlier ones; a damaged file begins again."""
    commands = [*recorded_provenance(run_dir), provenance]
    write_file(run_dir / PROVENANCE_FILE, provenance_text(commands).encode())


def provenance_text(commands: Sequence[Provenance]) -> str:
    """Return the content of `PROVENANCE_FILE` for commands, in order."""
    return f"{json.dumps({'commands': commands}, indent=1)}\n"


def recorded_provenance(run_dir: Path) -> list[Provenance]:
    """Return the provenance of the commands that have written to a run directory, in order.

    Entries that are not as `append_provenance` writes them are left out.
    """
    try:
        content: Any = json.loads((run_dir / PROVENANCE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    entries = content.get("commands") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if is_provenance(entry)]


def is_provenance(value: Any) -> TypeGuard[Provenance]:
    """True if a value read from a file has the form of provenance."""
    if not isinstance(value, dict) or not isinstance(value.get("command"), str):
        return False
    if not isinstance(value.get("versions"), dict) or not isinstance(value.get("git"), dict | None):
        return False
    parts = all(isinstance(value.get(name, {}), dict) for name in ("machine", "checkpoint"))
    texts = all(isinstance(value.get(name, ""), str) for name in ("started", "configuration", "summary", "step_unit"))
    return texts and parts


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

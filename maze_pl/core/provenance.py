"""Provenance: the command, versions and code that wrote a file.

Provenance consists of plain values, and nothing depends on it: files without it are read as well.
"""

import json
import os
from typing import Any, Final, NotRequired, TypedDict

from maze_pl.system.git_state import GitState

PROVENANCE_VARIABLE: Final = "MAZE_PL_PROVENANCE"
"""Environment variable with the short provenance, in all processes of a command."""
PROVENANCE_KEY: Final = "provenance"
"""Name of the provenance in files that hold other things besides."""
_LEFT_OUT: Final = ("configuration", "summary", "machine", "started", "start")


class PlayedCheckpoint(TypedDict):
    """The checkpoint of an agent that played episodes.

    Attributes:
        file: Its path, as the command used it.
        sha256: Digest of the file, in hexadecimal.
    """

    file: str
    sha256: str


class Provenance(TypedDict):
    """Origin of a file.

    Attributes:
        command: The command line.
        started: Time at which the command started, in UTC, in the format of ISO 8601.
        seed: Seed of the command.
        versions: Name of a package -> version.
        git: State of the repository that the command ran in; None outside of a repository.
        configuration: The assembled configuration, as YAML.
        summary: The configuration that the command starts from, and the options that differ from it.
        machine: Property of the machine -> value.
        step_unit: Unit of the steps that the command counts, such as acts of demonstrations.
        checkpoint: Checkpoint that the command played.
        start: Option that named the checkpoint whose weights the run began with -> absolute path of that
            checkpoint; `resume` -> run directory if the run continued, and empty for new weights.
    """

    command: str
    started: str
    seed: int | None
    versions: dict[str, str]
    git: GitState | None
    configuration: NotRequired[str]
    summary: NotRequired[str]
    machine: NotRequired[dict[str, str]]
    step_unit: NotRequired[str]
    checkpoint: NotRequired[PlayedCheckpoint]
    start: NotRequired[dict[str, str]]


def share_provenance(provenance: Provenance) -> None:
    """Share the provenance with all processes of this command, without configuration, machine and time.

    Without the time, a command that is repeated writes the same files.
    """
    adopt_provenance({name: value for name, value in provenance.items() if name not in _LEFT_OUT})


def adopt_provenance(short: dict[str, Any] | None) -> None:
    """Let this process and those that it starts have the short provenance of a command; None changes nothing."""
    if short is not None:
        os.environ[PROVENANCE_VARIABLE] = json.dumps(short)


def shared_provenance() -> dict[str, Any] | None:
    """Return the short provenance of the command that runs; None outside of commands."""
    try:
        content = json.loads(os.environ.get(PROVENANCE_VARIABLE, ""))
    except ValueError:
        return None
    return content if isinstance(content, dict) else None

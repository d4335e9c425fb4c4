"""Unit of the steps that a run counts, from its files: env steps, or acts of demonstrations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from maze_pl.runs.provenance import is_provenance, recorded_provenance

ENV_STEPS: Final = "env steps"


def step_unit(provenance: Any) -> str:
    """Return the unit of the steps of a run; env steps if its provenance does not name one.

    Args:
        provenance: Provenance of its command, as read from a file.
    """
    return provenance.get("step_unit", ENV_STEPS) if is_provenance(provenance) else ENV_STEPS


def step_unit_of(run_dir: Path) -> str:
    """Return the unit of the steps of a run.

    Args:
        run_dir: The run directory.
    """
    return step_unit(next(reversed(recorded_provenance(run_dir)), None))


def step_units_of(run_dirs: Sequence[Path]) -> str:
    """Return the unit of the steps of several runs, such as `acts or env steps` if they differ.

    Args:
        run_dirs: The run directories.
    """
    return " or ".join(sorted({step_unit_of(run) for run in run_dirs})) or ENV_STEPS

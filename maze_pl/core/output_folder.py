"""Where files go that environments write: into the run directory, if a command that trains says which one it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

RUN_DIR_VARIABLE: Final = "MAZE_PL_RUN_DIR"
"""Environment variable with the run directory, in all processes of a run."""


def output_folder(folder: str | Path) -> Path:
    """A folder as it is meant: relative to the run directory, or to the current one where there is no run."""
    return Path(os.environ.get(RUN_DIR_VARIABLE, ""), folder)

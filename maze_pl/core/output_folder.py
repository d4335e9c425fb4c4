"""Where files go: into the run directory, if a command that trains says which one it is; and how they are replaced."""

import os
from pathlib import Path
from typing import Final

RUN_DIR_VARIABLE: Final = "MAZE_PL_RUN_DIR"
"""Environment variable with the run directory, in all processes of a run."""


def output_folder(folder: str | Path) -> Path:
    """A folder as it is meant: relative to the run directory, or to the current one where there is no run."""
    return Path(os.environ.get(RUN_DIR_VARIABLE, ""), folder)


def write_file(path: str | Path, content: bytes) -> None:
    """Write a file, in folders that are made, so that there is a whole one at any time: the former or this one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)

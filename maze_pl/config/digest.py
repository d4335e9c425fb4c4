"""Digests of configurations: they tell whether a command still means what it meant earlier."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from maze_pl.config.assembling import run_and_pieces
from maze_pl.config.pieces import each_text
from maze_pl.config.search_path import dump

_FILES: Final = (".yaml", ".yml")  # of values that jsonargparse or a constructor reads itself
RESTORE_IT: Final = (
    "restore it (one that maze_pl contains by installing its earlier version), and continue in the folder"
)
"""Remedy for a configuration that has changed."""


def configuration_digest(arguments: Sequence[str]) -> str:
    """Return a digest of the options of a command, and of the content of the files that they name.

    Names and paths of the files do not matter, so that it stays the same if a project is moved.

    Args:
        arguments: The command line after `maze-pl`, as for `prepare`.

    Raises:
        ConfigurationError: A file is missing or is not YAML.
    """
    digest = hashlib.sha256()
    for piece in run_and_pieces(arguments)[1]:
        content = each_text(_content, piece.content)
        digest.update(f"{dump([piece.option, content])}\n".encode())
    return digest.hexdigest()


def _content(text: str) -> Any:
    """Return a digest of the YAML file that a text names; else the text itself."""
    if text.endswith(_FILES) and Path(text).is_file():
        return {"file": hashlib.sha256(Path(text).read_bytes()).hexdigest()}
    return text

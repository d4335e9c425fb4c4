"""Folders of checkpoints to which several runs of one command would write."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from maze_pl.config.summary import configured_value

_WRITERS: Final = ("best_checkpoint", "last_checkpoint", "trainer")
_FOLDERS: Final = ("dirpath", "default_root_dir")  # options of these and of callbacks in `trainer`


class SharedFolder(NamedTuple):
    """A folder of checkpoints that is the same for two runs.

    Attributes:
        option: The option that names it.
        value: Its value.
        first: Key of a run that writes to it.
        second: Key of another one.
    """

    option: str
    value: str
    first: int
    second: int


def shared_folder(commands: Mapping[int, Sequence[str]]) -> SharedFolder | None:
    """Return a folder of checkpoints that several runs would write to; None if there is none.

    Args:
        commands: Key of a run -> its command; a path may refer to its seed or its directory.

    Raises:
        ConfigurationError: A configuration cannot be read.
    """
    owners: dict[tuple[str, str], int] = {}
    for key, command in commands.items():
        for name in _WRITERS:
            for option, value in _folders(configured_value(command, name), name):
                owner = owners.setdefault((option, os.path.normpath(value)), key)
                if owner != key:
                    return SharedFolder(option, value, owner, key)
        if not owners:
            break
    return None


def _folders(node: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield (option, value) of the folders for checkpoints below an option."""
    if isinstance(node, list):
        for entry in node:
            yield from _folders(entry, name)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in _FOLDERS and value is not None:
                yield f"{name}.{key}", str(value)
            else:
                yield from _folders(value, name if key == "init_args" else f"{name}.{key}")

"""Folders of checkpoints to which several runs of one command would write."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from maze_pl.cli.checkpoint_folders import WRITERS, folders_below
from maze_pl.config.summary import configured_value


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
        for name in WRITERS:
            for folder in folders_below(configured_value(command, name), name):
                owner = owners.setdefault((folder.option, os.path.normpath(folder.path)), key)
                if owner != key:
                    return SharedFolder(folder.option, folder.path, owner, key)
        if not owners:
            break
    return None

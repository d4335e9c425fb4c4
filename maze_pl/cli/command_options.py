"""Options of commands that read what other commands have written; they name no components."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from maze_pl.config.assembling import TRUST_OPTION
from maze_pl.config.search_path import ConfigurationError, suggestion
from maze_pl.system.atomic_files import require_replaceable


def require_writable(file: Path) -> None:
    """Refuse a file that cannot be written to, before something takes time; nothing is written.

    Raises:
        ConfigurationError: Its folder cannot be made, or files cannot be made in it, or it is a
            device, a pipe or a folder, or its name is too long.
    """
    try:
        require_replaceable(file)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from error
    folder = next(path for path in Path(os.path.realpath(file)).parents if path.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        fault = "is not writable" if folder.is_dir() else "is a file"
        raise ConfigurationError(f"{file} cannot be written: {folder} {fault}")


class OptionParser(argparse.ArgumentParser):
    """Parser whose errors are messages of `maze-pl`.

    Args:
        command: Name of the command.
        description: Description of the command in a line.
    """

    def __init__(self, command: str, description: str) -> None:
        super().__init__(prog=f"maze-pl {command}", description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise the message as an error of the user's request."""
        known = [option for action in self._actions for option in action.option_strings]
        unknown = message.removeprefix("unrecognized arguments: ").split()
        if TRUST_OPTION in unknown and message.startswith("unrecognized"):
            fault = f"{self.prog} runs no code of a run and needs no {TRUST_OPTION}"
            raise ConfigurationError(f"{fault}: omit it")
        near = ""
        if unknown and message.startswith("unrecognized"):
            near = self._without_option(unknown[0]) or suggestion(unknown[0], known)
        raise ConfigurationError(f"{message}{near}; `{self.prog} --help` lists the options")

    def _without_option(self, word: str) -> str:
        """Return the end of a message about `--run RUN`, where the command takes the path alone."""
        option = word.lstrip("-").partition("=")[0]
        for action in self._actions:
            is_path = action.type is Path and not action.option_strings
            if is_path and option in (action.dest, "run", "run_dir"):
                return f"; give the path without an option: `{self.prog} {action.metavar}`"
        return ""

    def add_paths(self, name: str, description: str, **options: Any) -> None:
        """Add positional arguments that are paths."""
        self.add_argument(name, type=Path, metavar=name.upper(), help=description, **options)

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the words after the name of the command."""
        return self.parse_args(list(words))

"""Check of command lines of `maze-pl fit`, without running them."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from maze_pl.cli.fit import MazeCLI
from maze_pl.cli.fit_options import refuse_unsuitable_options
from maze_pl.config.assembling import Prepared, prepare
from maze_pl.config.search_path import ConfigurationError
from maze_pl.system.signals import StopSignals


def check_options(commands: Iterable[Sequence[str]]) -> None:
    """Refuse command lines with options that do not exist, or with values of a wrong type.

    Nothing is instantiated, so that values which only a constructor can refuse pass.

    Args:
        commands: Command lines after `maze-pl`, each beginning with `fit`.

    Raises:
        ConfigurationError: An option is unknown, with the nearest name, or a value has the wrong type.
    """
    for command in commands:
        with contextlib.ExitStack() as undo:
            ParsedOnly(prepare(command), command, undo)


class ParsedOnly(MazeCLI):
    """Command line that is parsed, and neither instantiated nor run."""

    def __init__(self, arguments: Prepared, command: Sequence[str], undo: contextlib.ExitStack) -> None:
        super().__init__(arguments, command, StopSignals(), undo)

    def _set_seed(self) -> None:
        """Leave random generators alone."""

    def before_instantiate_classes(self) -> None:
        """Refuse values that later commands would refuse in all cases."""
        if self._options.seeds is not None:
            raise ConfigurationError("seeds cannot be set in a configuration: use n_seeds")
        refuse_unsuitable_options(self._options, self._command[1:])

    def instantiate_classes(self) -> None:
        """Instantiate nothing."""

    def _run_subcommand(self, subcommand: str) -> Any:
        """Run nothing."""

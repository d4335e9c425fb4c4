"""Messages about options that are lost when a command line replaces a class."""

import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from maze_pl.config.given_objects import GIVEN
from maze_pl.config.replaced_environments import Dropped
from maze_pl.config.search_path import SUFFIXES
from maze_pl.runs.run_directory import is_first_rank

_CLASS_CHANGE = re.compile(
    r"Due to class_path change from '([^']*)' to '([^']*)', discarding init_args: \{(.*)\}", re.DOTALL
)


def parsing_logger(arguments: Sequence[str], dropped: Sequence[Dropped] = ()) -> logging.Logger:
    """Make a logger for jsonargparse that reports options lost when the user replaces a class.

    Each replacement is reported once.

    Args:
        arguments: Command and options, without names. Components that files replace are not
            reported: the author of the file meant it.
        dropped: Further arguments of environments that the user replaces, which are reported at once.
    """
    reported: set[str] = set()
    values = _values(arguments)
    tell_dropped(arguments, dropped)

    def report(record: logging.LogRecord) -> bool:
        change = _CLASS_CHANGE.match(str(record.msg))
        if change is not None and change[2].startswith(f"{GIVEN}."):
            return False  # an object from Python, which has no options
        is_new = change is not None and change[0] not in reported
        if change is not None and is_new and change[2] in values:
            reported.add(change[0])
            _tell(*change.groups())
        return False  # drop jsonargparse's other messages

    # found by name, as jsonargparse copies its parsers with the logger
    logger = logging.getLogger("maze_pl.parsing")
    logger.setLevel(logging.DEBUG)
    logger.filters = [report]
    return logger


def tell_dropped(arguments: Sequence[str], dropped: Sequence[Dropped]) -> None:
    """Tell the user which arguments are dropped of environments that options replace.

    Args:
        arguments: Command and options, without names.
        dropped: The arguments; environments that files replace are not reported.
    """
    values = _values(arguments)
    for previous, current, further in dropped:
        if current in values:
            _tell(previous, current, repr(further)[1:-1])


def _tell(previous: str, current: str, options: str) -> None:
    """Tell the user on the first rank which options of a class are dropped."""
    if is_first_rank():
        names = short_class_names(previous, current)
        sys.stderr.write(f"maze-pl: {names[1]} replaces {names[0]}, whose options are dropped: {options}\n")


def short_class_names(one: str, other: str) -> tuple[str, str]:
    """Return the names of two classes or functions without their modules, if these names differ."""
    names = one.rpartition(".")[2], other.rpartition(".")[2]
    return (one, other) if names[0] == names[1] else names


def _values(arguments: Sequence[str]) -> str:
    """Return the values of all options, and the texts of the files that they name."""
    return "\n".join(map(_value_of, arguments[1:]))


def _value_of(argument: str) -> str:
    """Return an option's value or the text of the file that it names; empty for `--config`."""
    name, _, value = argument.partition("=")
    if name in ("--config", "-c"):
        return ""
    is_file = value.endswith(SUFFIXES) and Path(value).is_file()
    return Path(value).read_text(encoding="utf-8", errors="replace") if is_file else value

"""Classes and functions that replace others, and the arguments that they take over."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maze_pl.core.class_path import import_object


@dataclass(frozen=True)
class Replacement:
    """A class or function that replaces another one.

    Attributes:
        is_function: Whether it is not a class.
        arguments: Names of its arguments.
        takes_others: Whether it takes arguments of all other names as well.
    """

    is_function: bool
    arguments: set[str]
    takes_others: bool

    def known(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that its signature names."""
        return {name: value for name, value in arguments.items() if name in self.arguments}

    def others(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that its signature does not name."""
        return {name: value for name, value in arguments.items() if name not in self.arguments}


def replacement(path: str) -> Replacement | None:
    """Return the class or function of a path; None if it cannot be imported."""
    from maze_pl.config.option_types import parameter_names, takes_other_names  # which imports jsonargparse

    try:
        found = import_object(path)
        return Replacement(not isinstance(found, type), parameter_names(found), takes_other_names(found))
    except Exception:  # of the user's module
        return None

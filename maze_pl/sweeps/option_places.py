"""Places of options in a configuration: which options set the same value, and which one is set first."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from maze_pl.config.search_path import ConfigurationError

_SAME_PLACE: Final = ("class_path", "init_args")
"""Keys below a component that lead to its place; further arguments (`dict_kwargs`) are at another one."""


def refuse_same_values(fixed: Sequence[str], searched: Sequence[str]) -> None:
    """Refuse searched options whose value another option of a sweep sets as well, in any spelling.

    Args:
        fixed: Options with the same value in all runs.
        searched: Searched options.

    Raises:
        ConfigurationError: There is such an option.
    """
    for place, option in enumerate(searched):
        for other in fixed:
            if other == option:
                raise ConfigurationError(f"{option} is in options and in search: keep one of them")
            if _set_same_value(other, option):
                fault = f"{other} in options and {option} in search set the same value"
                raise ConfigurationError(f"{fault}: keep one of them")
        for other in searched[:place]:
            if _set_same_value(other, option):
                raise ConfigurationError(f"{other} and {option} in search set the same value: keep one of them")


def in_order(options: Mapping[str, Any], assignment: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the options of a run in the order in which they are set.

    Fixed options come before searched ones, except below a searched option, which would replace
    them: they follow the last one that they belong to.

    Args:
        options: Fixed option -> value.
        assignment: Searched option -> value.
    """
    following: dict[str | None, list[tuple[str, Any]]] = {}
    for option, value in options.items():
        above = [name for name in assignment if _belongs_to(option, name)]
        following.setdefault(above[-1] if above else None, []).append((option, value))
    ordered = following.pop(None, [])
    for name, value in assignment.items():
        ordered += [(name, value), *following.get(name, [])]
    return ordered


def spelled_alike(first: str, second: str) -> bool:
    """True if two options are the same apart from `init_args`, which may be omitted.

    Args:
        first: An option, such as `model.lr`.
        second: Another one, such as `model.init_args.lr`.
    """
    return _without_arguments(first) == _without_arguments(second)


def _without_arguments(option: str) -> str:
    """Return an option without the optional `init_args` in it."""
    return option.removeprefix("--").replace(".init_args.", ".")


def _place(option: str) -> list[str]:
    """Return the names of the sections, components and options that lead to an option's value."""
    return [key for key in option.rstrip("+").split(".") if key not in _SAME_PLACE]


def _adds(option: str) -> bool:
    """True if an option adds to a list or to the arguments of a component, which another option sets."""
    return option.endswith(("+", ".init_args"))


def _set_same_value(first: str, second: str) -> bool:
    """True if each of two options replaces the value of the other one."""
    return _place(first) == _place(second) and _adds(first) == _adds(second)


def _belongs_to(option: str, name: str) -> bool:
    """True if an option sets a part of the value of another one, which must be set first."""
    place, above = _place(option), _place(name)
    if place == above:
        return _adds(option) and not _adds(name)
    return place[: len(above)] == above

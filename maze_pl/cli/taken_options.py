"""Options that a command takes out of its command line before the others are parsed."""

from collections.abc import Iterable, Sequence

from maze_pl.config.search_path import ConfigurationError


def taken(words: Iterable[str], names: Sequence[str], needed: str | None = None) -> tuple[dict[str, str], list[str]]:
    """Take some options out of a command line; return their values by name, and the rest.

    Args:
        words: The command line, or a part of it.
        names: Names of the options, which have one value each: `--name value` or `--name=value`.
        needed: Meaning of their values, such as `a folder`, if an option without one is an error.

    Raises:
        ConfigurationError: An option has no value or is given twice, and `needed` is given.
    """
    values: dict[str, str] = {}
    rest: list[str] = []
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if name not in names:
            rest.append(word)
            continue
        if needed is not None and name in values:
            raise ConfigurationError(f"{name} is given twice: give it once")
        values[name] = value if equals else next(remaining, "")
        if needed is not None and not values[name]:
            raise ConfigurationError(f"{name} needs {needed}")
    return values, rest

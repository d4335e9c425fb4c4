"""Sources of a comparison: runs and policies, as users name them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maze_pl.config.search_path import ConfigurationError

Source = Any
"""Run directory, checkpoint, bundle, folder of several seeds, name of a policy, policy, or names of any of these."""


def single_sources(sources: Sequence[Source]) -> list[Source]:
    """Return sources in which each dict has one name.

    Raises:
        ConfigurationError: A dict is empty, or there is a list.
    """
    found: list[Source] = []
    for source in sources:
        named = source.values() if isinstance(source, Mapping) else [source]
        if any(isinstance(each, list | tuple | set) for each in named):
            expected = "give each run or policy as an argument, compare(a, b), or as compare(*sources)"
            raise ConfigurationError(f"a list is neither a run nor a policy: {expected}")
        if not isinstance(source, Mapping) or is_configuration(source):
            found.append(source)
        elif source:
            found += [{name: named} for name, named in source.items()]
        else:
            expected = "give a dict such as {'mine': policy}, or what it names"
            raise ConfigurationError(f"an empty dict names nothing to compare: {expected}")
    return found


def shown(source: Source) -> str:
    """Return a short text for a source: objects have no name but that of their class."""
    if isinstance(source, str | Path) or (isinstance(source, Mapping) and is_configuration(source)):
        return str(source)
    if isinstance(source, Mapping):
        return repr(next(iter(source)))
    return f"the same {getattr(source, '__name__', type(source).__name__)}"


def is_configuration(source: Mapping[Any, Any]) -> bool:
    """True for the class path of a policy with its arguments, unlike for a dict of names."""
    return "class_path" in source or "_target_" in source


def source_key(source: Source) -> Any:
    """Return the key that identifies a source: the same for different paths of a file or folder."""
    if isinstance(source, str | Path):
        return os.path.realpath(source) if os.path.exists(source) else str(source)
    if isinstance(source, Mapping) and source and not is_configuration(source):
        return next(iter(source))
    return id(source)


def is_same(source: Source, other: Source) -> bool:
    """True if two sources, or what they name, are the same run or policy."""
    named, other_named = _named(source), _named(other)
    if isinstance(named, Mapping) or isinstance(other_named, Mapping):
        return bool(named == other_named)
    return bool(source_key(named) == source_key(other_named))


def _named(source: Source) -> Source:
    """Return what a dict of one name names; any other source as it is."""
    if isinstance(source, Mapping) and not is_configuration(source):
        (source,) = source.values()
    return source


def baseline_key(baseline: Source, sources: Sequence[Source]) -> Any:
    """Return the key that identifies a baseline; a name in a dict of the sources comes before a path."""
    named = [source for source in sources if isinstance(source, Mapping) and not is_configuration(source)]
    if isinstance(baseline, str) and any(baseline in source for source in named):
        return baseline
    return source_key(baseline)

"""Names under which topics are found and statistics are logged."""

import pkgutil
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from maze_pl.events.attribute_values import array_of, is_tensor
from maze_pl.events.topics import (
    BUILT_IN_TOPICS,
)


def group_label(attribute: str, value: Any) -> str:
    """Text of a grouping attribute's value in a name: step key 0 is `substep_0`.

    Tensors read as arrays, and -0.0 as 0.0.
    """
    if is_tensor(value):
        value = array_of(value)[()]
    if isinstance(value, float | np.floating):
        value = value + 0.0
    return f"substep_{value}" if attribute == "step_key" else str(value)


def event_path(topic: str, event: str, statistic: str | None = None, groups: Iterable[str] = ()) -> str:
    """Name under which an epoch statistic is logged: `<Topic>/<event>/<statistic>/<groups>`.

    Example:
        >>> event_path("my_package.events:CuttingEvents", "valid_cut", "mean_episode_total")
        'CuttingEvents/valid_cut/mean_episode_total'
    """
    name = topic.rpartition(":")[2].rpartition(".")[2]
    return "/".join([name, event, *([] if statistic is None else [statistic]), *groups])


def topic_name(topic: type) -> str:
    """Name by which any process finds a topic: the class name if built in, else `module:name`."""
    if topic in BUILT_IN_TOPICS:
        return topic.__name__
    module = "__main__" if topic.__module__ == "__mp_main__" else topic.__module__  # the script, in a spawned process
    return f"{module}:{topic.__qualname__}"


def find_topic(name: str, known: Iterable[type]) -> type:
    """Find the topic class for a name from `topic_name`.

    Args:
        name: Name of the topic.
        known: Topics that need not be imported, such as classes defined inside a function.

    Raises:
        ValueError: There is no such topic.
    """
    found: Any = next((topic for topic in (*known, *BUILT_IN_TOPICS) if topic_name(topic) == name), None)
    with suppress(ImportError, AttributeError, ValueError):
        found = found or pkgutil.resolve_name(name)
    if not isinstance(found, type):
        remedy = "define the class at the top of a module, or pass it along: EpochStatistics(topics=[...])"
        raise ValueError(f"event topic {name!r} cannot be imported; {remedy}")
    return found

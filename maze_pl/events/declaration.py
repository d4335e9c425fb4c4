"""Declarations: what the decorators of a topic ask for, checked, completed and found again by name in any process."""

import functools
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from maze_pl.events.decorators import MARKS, Marks, Statistic
from maze_pl.events.histogram import histogram
from maze_pl.events.topics import BUILT_IN_TOPICS


class StatisticsError(ValueError):
    """A statistic that was declared does not fit what the event carries; says which one."""


@dataclass
class EventDeclaration(Marks):
    """One event of a topic and its statistics, complete: each level's inputs exist in the level below.

    The inputs of step statistics are attribute names, None for all attributes as a dict. Of the episode statistics only
    those are left that something asks for.

    Attributes:
        topic: The topic class.
        name: Name of the event.
        event: The topic's function, which also names the event in queries.
        signature: Signature of the event without `self`.
    """

    topic: type
    name: str
    event: Callable[..., Any]
    signature: inspect.Signature

    @contextmanager
    def reducing(self, level: str, statistic: Statistic) -> Iterator[None]:
        """While a statistic is reduced: says whose it was if that fails.

        Raises:
            StatisticsError: In place of whatever the reduction raised.
        """
        try:
            yield
        except Exception as error:
            which = f"the {level} statistic {statistic.output_name!r} of {self.topic.__name__}.{self.name}"
            fault = f"cannot be computed: {type(error).__name__}: {error}"
            raise StatisticsError(f"{which}, with input_name={statistic.input_name!r}, {fault}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        # By reference, as for any function: reducers are often lambdas.
        return _declaration, (self.topic, self.name)


@functools.cache
def declarations(topic: type) -> dict[str, EventDeclaration]:
    """All events of a topic by name, inherited ones included.

    Raises:
        ValueError: A statistic asks for an input that the level below does not give, or two have the same name.
        TypeError: `topic` is not a class, or an event takes `*args` or `**kwargs`.
    """
    if not isinstance(topic, type):
        raise TypeError(f"an event topic is a class, got {topic!r}; pass the class itself, not an instance")
    functions: dict[str, Callable[..., Any]] = {}
    for base in reversed(topic.__mro__):
        functions |= {n: f for n, f in vars(base).items() if inspect.isfunction(f) and not n.startswith("_")}
    return {name: _declare(topic, name, event) for name, event in functions.items()}


def _declaration(topic: type, name: str) -> EventDeclaration:
    return declarations(topic)[name]


def _declare(topic: type, name: str, event: Callable[..., Any]) -> EventDeclaration:
    label = f"{topic.__name__}.{name}"
    parameters = list(inspect.signature(event).parameters.values())[1:]
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY) for p in parameters):
        raise TypeError(f"{label}: an event lists its attributes by name, without *args, **kwargs or '/'")
    attributes = [parameter.name for parameter in parameters]
    marks: Marks = getattr(event, MARKS, Marks([], [], [], [], []))
    for attribute in marks.grouping:
        if attribute not in attributes:
            raise ValueError(f"{label} is grouped by {attribute!r}, but its attributes are {attributes}")

    epoch = _complete(label, "epoch", marks.epoch, [])
    wanted = [*epoch, *marks.plots]
    episode = _complete(label, "episode", marks.episode, wanted)
    step = _complete(label, "step", marks.step, episode)
    measured = [attribute for attribute in attributes if attribute not in marks.grouping]
    usual = measured[0] if len(measured) == 1 else "value" if "value" in measured else None
    step = [replace(statistic, input_name=statistic.input_name or usual) for statistic in step]
    for statistic in step:
        if statistic.input_name is None and statistic.reduce is None:
            raise ValueError(f"{label}: say by input_name which of its attributes {attributes} is passed on")
        if statistic.input_name not in (None, *attributes):
            raise ValueError(f"{label}: input_name={statistic.input_name!r} is none of its attributes {attributes}")
    needed = {statistic.input_name for statistic in wanted}
    episode = [statistic for statistic in episode if statistic.output_name in needed]
    signature = inspect.Signature(parameters)
    return EventDeclaration(step, episode, epoch, marks.plots, marks.grouping, topic, name, event, signature)


def _complete(label: str, level: str, declared: list[Statistic], users: list[Statistic]) -> list[Statistic]:
    """Statistics of a level: those declared, or else whatever the level above asks for, passed on."""
    passed_on = [Statistic(None, name, name) for name in dict.fromkeys(user.input_name for user in users)]
    # A histogram is made of the values themselves, in the end.
    statistics = [replace(s, reduce=None) if s.reduce is histogram else s for s in declared] or passed_on
    names = [statistic.output_name for statistic in statistics]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{label}: two statistics of one level are called {twice[0]!r}; give each its output_name")
    for user in users:
        if user.input_name not in names:
            wrong = f"input_name={user.input_name!r} is none of the {level} statistics {names}"
            raise ValueError(f"{label}: {wrong}; set it to one of their output names")
    return statistics


def group_label(attribute: str, value: Any) -> str:
    """How the value of a grouping attribute reads in a name: step key 0 is `substep_0`."""
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
    """Name by which a topic is found again in another process: its own for built-in ones, else `module:name`."""
    if topic in BUILT_IN_TOPICS:
        return topic.__name__
    module = "__main__" if topic.__module__ == "__mp_main__" else topic.__module__  # the script, in a spawned process
    return f"{module}:{topic.__qualname__}"


def find_topic(name: str, known: Iterable[type]) -> type:
    """The topic class of a name that `topic_name` gave.

    Args:
        name: Name of the topic.
        known: Topics that need not be imported, such as those defined inside a function.

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

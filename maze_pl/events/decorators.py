"""Decorators that declare, at an event's definition, which statistics are computed of it and how.

Statistics are computed in three levels: the events of one environment step give step statistics, those of all steps of
an episode give episode statistics, and those of all episodes of an epoch give epoch statistics. Decorators only note
what is asked for; `maze_pl.events.declaration` checks it when a topic is used.

    >>> class ParcelEvents:
    ...     @define_epoch_stats(max, output_name="worst_episode")
    ...     @define_episode_stats(sum)
    ...     @define_step_stats(len)
    ...     def parcel_lost(self, weight: float) -> None:
    ...         '''A parcel fell off the lorry.'''
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Reducer = Callable[..., Any]
EventFunction = TypeVar("EventFunction", bound=Callable[..., Any])

MARKS = "_maze_statistics"


@dataclass(frozen=True, slots=True)
class Statistic:
    """One statistic of one level.

    Attributes:
        reduce: Turns the list of inputs into one number; None passes each of them on to the next level. That of a plot
            draws a figure of them, and gets the names of the groups, too.
        input_name: Which statistic of the level below, or which attribute of the event, is the input.
        output_name: What the result is called; None: it has no name of its own.
    """

    reduce: Reducer | None
    input_name: str | None
    output_name: str | None


@dataclass
class Marks:
    """What the decorators on one event say.

    Attributes:
        step: Step statistics.
        episode: Episode statistics.
        epoch: Epoch statistics.
        plots: Figures to draw once per epoch.
        grouping: Attributes that the statistics are grouped by.
    """

    step: list[Statistic]
    episode: list[Statistic]
    epoch: list[Statistic]
    plots: list[Statistic]
    grouping: list[str]


def define_step_stats(
    reduce_function: Reducer | None, input_name: str | None = None, output_name: str | None = None
) -> Callable[[EventFunction], EventFunction]:
    """Compute a statistic of the events of each environment step.

    Args:
        reduce_function: Gets the list of inputs that the step's events carry; `len` counts the events. None passes each
            input on as it is.
        input_name: Attribute of the event that is the input; by default `value`, or the only one there is.
        output_name: Name under which episode statistics ask for the result.
    """
    return _marker("step", Statistic(reduce_function, input_name, output_name))


def define_episode_stats(
    reduce_function: Reducer | None, input_name: str | None = None, output_name: str | None = None
) -> Callable[[EventFunction], EventFunction]:
    """Compute a statistic of the step statistics of an episode.

    A step without such an event counts as 0 where the step statistic is a count or a sum, and not at all otherwise.

    Args:
        reduce_function: Gets the list of the episode's step statistics. None keeps them all, for a histogram.
        input_name: Output name of the step statistic that is the input.
        output_name: Name under which epoch statistics ask for the result.
    """
    return _marker("episode", Statistic(reduce_function, input_name, output_name))


def define_epoch_stats(
    reduce_function: Reducer | None, input_name: str | None = None, output_name: str | None = None
) -> Callable[[EventFunction], EventFunction]:
    """Compute a statistic of the episode statistics of an epoch: this is what is logged.

    An episode without such an event counts as 0 where its statistic is a count or a sum, and not at all otherwise.

    Args:
        reduce_function: Gets all episodes' statistics. None makes a `Histogram` of them.
        input_name: Output name of the episode statistic that is the input.
        output_name: Last part of the name that is logged, before the groups.
    """
    return _marker("epoch", Statistic(reduce_function, input_name, output_name))


def define_stats_grouping(*attributes: str) -> Callable[[EventFunction], EventFunction]:
    """Compute all statistics of the event for each combination of values of some attributes by itself.

    Args:
        attributes: Names of attributes of the event; their values end the name that is logged (`substep_0/action`).
    """
    return _marker("grouping", *attributes)


def define_plot(
    create_figure_function: Callable[..., Any], input_name: str | None = None
) -> Callable[[EventFunction], EventFunction]:
    """Draw a figure once per epoch.

    Args:
        create_figure_function: Called as `create_figure_function(values, groups)` with the list of all episodes' values
            and the tuple of group names; it may return None, to draw nothing.
        input_name: Output name of the episode statistic that is drawn.
    """
    return _marker("plots", Statistic(create_figure_function, input_name, None))


def _marker(marks: str, *entries: Any) -> Callable[[EventFunction], EventFunction]:
    """A decorator that adds to the marks of an event."""

    def mark(event: EventFunction) -> EventFunction:
        of_event = event.__dict__.setdefault(MARKS, Marks([], [], [], [], []))
        getattr(of_event, marks)[:0] = entries  # they apply from the bottom up
        return event

    return mark

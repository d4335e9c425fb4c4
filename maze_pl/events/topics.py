"""Event topics: decorators that declare statistics of events, and the built-in topics.

Statistics have three levels. The events of one environment step give step statistics, the step
statistics of an episode give episode statistics, and the episode statistics of an epoch give epoch
statistics. Decorators only note the declarations; `declarations` checks and completes them when a
topic is used, and finds them by name in any process.

    >>> class ParcelEvents:
    ...     @define_epoch_stats(max, output_name="worst_episode")
    ...     @define_episode_stats(sum)
    ...     @define_step_stats(len)
    ...     def parcel_lost(self, weight: float) -> None:
    ...         '''A parcel fell off the lorry.'''
"""

import functools
import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.core.histogram import histogram
from maze_pl.events.display import create_bar_plot, create_own_plot, create_violin_plot

Reducer = Callable[..., Any] | None
Name = str | None
EventT = TypeVar("EventT", bound=Callable[..., Any])

ZERO_OF_NOTHING: frozenset[Reducer] = frozenset({len, sum, np.sum, math.fsum})
"""Reductions that give 0 without any events; all others have no value then."""

_MARKS = "_maze_statistics"


@dataclass(frozen=True, slots=True)
class Statistic:
    """One statistic of one level.

    Attributes:
        reduce: Reduces the list of inputs to one number; None passes each input on to the next
            level. For a plot, it draws a figure of the inputs, and also receives the names of the
            groups.
        input_name: Statistic of the level below, or attribute of the event, that is the input.
        output_name: Name of the result; None if it has no name.
    """

    reduce: Reducer
    input_name: Name
    output_name: Name


def define_step_stats(
    reduce_function: Reducer, input_name: Name = None, output_name: Name = None
) -> Callable[[EventT], EventT]:
    """Compute a statistic of the events of each environment step.

    Args:
        reduce_function: Receives the list of inputs that the step's events carry; `len` counts the
            events. None passes each input on unchanged.
        input_name: Attribute of the event that is the input; by default the only attribute, or
            `value`.
        output_name: Name under which episode statistics ask for the result.
    """
    return _marker("step", Statistic(reduce_function, input_name, output_name))


def define_episode_stats(
    reduce_function: Reducer, input_name: Name = None, output_name: Name = None
) -> Callable[[EventT], EventT]:
    """Compute a statistic of the step statistics of an episode.

    A step without such an event counts as 0 if the step statistic is a count or a sum, and is left
    out otherwise. If other events of the episode carry arrays of one shape, their `sum` is zeros of this shape.

    Args:
        reduce_function: Receives the list of the episode's step statistics. None keeps them all,
            for a histogram.
        input_name: Output name of the step statistic that is the input.
        output_name: Name under which epoch statistics ask for the result.
    """
    return _marker("episode", Statistic(reduce_function, input_name, output_name))


def define_epoch_stats(
    reduce_function: Reducer, input_name: Name = None, output_name: Name = None
) -> Callable[[EventT], EventT]:
    """Compute a statistic of the episode statistics of an epoch; the result is logged.

    An episode without such an event counts as 0 if its statistic is a count or a sum, and is left
    out otherwise.

    Args:
        reduce_function: Receives the statistics of all episodes. None makes a `Histogram` of them.
        input_name: Output name of the episode statistic that is the input.
        output_name: Last part of the logged name, before the groups.
    """
    return _marker("epoch", Statistic(reduce_function, input_name, output_name))


def define_stats_grouping(*attributes: str) -> Callable[[EventT], EventT]:
    """Compute all statistics of the event separately for each combination of attribute values.

    Args:
        attributes: Attributes of the event to group by; their values end the logged name, such as
            `substep_0/action`.
    """
    return _marker("grouping", *attributes)


def define_plot(create_figure_function: Callable[..., Any], input_name: Name = None) -> Callable[[EventT], EventT]:
    """Draw a figure once per epoch.

    Args:
        create_figure_function: Called as `create_figure_function(values, groups)` with the list of
            the values of all episodes and the tuple of group names; it may return None to draw
            nothing.
        input_name: Output name of the episode statistic that is drawn.
    """
    return _marker("plots", Statistic(create_figure_function, input_name, None))


def _marker(level: str, *entries: Any) -> Callable[[EventT], EventT]:
    """Make a decorator that adds entries to the marks of an event."""

    def mark(event: EventT) -> EventT:
        event.__dict__.setdefault(_MARKS, defaultdict(list))[level][:0] = entries  # they apply from the bottom up
        return event

    return mark


class StatisticsError(ValueError):
    """A declared statistic cannot be computed from the event's values; the message names it."""


@dataclass
class EventDeclaration:
    """One event of a topic with its complete statistics: all inputs exist in the level below.

    Attributes:
        topic: The topic class.
        name: Name of the event.
        event: The topic's function, which also names the event in queries.
        signature: Signature of the event without `self`.
        step: Step statistics; their inputs are attribute names, None for all attributes as a dict.
        episode: Episode statistics that epoch statistics or plots use; no others.
        epoch: Epoch statistics.
        plots: Figures to draw once per epoch.
        grouping: Attributes that the statistics are grouped by.
    """

    topic: type
    name: str
    event: Callable[..., Any]
    signature: inspect.Signature
    step: list[Statistic]
    episode: list[Statistic]
    epoch: list[Statistic]
    plots: list[Statistic]
    grouping: list[str]

    @contextmanager
    def reducing(self, level: str, statistic: Statistic) -> Iterator[None]:
        """Context manager for reducing a statistic, which is named if that fails.

        Raises:
            StatisticsError: In place of any exception that the reduction raised.
        """
        try:
            yield
        except Exception as error:
            which = f"the {level} statistic {statistic.output_name!r} of {self.topic.__name__}.{self.name}"
            fault = f"cannot be computed: {type(error).__name__}: {error}"
            if level == "step" and statistic.input_name is None and len(self.signature.parameters) > 1:
                fault += f"; {self.name} has the attributes {list(self.signature.parameters)}: name one by input_name"
            raise StatisticsError(f"{which}, with input_name={statistic.input_name!r}, {fault}") from error

    def has_zeros(self, name: Name) -> bool:
        """True if the step statistic of that name is 0, not missing, in steps without events."""
        return any(step.output_name == name and step.reduce in ZERO_OF_NOTHING for step in self.step)

    def makes_histogram(self, name: Name) -> bool:
        """True if nothing but histograms is made of the episode statistic of that name."""
        users = [statistic.reduce for statistic in self.epoch if statistic.input_name == name]
        is_drawn = any(plot.input_name == name for plot in self.plots)
        return not is_drawn and all(reduce in (None, histogram) for reduce in users)

    def __reduce__(self) -> tuple[Any, ...]:
        # By reference, as for any function: reducers are often lambdas.
        return _declaration, (self.topic, self.name)


@functools.cache
def declarations(topic: type) -> dict[str, EventDeclaration]:
    """All events of a topic by name, inherited ones included.

    Raises:
        ValueError: The level below does not provide the input of a statistic, or two statistics
            have the same name.
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
        raise TypeError(f"{label}: an event must list its attributes by name, without *args, **kwargs or '/'")
    attributes = [parameter.name for parameter in parameters]
    marks: dict[str, list[Any]] = getattr(event, _MARKS, defaultdict(list))
    grouping = marks["grouping"]
    for attribute in grouping:
        if attribute not in attributes:
            raise ValueError(f"{label} is grouped by {attribute!r}, but its attributes are {attributes}")

    epoch = _complete(label, "epoch", marks["epoch"], [])
    wanted = [*epoch, *marks["plots"]]
    episode = _complete(label, "episode", marks["episode"], wanted)
    step = _complete(label, "step", marks["step"], episode)
    measured = [attribute for attribute in attributes if attribute not in grouping]
    usual = "value" if "value" in measured else None
    if len(measured) == 1:
        usual = measured[0]
    step = [replace(statistic, input_name=statistic.input_name or usual) for statistic in step]
    for statistic in step:
        if statistic.input_name is None and statistic.reduce is None:
            raise ValueError(f"{label}: input_name must name the attribute to pass on, one of {attributes}")
        if statistic.input_name not in (None, *attributes):
            raise ValueError(f"{label}: input_name={statistic.input_name!r} is not one of its attributes {attributes}")
    needed = {statistic.input_name for statistic in wanted}
    episode = [statistic for statistic in episode if statistic.output_name in needed]
    signature = inspect.Signature(parameters)
    return EventDeclaration(topic, name, event, signature, step, episode, epoch, marks["plots"], grouping)


def _complete(label: str, level: str, declared: list[Statistic], users: list[Statistic]) -> list[Statistic]:
    """Statistics of a level: the declared ones, or else inputs of the next level, passed on."""
    inputs = dict.fromkeys([user.input_name for user in users])  # each once, in order
    passed_on = [Statistic(None, name, name) for name in inputs]
    # A histogram is made of the values themselves, at the level of epochs.
    statistics = [replace(s, reduce=None) if s.reduce is histogram else s for s in declared] or passed_on
    names = [statistic.output_name for statistic in statistics]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{label}: two statistics of one level are called {twice[0]!r}; give each its output_name")
    for user in users:
        if user.input_name not in names:
            wrong = f"input_name={user.input_name!r} is not one of the {level} statistics {names}"
            raise ValueError(f"{label}: {wrong}; set it to one of their output names")
    return statistics


# ---------------------------------------------------------------------------------------- built-in topics


def _spread_over_episodes(event: EventT) -> EventT:
    for name, reduce in (("max", max), ("min", min), ("std", np.std), ("mean", np.mean)):
        event = define_epoch_stats(reduce, output_name=name)(event)
    return event


def _distribution(event: EventT) -> EventT:
    """Histogram of all values, for each sub-step and each name."""
    return define_epoch_stats(histogram)(define_stats_grouping("step_key", "name")(event))


def _total_and_steps(event: EventT) -> EventT:
    """Mean total of an episode, and a histogram of the values of all steps."""
    event = define_step_stats(sum)(define_step_stats(None, output_name="each")(event))
    event = define_episode_stats(sum)(define_episode_stats(None, input_name="each", output_name="steps")(event))
    event = define_epoch_stats(histogram, input_name="steps", output_name="step")(event)
    return define_epoch_stats(np.mean, output_name="mean_episode_total")(event)


class BaseEnvEvents:
    """Events of every environment: its reward, with the lengths of episodes, and its KPIs.

    `EpochStatistics` adds `total_step_count` and `total_episode_count`, which count over the whole run.
    """

    @_spread_over_episodes
    @define_epoch_stats(len, output_name="episode_count")
    @define_epoch_stats(np.mean, input_name="step_count", output_name="mean_step_count")
    @define_epoch_stats(np.median, input_name="step_count", output_name="median_step_count")
    @define_episode_stats(sum)
    @define_episode_stats(len, output_name="step_count")
    @define_step_stats(sum)
    def reward(self, value: float) -> None:
        """The environment's reward, before any wrapper changes it."""

    @_spread_over_episodes
    @define_episode_stats(np.mean)
    @define_stats_grouping("name")
    def kpi(self, name: str, value: float) -> None:
        """A key performance indicator of the episode that ended."""


class DiscreteActionEvents:
    """Actions of discrete, multi-discrete and multi-binary heads."""

    @_distribution
    def action(self, step_key: StepKey, name: str, value: Any, num_actions: int) -> None:
        """An action was taken; `value` is one choice, or an array of them, out of `num_actions`."""


class ContinuousActionEvents:
    """Actions of box heads."""

    @_distribution
    def action(self, step_key: StepKey, name: str, value: Any) -> None:
        """An action was taken; `value` is an array in the shape of the box."""


class ActionEvents:
    """Figures of a sample of the actions; the two topics above cover all actions in numbers."""

    @define_plot(create_bar_plot)
    @define_stats_grouping("step_key", "name", "choices")
    def discrete_action(self, step_key: StepKey, name: str, choices: str, value: int) -> None:
        """One of the `choices`, such as "0_to_3", was made."""

    @define_plot(create_bar_plot)
    @define_stats_grouping("step_key", "name")
    def binary_action(self, step_key: StepKey, name: str, value: Any) -> None:
        """Several choices between yes and no were made."""

    @define_plot(create_violin_plot)
    @define_stats_grouping("step_key", "name")
    def continuous_action(self, step_key: StepKey, name: str, value: Any) -> None:
        """Values in the shape of a box were chosen."""


class ObservationEvents:
    """Observations, before and after wrappers processed them."""

    @_distribution
    def observation_original(self, step_key: StepKey, name: str, value: Any) -> None:
        """An observation as the environment returned it."""

    @_distribution
    def observation_processed(self, step_key: StepKey, name: str, value: Any) -> None:
        """An observation as the policy sees it."""


class ObservationVisualizationEvents:
    """Figures of observations, drawn by user-defined functions."""

    @define_plot(create_own_plot)
    @define_stats_grouping("plot_function", "step_key", "name")
    def observation(self, plot_function: str, step_key: StepKey, name: str, value: Any) -> None:
        """An observation as the policy saw it; the function at `plot_function` draws it."""


class RewardEvents:
    """Rewards, before and after wrappers processed them, one entry for each environment step."""

    @_total_and_steps
    def reward_original(self, value: float) -> None:
        """The reward that the environment returned."""

    @_total_and_steps
    def reward_processed(self, value: float) -> None:
        """The reward that the algorithm learns from."""


class RewardShareEvents:
    """Contributions of the parts of a combined reward."""

    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="value")
    @define_stats_grouping("name")
    def share(self, name: str, value: float) -> None:
        """A part's contribution to the reward of a step, its weight included."""


BUILT_IN_TOPICS: tuple[type, ...] = tuple(one for name, one in vars().items() if name.endswith("Events"))
"""Topics that `EpisodeSummary.statistics` identifies by the bare class name."""

"""Aggregation of the events of one environment to statistics of its episodes."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Final, NamedTuple

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary, StatKey
from maze_pl.core.histogram import number_array
from maze_pl.events import topics
from maze_pl.events.attribute_values import plain, widened
from maze_pl.events.event_names import group_label, topic_name
from maze_pl.events.folding import DISTRIBUTION, MOST_KEPT_STEPS, Fold, Kept, running_form, tell_of_kept_values
from maze_pl.events.pubsub import EventRecord
from maze_pl.events.topics import (
    ZERO_OF_NOTHING,
    EventDeclaration,
    Reducer,
    Statistic,
    StatisticsError,
    declarations,
)

_NAMED_BY_TYPE: Final = frozenset({str, int, bool, float, type(None), np.int64, np.int32})
"""Types whose equal values have the same label; those of equal tuples may differ."""
_Columns = dict[str | None, list[Any]]
_FoldedName = str | tuple[str | None] | None


class EventGroup(NamedTuple):
    """Events of one kind with the same values of the grouping attributes, in the running episode.

    Attributes:
        steps: Step of each event, counted from the last time that steps were folded.
        columns: Input of the step statistics -> its values, one for each event.
        folded: Output name of an episode statistic -> state of its running form over all earlier
            steps; empty if none were folded since the first event. If the events carry arrays,
            also `_key_of_zeros` of a step statistic -> the zeros of a step without events.
    """

    steps: list[int]
    columns: _Columns
    folded: dict[_FoldedName, Any]


class _Values:
    """Raw values of one kind of event in the running episode, by group."""

    def __init__(self, declaration: EventDeclaration) -> None:
        self.declaration = declaration
        # counting needs no values
        self._inputs = tuple(dict.fromkeys(s.input_name for s in declaration.step if s.reduce is not len))
        self.reset()

    def reset(self) -> None:
        self.groups: dict[tuple[str, ...], EventGroup] = {}
        self._by_value = dict[tuple[Any, ...], EventGroup]()  # saves making labels
        self._is_typed = False  # once a value is not a text: 1 and True are equal, but not their labels
        self.ungrouped = None if self.declaration.grouping else self.group({})

    def group(self, attributes: Mapping[str, Any]) -> EventGroup:
        """Group of the events with the same values of the grouping attributes."""
        values = tuple([attributes[name] for name in self.declaration.grouping])
        key = (*values, *map(type, values)) if self._is_typed else values
        return self._by_value.get(key) or self._by_label(values)

    def _by_label(self, values: tuple[Any, ...]) -> EventGroup:
        """Group of the events whose grouping attributes have the same labels."""
        labels = tuple(map(group_label, self.declaration.grouping, values))
        if labels not in self.groups:
            self.groups[labels] = EventGroup([], {name: [] for name in self._inputs}, {})
        group = self.groups[labels]
        kinds = set(map(type, values))
        if not self._is_typed and kinds - {str}:
            self._is_typed = True
            self._by_value.clear()
        if kinds <= _NAMED_BY_TYPE:
            self._by_value[(*values, *map(type, values)) if self._is_typed else values] = group
        return group


class EpisodeStatistics:
    """Aggregates the events of one environment, first by environment step, then by episode.

    Receiving an event only appends its raw values and the number of the step. Both reductions are
    done at the end of the episode, and after every 10,001 steps, so that the running episode has a
    bounded size. Values of events are copies already; see `EventRecord`.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[type, Any], _Values] = {}
        self._passed_on: dict[StatKey, list[Any]] = {}
        self._distributions: dict[StatKey, Any] = {}
        self._n_steps = self._n_folded = 0  # complete steps since steps were last folded, and before that

    def declare(self, *topics: type) -> None:
        """Declare topics; their counts are 0, not missing, if none of their events happens."""
        for topic in topics:
            for declaration in declarations(topic).values():
                if (topic, declaration.event) not in self._values:
                    self._values[topic, declaration.event] = _Values(declaration)

    def passed_on(self, key: StatKey) -> list[Any]:
        """List for values of the running episode that become a statistic as they are.

        Args:
            key: Key of the statistic, of which only a histogram may be made.

        Returns:
            A list to append to; it is emptied when values are folded and when an episode ends.
        """
        return self._passed_on.setdefault(key, [])

    def receive(self, record: EventRecord) -> None:
        """Add an event to the current environment step."""
        topic, event, attributes, _ = record
        values = self._values.get((topic, event))
        if values is None:
            self.declare(topic)
            values = self._values[topic, event]
        steps, columns, _ = values.ungrouped or values.group(attributes)
        steps.append(self._n_steps)
        for name, column in columns.items():
            value = attributes if name is None else attributes[name]
            kind = type(value)
            column.append(value if kind is float or kind is int else plain(value))

    def end_step(self) -> None:
        """Complete an environment step (not a sub-step)."""
        self._n_steps += 1
        if self._n_steps > MOST_KEPT_STEPS:
            self._fold()

    def advance(self, n_steps: int) -> None:
        """Complete environment steps until at least `n_steps` are complete."""
        self._n_steps = max(self._n_steps, n_steps - self._n_folded)
        if self._n_steps > MOST_KEPT_STEPS:
            self._fold()

    def end_episode(self, kpis: Mapping[str, float] | None = None, env_steps: int | None = None) -> EpisodeSummary:
        """Complete the episode and begin another one.

        Args:
            kpis: Key performance indicators by name.
            env_steps: Environment time that the episode took; by default the number of completed
                steps. Events received after the last completed step count as a separate step in the
                statistics.
        """
        if env_steps is None:
            env_steps = self._n_folded + self._n_steps
        summary = EpisodeSummary({}, env_steps, 0.0)
        groups = [group for values in self._values.values() for group in values.groups.values()]
        self._n_steps = max([self._n_steps, *(group.steps[-1] + 1 for group in groups if group.steps)])
        if self._n_folded:
            self._fold()
        for (topic, event), of_event in self._values.items():
            declaration = of_event.declaration
            for labels, group in of_event.groups.items():
                values = self._values_of(declaration, group)
                if event is topics.BaseEnvEvents.reward:
                    summary.reward += float(values[None])
                elif event is topics.BaseEnvEvents.kpi:
                    summary.kpis[labels[0]] = float(values[None])
                else:
                    key = topic_name(topic), declaration.name
                    summary.statistics.update({(*key, name, labels): value for name, value in values.items()})
        summary.statistics.update({key: number_array(values) for key, values in self._passed_on.items() if values})
        summary.statistics.update({key: DISTRIBUTION.result(state) for key, state in self._distributions.items()})
        for name, value in (kpis or {}).items():
            summary.kpis[name] = _finite_kpi(name, value)
        self.reset()
        return summary

    def _values_of(self, declaration: EventDeclaration, group: EventGroup) -> dict[str | None, Any]:
        """Episode statistics of a group at the end of the episode, by output name."""
        if not self._n_folded:
            return episode_values(declaration, group.steps, group.columns, self._n_steps)
        if group.folded:
            return folded_values(declaration, group.folded)
        return values_without_events(declaration, self._n_folded)

    def reset(self) -> None:
        """Drop the running episode and begin another one."""
        for values in self._values.values():
            values.reset()
        for column in self._passed_on.values():
            column.clear()
        self._distributions.clear()
        self._n_steps = self._n_folded = 0

    def _fold(self) -> None:
        """Replace the values of all complete steps by the states of running forms."""
        for of_event in self._values.values():
            for group in of_event.groups.values():
                if group.steps or group.folded:  # the first event tells the shape of the zeros before it
                    fold_steps(of_event.declaration, group, self._n_steps, self._n_folded)
        for key, column in self._passed_on.items():
            if column:
                self._distributions[key] = DISTRIBUTION.add(self._distributions.get(key), column)
                column.clear()
        self._n_folded += self._n_steps
        self._n_steps = 0


def _finite_kpi(name: str, value: Any) -> float:
    """Return the value of a KPI as a float.

    Raises:
        StatisticsError: It is not a finite number.
    """
    if not isinstance(value, Real) or not math.isfinite(value):
        fault = f"KPI {name!r} is {value!r}, which is not a finite number"
        raise StatisticsError(f"{fault}; omit KPIs without a value")
    return float(value)


def action_keys(step_key: StepKey, space: spaces.Dict) -> dict[str, StatKey]:
    """Head -> key of the statistic that holds the values of its actions, in temporal order."""
    group, keys = group_label("step_key", step_key), dict[str, StatKey]()
    for head, part in space.spaces.items():
        topic = topics.ContinuousActionEvents if isinstance(part, spaces.Box) else topics.DiscreteActionEvents
        keys[head] = topic.__name__, topic.action.__name__, None, (group, head)
    return keys


def episode_values(
    declaration: EventDeclaration, steps: Sequence[int], columns: _Columns, n_steps: int
) -> dict[str | None, Any]:
    """Episode statistics of one event, or of one group of it, by output name.

    Args:
        declaration: Declaration of the statistics to compute.
        steps: [E] step of each event, ascending.
        columns: Input of the step statistics -> its values, [E].
        n_steps: Number of steps of the episode.

    Returns:
        Numbers, or arrays [V, ...] of values that are passed on. A statistic without a value is
        left out.
    """
    by_step = _by_step(declaration, steps, columns, n_steps)
    result: dict[str | None, Any] = {}
    for statistic in declaration.episode:
        with declaration.reducing("episode", statistic):
            value = episode_value(statistic.reduce, by_step[statistic.input_name])
        if value is not None:
            result[statistic.output_name] = value
    return result


def episode_value(reduce: Reducer, values: Sequence[Any]) -> float | np.ndarray | None:
    """Reduce the step statistics of an episode; None without any, except for counts and sums."""
    if not values and reduce not in ZERO_OF_NOTHING:
        return None
    return number_array(values) if reduce is None else as_number(reduce(widened(values)))


def fold_steps(declaration: EventDeclaration, group: EventGroup, n_steps: int, n_before: int) -> None:
    """Replace the values of a group by the states of running forms.

    Args:
        declaration: Declaration of the statistics to compute.
        group: The values; empty afterwards.
        n_steps: Number of complete steps that the values belong to.
        n_before: Number of steps of the episode before them.
    """
    by_step = _by_step(declaration, group.steps, group.columns, n_steps)
    n_missing = 0 if group.folded else n_before  # steps before the first event of the group
    for step in declaration.step:
        if step.reduce is sum:
            _fit_zeros(group, step.output_name, by_step)
    for statistic in declaration.episode:
        with declaration.reducing("episode", statistic):
            fold, name = _fold_of(declaration, statistic), statistic.output_name
            state = group.folded.get(name)
            if n_missing and declaration.has_zeros(statistic.input_name):
                zero = group.folded.get(_key_of_zeros(statistic.input_name), 0)
                state = fold.add_zeros(state, n_missing, zero)
            values = by_step[statistic.input_name]
            if values and isinstance(fold, Kept):
                tell_of_kept_values(declaration.topic, declaration.name, statistic)
            group.folded[name] = fold.add(state, values) if values else state
    group.steps.clear()
    for column in group.columns.values():
        column.clear()


def _fit_zeros(group: EventGroup, name: str | None, by_step: dict[str | None, Sequence[Any]]) -> None:
    """Give the zeros of steps without events the shape that sums of other steps have.

    Args:
        group: The events; empty if there are none in these steps.
        name: Output name of the step statistic.
        by_step: Output name -> step statistics; the sums are replaced.
    """
    key = _key_of_zeros(name)
    if group.steps:
        zero = _zero_of([by_step[name][step] for step in set(group.steps)])
        if isinstance(zero, np.ndarray):
            group.folded.setdefault(key, zero)
    elif key in group.folded:
        by_step[name] = [group.folded[key]] * len(by_step[name])


def _key_of_zeros(name: str | None) -> tuple[str | None]:
    """Key of the zeros of a step statistic among states, whose keys are names."""
    return (name,)


def folded_values(declaration: EventDeclaration, folded: Mapping[_FoldedName, Any]) -> dict[str | None, Any]:
    """Episode statistics of one event, or of one group of it, from the states of running forms."""
    result: dict[str | None, Any] = {}
    for statistic in declaration.episode:
        state = folded[statistic.output_name]
        if state is not None:
            with declaration.reducing("episode", statistic):
                value = _fold_of(declaration, statistic).result(state)
                is_distribution = statistic.reduce is None
                result[statistic.output_name] = value if is_distribution else as_number(value)
        elif statistic.reduce in ZERO_OF_NOTHING:
            result[statistic.output_name] = 0.0
    return result


def values_without_events(declaration: EventDeclaration, n_steps: int) -> dict[str | None, Any]:
    """Episode statistics of an event that did not happen in an episode of `n_steps` steps."""
    if n_steps <= MOST_KEPT_STEPS:
        return episode_values(declaration, [], {}, n_steps)
    group = EventGroup([], {}, {})
    fold_steps(declaration, group, 0, n_steps)
    return folded_values(declaration, group.folded)


def _fold_of(declaration: EventDeclaration, statistic: Statistic) -> Fold:
    """Running form of an episode statistic."""
    if statistic.reduce is not None:
        fold = running_form(statistic.reduce)
    else:
        fold = DISTRIBUTION if declaration.makes_histogram(statistic.output_name) else None
    return fold or Kept(statistic.reduce)


def _by_step(
    declaration: EventDeclaration, steps: Sequence[int], columns: _Columns, n_steps: int
) -> dict[str | None, Sequence[Any]]:
    """Step statistics of one event by output name."""
    by_step: dict[str | None, Sequence[Any]] = {}
    for statistic in declaration.step:
        with declaration.reducing("step", statistic):
            column = columns.get(statistic.input_name, steps)  # if None, they need only be counted
            by_step[statistic.output_name] = step_values(statistic.reduce, steps, column, n_steps)
    return by_step


def step_values(reduce: Reducer, steps: Sequence[int], column: Sequence[Any], n_steps: int) -> Sequence[Any]:
    """Step statistics in the order of steps; of all steps if those without events have a value.

    Args:
        reduce: The reduction; None keeps the values.
        steps: [E] step of each event, ascending.
        column: [E] values of the events.
        n_steps: Number of steps.
    """
    if reduce is None:
        return column
    if reduce is len:
        return np.bincount(np.array(steps, np.intp), minlength=n_steps).tolist()  # type: ignore[no-any-return]
    column = widened(column)
    if reduce is sum:
        totals: list[Any] = [0] * n_steps
        for step, value in zip(steps, column, strict=True):
            totals[step] = totals[step] + value  # not in place: the next array may be of a wider type
        if np.ndarray in set(map(type, column)):
            occupied = set(steps)
            zero = _zero_of([totals[step] for step in occupied])
            totals = [total if step in occupied else zero for step, total in enumerate(totals)]
        return totals
    by_step = defaultdict[int, list[Any]](list)
    for step, value in zip(steps, column, strict=True):
        by_step[step].append(value)
    reduced = {step: reduce(values) for step, values in by_step.items()}
    if reduce in ZERO_OF_NOTHING:
        return [reduced.get(step, 0) for step in range(n_steps)]
    return list(reduced.values())


def _zero_of(totals: Sequence[Any]) -> Any:
    """Sum of a step without events: zeros if all other sums are arrays of one shape, else 0."""
    is_shaped = set(map(type, totals)) == {np.ndarray} and len({total.shape for total in totals}) == 1
    return np.zeros_like(totals[0]) if is_shaped else 0


def as_number(value: Any) -> float | np.ndarray:
    """Convert the result of a reduction to a float; arrays stay arrays."""
    return number_array(value) if isinstance(value, np.ndarray) and value.ndim else float(value)

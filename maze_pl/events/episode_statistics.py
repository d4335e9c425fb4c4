"""Episode statistics: events of environment steps become the statistics of an episode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary, StatKey
from maze_pl.events.declaration import EventDeclaration, StatisticsError, declarations, group_label, topic_name
from maze_pl.events.decorators import Reducer, Statistic
from maze_pl.events.histogram import number_array
from maze_pl.events.pubsub import EventRecord
from maze_pl.events.topics import BaseEnvEvents, ContinuousActionEvents, DiscreteActionEvents

ZERO_OF_NOTHING: frozenset[Reducer] = frozenset({len, sum, np.sum, math.fsum})
"""Reductions that give 0 where nothing happened; all others have no value there."""


class EpisodeStatistics:
    """Aggregates the events of one environment, first by environment step, then by episode.

    Receiving an event only appends its raw values and the number of the step; both reductions are done at the end of
    the episode. Arrays are copied: later changes in place do no harm.
    """

    def __init__(self) -> None:
        self._plans: dict[Any, _EventPlan] = {}
        self._latest: dict[Any, _EventPlan] = {}  # by the event alone, of the topic that fired it last
        self._n_steps = 0

    def declare(self, *topics: type) -> None:
        """Make known topics whose counts are wanted even if none of their events ever happens: they are then 0."""
        for topic in topics:
            for declaration in declarations(topic).values():
                self._plans.setdefault((topic, declaration.event), _EventPlan(declaration))

    def receive(self, record: EventRecord) -> None:
        """Add an event to the current environment step."""
        topic, event, attributes, _ = record
        plan = self._latest.get(event)
        if plan is None or plan.topic is not topic:
            plan = self._plan(topic, event)
        series = plan.series
        if plan.group_of is not None:
            group = plan.group_of(attributes)
            series = plan.series_by_value.get(group) or plan.add_group(group)
        series.steps.append(self._n_steps)
        for name, column in series.columns:
            value = attributes if name is None else attributes[name]
            kind = type(value)
            column.append(value if kind is float or kind is int else detached(value))

    def _plan(self, topic: type, event: Any) -> _EventPlan:
        """The plan for an event of a topic; topics that inherit from each other share functions."""
        if (topic, event) not in self._plans:
            self.declare(topic)
        plan = self._latest[event] = self._plans[topic, event]
        return plan

    def end_step(self) -> None:
        """Complete an environment step (not a sub-step)."""
        self._n_steps += 1

    def end_episode(self, kpis: Mapping[str, float] | None = None, env_steps: int | None = None) -> EpisodeSummary:
        """Complete the episode and begin another one.

        Args:
            kpis: Key performance indicators by name.
            env_steps: Environment time that the episode took; by default the number of completed steps. Events received
                after the last completed step count as a step of their own in the statistics.
        """
        all_series = [series for plan in self._plans.values() for series in plan.series_by_label.values()]
        n_steps = max([self._n_steps, *(series.steps[-1] + 1 for series in all_series if series.steps)])
        statistics: dict[StatKey, float | np.ndarray] = {}
        reward = 0.0
        all_kpis: dict[str, float] = {}
        for plan in self._plans.values():
            topic, event = plan.topic_name, plan.declaration.name
            for groups, series in plan.series_by_label.items():
                values = episode_values(plan.declaration, series.steps, dict(series.columns), n_steps)
                if plan.declaration.event is BaseEnvEvents.reward:
                    reward += float(values[None])
                elif plan.declaration.event is BaseEnvEvents.kpi:
                    all_kpis[groups[0]] = float(values[None])
                else:
                    statistics.update({(topic, event, name, groups): value for name, value in values.items()})
        for name, value in (kpis or {}).items():
            if not isinstance(value, Real) or not math.isfinite(value):
                raise StatisticsError(f"KPI {name!r} is {value!r}, no finite number; leave out what has no value")
            all_kpis[name] = float(value)
        summary = EpisodeSummary(statistics, self._n_steps if env_steps is None else env_steps, reward, all_kpis)
        self.reset()
        return summary

    def reset(self) -> None:
        """Drop the running episode and begin another one."""
        for plan in self._plans.values():
            if plan.series.steps or plan.series_by_value:
                plan.reset()
        self._n_steps = 0


class _Series:
    """Raw values of one event, or of one group of it: the step of each event, and one column for each input."""

    __slots__ = ("columns", "steps")

    def __init__(self, inputs: Sequence[str | None]) -> None:
        self.steps: list[int] = []
        self.columns: tuple[tuple[str | None, list[Any]], ...] = tuple((name, []) for name in inputs)


class _EventPlan:
    """What to keep of one kind of event, worked out once."""

    def __init__(self, declaration: EventDeclaration) -> None:
        self.declaration = declaration
        self.topic, self.topic_name = declaration.topic, topic_name(declaration.topic)
        # counting needs no values
        self.inputs = tuple(dict.fromkeys(s.input_name for s in declaration.step if s.reduce is not len))
        self.group_of = itemgetter(*declaration.grouping) if declaration.grouping else None
        self.reset()

    def reset(self) -> None:
        self.series, self.series_by_value = _Series(self.inputs), dict[Any, _Series]()
        self.series_by_label: dict[tuple[str, ...], _Series] = {} if self.group_of else {(): self.series}

    def add_group(self, group: Any) -> _Series:
        grouping = self.declaration.grouping
        values = (group,) if len(grouping) == 1 else group
        labels = tuple(group_label(name, value) for name, value in zip(grouping, values, strict=True))
        self.series_by_value[group] = self.series_by_label.setdefault(labels, _Series(self.inputs))
        return self.series_by_value[group]


def action_keys(step_key: StepKey, space: spaces.Dict) -> dict[str, StatKey]:
    """Head -> the statistic that the values of its actions are, in the order in which they were taken."""
    group, heads = group_label("step_key", step_key), space.spaces.items()
    topics = {h: ContinuousActionEvents if isinstance(part, spaces.Box) else DiscreteActionEvents for h, part in heads}
    return {head: (topic.__name__, topic.action.__name__, None, (group, head)) for head, topic in topics.items()}


def flat_summary(
    keys: Mapping[str, StatKey], actions: Mapping[str, Sequence[Any]], rewards: Sequence[float]
) -> EpisodeSummary:
    """The summary of an episode of which nothing is known but its actions and rewards, one of each for every step.

    Args:
        keys: Result of `action_keys`.
        actions: Head -> [L] what was chosen.
        rewards: [L] what came of it.
    """
    statistics = {keys[head]: number_array(values) for head, values in actions.items()}
    return EpisodeSummary(dict(statistics), len(rewards), float(sum(rewards)))


def episode_values(
    declaration: EventDeclaration, steps: Sequence[int], columns: Mapping[str | None, list[Any]], n_steps: int
) -> dict[str | None, Any]:
    """Episode statistics of one event, or of one group of it, by output name.

    Args:
        declaration: What to compute.
        steps: [E] step of each event, ascending.
        columns: For each input of the step statistics, [E] its values.
        n_steps: Number of steps of the episode.

    Returns:
        A number, or an array of the values that are passed on, [V, ...]. A statistic that has no value is left out.
    """
    by_step: dict[str | None, list[Any]] = {}
    for statistic in declaration.step:
        with declaration.reducing("step", statistic):
            column = columns.get(statistic.input_name, [])
            by_step[statistic.output_name] = _step_values(statistic, steps, column, n_steps)
    result: dict[str | None, Any] = {}
    for statistic in declaration.episode:
        values, reduce = by_step[statistic.input_name], statistic.reduce
        if not values and reduce not in ZERO_OF_NOTHING:
            continue
        with declaration.reducing("episode", statistic):
            result[statistic.output_name] = number_array(values) if reduce is None else as_number(reduce(values))
    return result


def _step_values(statistic: Statistic, steps: Sequence[int], column: list[Any], n_steps: int) -> list[Any]:
    """Step statistics in the order of steps, for all steps if a step without events has a value, too."""
    reduce = statistic.reduce
    if reduce is None:
        return column
    if reduce is len:
        return list(np.bincount(np.array(steps, np.intp), minlength=n_steps).tolist())
    if reduce is sum:
        totals: list[Any] = [0] * n_steps
        for step, value in zip(steps, column, strict=True):
            totals[step] += value
        return totals
    by_step: dict[int, list[Any]] = {}
    for step, value in zip(steps, column, strict=True):
        by_step.setdefault(step, []).append(value)
    reduced = {step: reduce(values) for step, values in by_step.items()}
    if reduce in ZERO_OF_NOTHING:
        return [reduced.get(step, 0) for step in range(n_steps)]
    return list(reduced.values())


def as_number(value: Any) -> float | np.ndarray:
    """What a reduction returned, as a float; arrays stay."""
    return number_array(value) if isinstance(value, np.ndarray) and value.ndim else float(value)


def detached(value: Any) -> Any:
    """A value that nobody can change any more, and numbers as Python has them (float32 sums lose digits)."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.copy() if value.ndim else value.item()
    return value

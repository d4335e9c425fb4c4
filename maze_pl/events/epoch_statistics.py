"""Epoch statistics: summaries of episodes, from any process or rank, become what is logged."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from maze_pl.core.episode import EpisodeSummary, StatKey
from maze_pl.events.declaration import EventDeclaration, declarations, event_path, find_topic
from maze_pl.events.decorators import Statistic
from maze_pl.events.episode_statistics import as_number, episode_values
from maze_pl.events.histogram import Histogram
from maze_pl.events.topics import BaseEnvEvents

_REWARD = (BaseEnvEvents.__name__, BaseEnvEvents.reward.__name__)
_KPI = (BaseEnvEvents.__name__, BaseEnvEvents.kpi.__name__)


class EpochStatistics:
    """Aggregates episodes to the statistics of an epoch, and counts steps and episodes over the whole run.

    Results do not depend on the order in which episodes are added: they are sorted by environment and episode first.

    Args:
        topics: Topics that cannot be imported by name, such as those defined inside a function; others are found.

    Attributes:
        total_step_count: Environment steps of all episodes that were ever added.
        total_episode_count: How many episodes were ever added.
    """

    def __init__(self, topics: Iterable[type] = ()) -> None:
        self.total_step_count = self.total_episode_count = 0
        self._topics = tuple(topics)
        self._episodes: list[EpisodeSummary] = []

    def add(self, summary: EpisodeSummary) -> None:
        """Add an episode to the current epoch."""
        self._episodes.append(summary)
        self.total_step_count += int(summary.env_steps)
        self.total_episode_count += 1

    def compute(self) -> dict[str, float | Histogram]:
        """Complete the epoch and begin another one.

        Returns:
            A value for each `<Topic>/<event>/<statistic>/<groups>`, sorted by name. An epoch without episodes has only
            an episode count of 0 and the totals.

        Raises:
            ValueError: The topic of an event cannot be found, or two topics have the same name.
        """
        result: dict[str, float | Histogram] = {}
        owners: dict[str, str] = {}
        for (topic, event, _, groups), declaration, statistic, values in self._inputs("epoch"):
            path = event_path(topic, event, statistic.output_name, groups)
            if path in result:
                both = f"{owners[path]!r} and {topic!r}"
                raise ValueError(f"{path!r} is a statistic of both {both}; rename one of the two topics")
            owners[path] = topic
            with declaration.reducing("epoch", statistic):
                result[path] = _value((statistic.reduce or Histogram.of)(values))
        counts = (len(self._episodes), self.total_step_count, self.total_episode_count)
        for name, count in zip(("episode_count", "total_step_count", "total_episode_count"), counts, strict=True):
            result[event_path(*_REWARD, name)] = float(count)
        self._episodes = []
        return dict(sorted(result.items()))

    def compute_plots(self) -> dict[str, Any]:
        """Figures of the current epoch, by `<Topic>/<event>/<input_name>/<groups>`; call it before `compute`."""
        figures: dict[str, Any] = {}
        for key, _, plot, values in self._inputs("plots"):
            figure = plot.reduce(list(values), key[-1]) if plot.reduce else None
            if figure is not None:
                figures[event_path(*key)] = figure
        return dict(sorted(figures.items()))

    def state_dict(self) -> dict[str, Any]:
        """Totals, and the episodes of an epoch that is under way, as primitives."""
        return {
            "total_step_count": self.total_step_count,
            "total_episode_count": self.total_episode_count,
            "episodes": [summary_to_dict(summary) for summary in self._episodes],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.total_step_count = state["total_step_count"]
        self.total_episode_count = state["total_episode_count"]
        self._episodes = [summary_from_dict(summary) for summary in state["episodes"]]

    def _columns(self) -> dict[StatKey, list[float | np.ndarray | None]]:
        """For each statistic, [N] its values in the episodes, sorted; None where an episode has none."""
        self._episodes.sort(key=lambda e: (e.env_index, e.episode_index, e.env_steps, e.reward))
        columns: dict[StatKey, list[float | np.ndarray | None]] = {}
        for index, summary in enumerate(self._episodes):
            values: dict[StatKey, float | np.ndarray] = {**summary.statistics, **summary.samples}
            values[(*_REWARD, None, ())] = float(summary.reward)
            values[(*_REWARD, "step_count", ())] = float(summary.env_steps)
            values |= {(*_KPI, None, (name,)): float(value) for name, value in summary.kpis.items()}
            for key, value in values.items():
                columns.setdefault(key, [None] * len(self._episodes))[index] = value
        return columns

    def _inputs(self, level: str) -> Iterator[tuple[StatKey, EventDeclaration, Statistic, list[float] | np.ndarray]]:
        """What there is to reduce to the statistics, or the plots, that are declared: each with its values.

        An episode without the event has a value, too, if the statistic is one that counts or sums.
        """
        for key, column in self._columns().items():
            topic, event, name, _ = key
            found = declarations(find_topic(topic, self._topics))
            if event not in found:
                raise ValueError(f"event topic {topic!r} no longer has the event {event!r}, which an episode has had")
            wanted = [statistic for statistic in getattr(found[event], level) if statistic.input_name == name]
            if not wanted:
                continue
            given = (
                episode_values(found[event], [], {}, summary.env_steps).get(name) if value is None else value
                for summary, value in zip(self._episodes, column, strict=True)
            )
            values = _join([value for value in given if value is not None])
            for statistic in wanted if len(values) else []:
                yield key, found[event], statistic, values


def _join(values: Sequence[float | np.ndarray]) -> list[float] | np.ndarray:
    """Numbers as a list; arrays of values joined along their first axis, flattened if their shapes differ."""
    if not any(isinstance(value, np.ndarray) for value in values):
        return [float(value) for value in values]
    arrays = [np.atleast_1d(value) for value in values]
    if len({array.shape[1:] for array in arrays}) > 1:
        arrays = [array.ravel() for array in arrays]
    return np.concatenate(arrays)


def _value(reduced: Any) -> float | Histogram:
    if isinstance(reduced, Histogram):
        return reduced
    if isinstance(number := as_number(reduced), float):
        return number
    raise TypeError(f"an epoch statistic is one number or a histogram, got an array of shape {number.shape}")


def summary_to_dict(summary: EpisodeSummary) -> dict[str, Any]:
    """An episode summary in lists, tuples, dicts, strings and numbers only; exact to the bit."""
    return {field.name: _to_state(getattr(summary, field.name)) for field in fields(summary)}


def summary_from_dict(state: dict[str, Any]) -> EpisodeSummary:
    """The episode summary that `summary_to_dict` was given."""
    return EpisodeSummary(**_from_state(state))


def _to_state(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_state(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), value.ravel().tolist()]
    return value.item() if isinstance(value, np.generic) else value


def _from_state(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _from_state(part) for key, part in state.items()}
    if isinstance(state, list):
        dtype, shape, values = state
        return np.array(values, dtype).reshape(shape)
    return state

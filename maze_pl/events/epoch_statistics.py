"""Aggregation of episodes to statistics of epochs, from any process or rank."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from maze_pl.core.episode import EpisodeSummary, StatKey
from maze_pl.core.episode_batch import EpisodeBatch, StatColumn
from maze_pl.core.histogram import Histogram
from maze_pl.events import topics
from maze_pl.events.episode_statistics import as_number, values_without_events
from maze_pl.events.event_names import event_path, find_topic
from maze_pl.events.topics import (
    EventDeclaration,
    Statistic,
    declarations,
)

_REWARD = (topics.BaseEnvEvents.__name__, topics.BaseEnvEvents.reward.__name__)
_KPI = (topics.BaseEnvEvents.__name__, topics.BaseEnvEvents.kpi.__name__)
_Joined = list[float] | np.ndarray | Histogram


class EpochStatistics:
    """Aggregates episodes to the statistics of an epoch, and counts steps and episodes over the whole run.

    Results do not depend on the order in which episodes are added: they are sorted by environment and episode first.

    Args:
        topics: Topics that cannot be imported by name, such as classes defined inside a function.

    Attributes:
        total_step_count: Environment steps of all episodes that were ever added.
        total_episode_count: Number of all episodes that were ever added.
    """

    def __init__(self, topics: Iterable[type] = ()) -> None:
        self.total_step_count = self.total_episode_count = 0
        self._topics = tuple(topics)
        self._episodes: list[EpisodeSummary] = []
        self._batches: list[EpisodeBatch] = []

    def add(self, summary: EpisodeSummary) -> None:
        """Add an episode to the current epoch."""
        self._episodes.append(summary)
        self.total_step_count += int(summary.env_steps)
        self.total_episode_count += 1

    def add_all(self, summaries: Sequence[EpisodeSummary]) -> None:
        """Add several episodes to the current epoch."""
        if isinstance(summaries, EpisodeBatch):
            self._batches.append(summaries)
            self.total_step_count += int(summaries.env_steps.sum())
            self.total_episode_count += len(summaries)
        else:
            for summary in summaries:
                self.add(summary)

    def compute(self) -> dict[str, float | Histogram]:
        """Complete the epoch and begin another one.

        Returns:
            A value for each `<Topic>/<event>/<statistic>/<groups>`, sorted by name. An epoch without episodes has only
            an episode count of 0 and the totals.

        Raises:
            ValueError: The topic of an event cannot be found.
        """
        result: dict[str, float | Histogram] = {}
        for (topic, event, _, groups), declaration, statistic, values in self._inputs("epoch"):
            with declaration.reducing("epoch", statistic):
                value = _value((statistic.reduce or Histogram.of)(values))
            result[event_path(topic, event, statistic.output_name, groups)] = value
        n_episodes = len(self._episodes) + sum(map(len, self._batches))
        for name, count in {"episode_count": n_episodes, **self.state_dict()}.items():
            result[event_path(*_REWARD, name)] = float(count)
        self._episodes = []
        self._batches = []
        return dict(sorted(result.items()))

    def compute_plots(self) -> dict[str, Any]:
        """Figures of the current epoch, by `<Topic>/<event>/<input_name>/<groups>`; call it before `compute`."""
        figures: dict[str, Any] = {}
        for key, _, plot, values in self._inputs("plots"):
            figure = plot.reduce(list(cast(Any, values)), key[-1]) if plot.reduce else None
            if figure is not None:
                figures[event_path(*key)] = figure
        return dict(sorted(figures.items()))

    def state_dict(self) -> dict[str, int]:
        """Total counts of steps and episodes."""
        return {"total_step_count": self.total_step_count, "total_episode_count": self.total_episode_count}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from the result of `state_dict`."""
        self.total_step_count, self.total_episode_count = state["total_step_count"], state["total_episode_count"]

    def _inputs(self, level: str) -> Iterator[tuple[StatKey, EventDeclaration, Statistic, _Joined]]:
        """Yield the declared statistics, or plots, of a level with the values to reduce.

        An episode without the event also has a value if the statistic is a count or a sum.
        """
        if self._batches and not self._episodes:
            self._batches = [EpisodeBatch.concatenated(self._batches)]
            yield from self._inputs_of_batch(self._batches[0], level)
            return
        for batch in self._batches:
            self._episodes.extend(batch)
        self._batches = []
        self._episodes.sort(key=lambda e: (e.env_index, e.episode_index, e.env_steps, e.reward))
        columns = defaultdict[StatKey, dict[int, Any]](dict)
        for index, summary in enumerate(self._episodes):
            values: dict[StatKey, Any] = {**summary.statistics, **summary.samples}
            values[(*_REWARD, None, ())] = summary.reward
            values[(*_REWARD, "step_count", ())] = summary.env_steps
            values |= {(*_KPI, None, (name,)): value for name, value in summary.kpis.items()}
            for key, value in values.items():
                columns[key][index] = value
        for key, column in columns.items():
            declaration, wanted = self._statistics_of(key, level)
            if not wanted:
                continue
            name = key[2]
            values_of_episodes = []
            for index, episode in enumerate(self._episodes):
                value = column.get(index)
                if value is None:
                    value = values_without_events(declaration, episode.env_steps).get(name)
                if value is not None:
                    values_of_episodes.append(value)
            joined = _join(values_of_episodes)
            if joined is not None:
                for statistic in wanted:
                    yield key, declaration, statistic, joined

    def _inputs_of_batch(
        self, batch: EpisodeBatch, level: str
    ) -> Iterator[tuple[StatKey, EventDeclaration, Statistic, _Joined]]:
        """Yield the same as `_inputs`, from arrays."""
        batch = batch.chosen(np.lexsort((batch.reward, batch.env_steps, batch.episode_index, batch.env_index)))
        everyone = np.arange(len(batch))
        columns = batch.all_columns()
        columns[(*_REWARD, None, ())] = StatColumn(everyone, batch.reward)
        columns[(*_REWARD, "step_count", ())] = StatColumn(everyone, batch.env_steps)
        for kpi, values in batch.kpis.items():
            present = np.flatnonzero(~np.isnan(values))
            if len(present):
                columns[(*_KPI, None, (kpi,))] = StatColumn(present, values[present])
        for key, column in columns.items():
            declaration, wanted = self._statistics_of(key, level)
            if not wanted:
                continue
            joined = _joined_column(column, declaration, key[2], batch.env_steps)
            if joined is not None:
                for statistic in wanted:
                    yield key, declaration, statistic, joined

    def _statistics_of(self, key: StatKey, level: str) -> tuple[EventDeclaration, list[Statistic]]:
        """Return the declaration of an event, and the statistics of a level that have a certain input.

        Args:
            key: Key of an episode statistic, the input.
            level: `epoch` or `plots`.
        """
        topic, event, name, _ = key
        declaration = declarations(find_topic(topic, self._topics))[event]
        statistics: list[Statistic] = getattr(declaration, level)
        return declaration, [statistic for statistic in statistics if statistic.input_name == name]


def _joined_column(
    column: StatColumn, declaration: EventDeclaration, name: str | None, env_steps: np.ndarray
) -> _Joined | None:
    """Join the values of a column with those of the episodes without the event; None if there are none.

    Args:
        column: Values of a statistic.
        declaration: Declaration of its event.
        name: Name of the episode statistic.
        env_steps: [n] length of each episode.
    """
    n_episodes = len(env_steps)
    if len(column.episodes) < n_episodes:
        is_missing = np.ones(n_episodes, np.bool_)
        is_missing[column.episodes] = False
        missing = np.flatnonzero(is_missing)
        lengths, length_of = np.unique(env_steps[missing], return_inverse=True)
        of_length = [values_without_events(declaration, n_steps).get(name) for n_steps in lengths.tolist()]
        if column.counts is None and all(isinstance(value, float) for value in of_length):
            numbers = np.empty(n_episodes)
            numbers[column.episodes] = column.values
            numbers[missing] = np.array(of_length, np.float64)[length_of]
            return numbers.tolist()
        if any(value is not None for value in of_length):
            values = dict(column.per_episode())
            for place, length in zip(missing.tolist(), length_of.tolist(), strict=True):
                values[place] = of_length[length]
            return _join([values[place] for place in sorted(values) if values[place] is not None])
    if not len(column.values):
        return None
    if column.counts is None:
        return [float(value) for value in column.values.tolist()]
    return column.values


def _join(values: Sequence[float | np.ndarray | Histogram]) -> _Joined | None:
    """Join the values of several episodes; None if there are none.

    Numbers are returned as a list. Arrays are joined along their first axis, and flattened if their
    shapes differ. With the histogram of a long episode, everything becomes a histogram.
    """
    if any(isinstance(value, Histogram) for value in values):
        return Histogram.merged([Histogram.of(value) for value in values])
    if not any(isinstance(value, np.ndarray) for value in values):
        return [float(value) for value in values] or None  # type: ignore[arg-type]
    arrays = [np.atleast_1d(cast(Any, value)) for value in values]
    if len({array.shape[1:] for array in arrays}) > 1:
        arrays = [array.ravel() for array in arrays]
    joined = np.concatenate(arrays)
    return joined if len(joined) else None


def _value(reduced: Any) -> float | Histogram:
    if isinstance(reduced, Histogram):
        return reduced
    if isinstance(number := as_number(reduced), float):
        return number
    raise TypeError(f"an epoch statistic is one number or a histogram, got an array of shape {number.shape}")

"""Statistics of an epoch: numbers recorded by algorithms, and episodes played, over all ranks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary, thin_out
from maze_pl.core.episode_batch import (
    EpisodeBatch,
    PendingEpisodes,
    fetched_summaries,
    joined_summaries,
    thin_out_batches,
)
from maze_pl.core.exact_sums import exact_mean, exact_sum
from maze_pl.events import EpochStatistics, Histogram
from maze_pl.system.ranks import gather_objects

Value = float | Histogram

_Recorded = list[tuple[Tensor | float, Tensor | float]]
"""Sums recorded under one name with their counts; the mean is total sum by total count."""


@dataclass
class SourceStatistics:
    """Statistics of one epoch, equal on all ranks.

    Attributes:
        values: "<Topic>/<event>/<statistic>" -> value.
        metrics: Short names for callbacks, such as "return" and "kpi/<name>".
        plots: Figures declared by events, under the same kind of names as the values.
    """

    values: dict[str, Value]
    metrics: dict[str, float]
    plots: dict[str, Any] = field(default_factory=dict)

    def scalars(self, prefix: str) -> dict[str, float]:
        """Return the values for loggers, as "<prefix>_<Topic>/..."; the mean for distributions."""
        return {
            f"{prefix}_{name}": value.mean if isinstance(value, Histogram) else float(value)
            for name, value in self.values.items()
        }

    def short_values(self, prefix: str) -> dict[str, float]:
        """Return the metrics for callbacks, as "<prefix>/<name>"."""
        return {f"{prefix}/{name}": value for name, value in self.metrics.items()}


class _SourceData(NamedTuple):
    """Data of a source from one rank.

    Attributes:
        sums: Name of a recorded number -> sum of its values, and of their counts.
        episodes: Episodes that ended there.
        plays: Whether the source plays episodes, even if none has ended.
    """

    sums: dict[str, tuple[float, float]]
    episodes: Sequence[EpisodeSummary]
    plays: bool


def episode_means(summaries: Sequence[EpisodeSummary]) -> dict[str, float]:
    """Return means over episodes: "return", and "kpi/<name>" over episodes that have the KPI."""
    found: dict[str, list[float]] = {}
    if isinstance(summaries, EpisodeBatch):
        found["return"] = summaries.reward[~np.isnan(summaries.reward)].tolist()
        for name, column in summaries.kpis.items():
            found[f"kpi/{name}"] = column[~np.isnan(column)].tolist()
    else:
        for summary in summaries:
            found.setdefault("return", []).append(summary.reward)
            for name, value in summary.kpis.items():
                found.setdefault(f"kpi/{name}", []).append(value)
    return {name: exact_mean(values) for name, values in found.items() if values}


class RunStatistics:
    """Recorded numbers and played episodes of each rank, combined over ranks once per epoch.

    Attributes:
        n_batches: Training batches since `finish_training` was last called.
    """

    def __init__(self) -> None:
        self.n_batches = 0
        self._recorded: dict[str, dict[str, _Recorded]] = {}  # by source and name
        self._pending: dict[str, list[Sequence[EpisodeSummary]]] = {}
        self._epochs: dict[str, EpochStatistics] = {}

    def record(
        self,
        name: str,
        value: Tensor | float,
        step_key: StepKey | None,
        count: Tensor | float,
        source: str = "train",
    ) -> None:
        """Add a number, or a sum of `count` numbers.

        Tensors stay on their device until the epoch ends. The `source` is "train" or the name that
        an evaluation is logged under. A `name` without a topic is for callbacks.
        """
        key = name if step_key is None else f"{name}/substep_{step_key}"
        number = value.detach() if isinstance(value, Tensor) else float(value)
        of_name = self._recorded.setdefault(source, {}).setdefault(key, [])
        of_name.append((number, count.detach() if isinstance(count, Tensor) else float(count)))

    def add_episodes(self, source: str, summaries: Sequence[EpisodeSummary]) -> None:
        """Add episodes that ended on this rank; `source` is "train" or an evaluator's name."""
        pending = self._pending.setdefault(source, [])
        pending.append(summaries)
        if isinstance(summaries, PendingEpisodes):
            return
        if isinstance(summaries, EpisodeBatch):
            if summaries.samples:
                thin_out_batches([part for part in pending if isinstance(part, EpisodeBatch)])
        elif any(summary.samples for summary in summaries):
            thin_out(list(chain.from_iterable(pending)))

    def fetch_episodes(self) -> None:
        """Fetch the pending episodes of this rank, which checks what they come from.

        Raises:
            ValueError: Data of a rollout is invalid; see `RolloutRecord`.
        """
        for parts in self._pending.values():
            for summaries in parts:
                fetched_summaries(summaries)

    def discard_unfinished(self) -> None:
        """Discard the episodes and numbers of an epoch that has not ended, and never will if its run has failed."""
        self.n_batches = 0
        self._recorded = {}
        self._pending = {}

    def finish_training(self) -> SourceStatistics:
        """Return the training statistics since the last call; a collective call."""
        self.n_batches = 0
        return self._finish(["train"])["train"]

    def finish_evaluation(self) -> dict[str, SourceStatistics]:
        """Return the statistics of each evaluator since the last call; a collective call."""
        return self._finish([name for name in dict.fromkeys([*self._pending, *self._recorded]) if name != "train"])

    def _finish(self, sources: list[str]) -> dict[str, SourceStatistics]:
        """Combine what all ranks have of these sources, and of those that other ranks name."""
        of_this_rank: dict[str, _SourceData] = {}
        for source in sources:
            plays = source in self._pending
            episodes = fetched_summaries(joined_summaries(self._pending.pop(source, [])))
            of_this_rank[source] = _SourceData(self._sums(source), episodes, plays)
        by_source: dict[str, list[_SourceData]] = {}  # of each rank that has the source
        for of_rank in gather_objects(of_this_rank):
            for source, data in of_rank.items():
                by_source.setdefault(source, []).append(data)
        tables = {}
        for source, of_ranks in by_source.items():
            plays = any(data.plays for data in of_ranks)
            episodes = joined_summaries([data.episodes for data in of_ranks])
            table = self._table(source, episodes, plays)
            for name, mean in _means([data.sums for data in of_ranks]).items():
                values = table.values if "/" in name else table.metrics
                values[name] = mean
            tables[source] = table
        return tables

    def _sums(self, source: str) -> dict[str, tuple[float, float]]:
        """Remove the recorded numbers of a source; return the sums of values and counts by name.

        A sum of infinities of both signs is NaN.
        """
        sums = {}
        for name, entries in self._recorded.pop(source, {}).items():
            values, counts = _numbers(entries)
            sums[name] = exact_sum(values), math.fsum(counts)
        return sums

    def discard_evaluation(self) -> None:
        """Discard the episodes and numbers of an evaluation that does not count."""
        self._pending = {name: summaries for name, summaries in self._pending.items() if name == "train"}
        self._recorded = {name: entries for name, entries in self._recorded.items() if name == "train"}

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics of the whole run; equal on all ranks."""
        return {name: epoch.state_dict() for name, epoch in self._epochs.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._epochs = {}
        for name, epoch_state in state.items():
            self._epochs[name] = EpochStatistics()
            self._epochs[name].load_state_dict(epoch_state)

    def rank_state_dict(self) -> dict[str, Any]:
        """Return the training data of this rank that is not yet part of an epoch's statistics.

        A resumed run begins an unfinished evaluation again.
        """
        own = self._recorded.get("train", {}).items()
        pending: dict[str, Any] = {}
        if "train" in self._pending:
            summaries = fetched_summaries(joined_summaries(self._pending["train"]))
            if isinstance(summaries, EpisodeBatch):
                pending["train"] = summaries.to_dict()
            else:
                pending["train"] = [summary.to_dict() for summary in summaries]
        return {
            "recorded": {name: list(_numbers(entries)) for name, entries in own},
            "pending": apply_to_collection(pending, (np.ndarray, np.generic), torch.as_tensor),
        }

    def load_rank_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `rank_state_dict`."""
        recorded = state["recorded"].items()
        self._recorded = {"train": {name: list(zip(*lists, strict=True)) for name, lists in recorded}}
        content = apply_to_collection(state["pending"].get("train"), Tensor, Tensor.numpy)
        self._pending = {}
        if isinstance(content, dict):
            self._pending["train"] = [EpisodeBatch.from_dict(content)]
        elif content is not None:
            self._pending["train"] = [[EpisodeSummary.from_dict(summary) for summary in content]]

    def _table(self, source: str, summaries: Sequence[EpisodeSummary], plays: bool) -> SourceStatistics:
        epoch = self._epochs.setdefault(source, EpochStatistics())
        epoch.add_all(summaries)
        plots = epoch.compute_plots()
        values = dict(epoch.compute()) if plays or epoch.total_episode_count else {}
        return SourceStatistics(values, episode_means(summaries), plots)


def _means(of_ranks: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    """Return the mean of each recorded number over all ranks; without those whose count is 0.

    Args:
        of_ranks: For each rank, name -> sum of values, and of counts.
    """
    values: dict[str, list[float]] = {}
    counts: dict[str, list[float]] = {}
    for sums in of_ranks:
        for name, (value, count) in sums.items():
            values.setdefault(name, []).append(value)
            counts.setdefault(name, []).append(count)
    means: dict[str, float] = {}
    for name in values:
        total = math.fsum(counts[name])
        if total > 0:
            means[name] = exact_sum(values[name]) / total
    return means


def _numbers(recorded: _Recorded) -> tuple[list[float], list[float]]:
    """Return the values and the counts, each in any order, as only their sums matter.

    One transfer fetches all tensors of either.
    """
    return _fetched([value for value, _ in recorded]), _fetched([count for _, count in recorded])


def _fetched(numbers: Sequence[Tensor | float]) -> list[float]:
    """Return numbers in any order."""
    values = [number for number in numbers if not isinstance(number, Tensor)]
    if tensors := [number for number in numbers if isinstance(number, Tensor)]:
        values += torch.stack(tensors).double().tolist()
    return values

"""What an epoch adds up to: numbers that algorithms record and episodes that were played, over all ranks."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary, thin_out
from maze_pl.core.ranks import gather_objects
from maze_pl.events import EpochStatistics, Histogram

Value = float | Histogram

_Recorded = list[tuple[Tensor | float, float]]
"""Values recorded under one name, and of how many things each is the sum: the mean is sum by sum."""


@dataclass
class EpochTable:
    """Statistics of one epoch, equal on all ranks.

    Attributes:
        values: "<Topic>/<event>/<statistic>" -> value.
        metrics: Short names for callbacks, such as "return" and "kpi/<name>".
        plots: Figures that events declare, by names as those of the values.
    """

    values: dict[str, Value]
    metrics: dict[str, float]
    plots: dict[str, Any] = field(default_factory=dict)

    def scalars(self, prefix: str) -> dict[str, float]:
        """The values for loggers, under "<prefix>_<Topic>/..."; of distributions their mean."""
        return {
            f"{prefix}_{name}": value.mean if isinstance(value, Histogram) else float(value)
            for name, value in self.values.items()
        }


def episode_means(summaries: Iterable[EpisodeSummary]) -> dict[str, float]:
    """Means over episodes: "return", and "kpi/<name>" over those that have it."""
    found: dict[str, list[float]] = {}
    for summary in summaries:
        for name, value in {"return": summary.reward, **{f"kpi/{kpi}": v for kpi, v in summary.kpis.items()}}.items():
            found.setdefault(name, []).append(value)
    return {name: math.fsum(values) / len(values) for name, values in found.items()}


class RunStatistics:
    """Collects on each rank what is recorded and played, and brings the ranks together once per epoch."""

    def __init__(self) -> None:
        self._recorded: dict[str, dict[str, _Recorded]] = {}  # by source and name, what was given
        self._pending: dict[str, list[EpisodeSummary]] = {}
        self._epochs: dict[str, EpochStatistics] = {}

    def record(
        self, name: str, value: Tensor | float, step_key: StepKey | None, count: float, source: str = "train"
    ) -> None:
        """Add a number, or a sum over `count` things; tensors stay on their device until the epoch ends.

        The `source` is "train" or a name under which evaluations are logged; a name without topic is for callbacks.
        """
        key = name if step_key is None else f"{name}/substep_{step_key}"
        number = value.detach() if isinstance(value, Tensor) else float(value)
        self._recorded.setdefault(source, {}).setdefault(key, []).append((number, count))

    def add_episodes(self, source: str, summaries: list[EpisodeSummary]) -> None:
        """Add episodes that ended on this rank; `source` is "train" or an evaluator's name."""
        pending = self._pending.setdefault(source, [])
        pending.extend(summaries)
        if any(summary.samples for summary in summaries):
            thin_out(pending)

    def finish_training(self) -> EpochTable:
        """Statistics of all that was recorded and of the training episodes since the last call; a collective call."""
        return self._finish(["train"])["train"]

    def finish_evaluation(self) -> dict[str, EpochTable]:
        """Statistics by evaluator of the evaluation episodes since the last call; a collective call."""
        return self._finish([name for name in dict.fromkeys([*self._pending, *self._recorded]) if name != "train"])

    def _finish(self, sources: list[str]) -> dict[str, EpochTable]:
        own = {source: self._recorded.pop(source, {}).items() for source in sources}
        sums = {source: {name: tuple(map(math.fsum, _numbers(e))) for name, e in own[source]} for source in sources}
        gathered = gather_objects({source: (sums[source], self._pending.pop(source, [])) for source in sources})
        tables = {}
        for source in dict.fromkeys(name for part in gathered for name in part):
            of_ranks = [part[source] for part in gathered if source in part]
            table = tables[source] = self._table(source, [summary for _, own in of_ranks for summary in own])
            for name in dict.fromkeys(name for own, _ in of_ranks for name in own):
                parts = [own[name] for own, _ in of_ranks if name in own]
                count = math.fsum(part[1] for part in parts)
                if count > 0:
                    values = table.values if "/" in name else table.metrics
                    values[name] = math.fsum(part[0] for part in parts) / count
        return tables

    def discard_evaluation(self) -> None:
        """Forget evaluation episodes that do not count."""
        self._pending = {name: summaries for name, summaries in self._pending.items() if name == "train"}
        self._recorded = {name: entries for name, entries in self._recorded.items() if name == "train"}

    def state_dict(self) -> dict[str, Any]:
        """What the whole run has counted; equal on all ranks."""
        return {name: epoch.state_dict() for name, epoch in self._epochs.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue what `state_dict` described."""
        self._epochs = {}
        for name, epoch_state in state.items():
            self._epochs[name] = EpochStatistics()
            self._epochs[name].load_state_dict(epoch_state)

    def rank_state_dict(self) -> dict[str, Any]:
        """What this rank has not handed in yet."""
        own = self._recorded.get("train", {}).items()
        pending = {name: [asdict(summary) for summary in summaries] for name, summaries in self._pending.items()}
        return {
            "recorded": {name: list(_numbers(entries)) for name, entries in own},
            "pending": apply_to_collection(pending, (np.ndarray, np.generic), torch.as_tensor),
        }

    def load_rank_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue what `rank_state_dict` described."""
        recorded = state["recorded"].items()
        self._recorded = {"train": {name: list(zip(*lists, strict=True)) for name, lists in recorded}}
        pending = apply_to_collection(state["pending"], Tensor, Tensor.numpy)
        self._pending = {name: [EpisodeSummary(**summary) for summary in part] for name, part in pending.items()}

    def _table(self, source: str, summaries: list[EpisodeSummary]) -> EpochTable:
        epoch = self._epochs.setdefault(source, EpochStatistics())
        for summary in summaries:
            epoch.add(summary)
        plots = epoch.compute_plots()
        values = dict(epoch.compute()) if epoch.total_episode_count else {}  # none where nothing is ever played
        return EpochTable(values, episode_means(summaries), plots)


def _numbers(recorded: _Recorded) -> tuple[list[float], list[float]]:
    """The values, in any order, and the counts; tensors are fetched with one transfer for all of them."""
    values = [value for value, _ in recorded if not isinstance(value, Tensor)]
    if tensors := [value for value, _ in recorded if isinstance(value, Tensor)]:
        values += torch.stack(tensors).double().tolist()
    return values, [count for _, count in recorded]

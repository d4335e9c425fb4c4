"""Episodes that ended on a device, whose statistics are fetched when they are first needed."""

from __future__ import annotations

import torch
from torch import Tensor

from maze_pl.collect.tensor_statistics import RolloutRecord, TensorStatistics
from maze_pl.core.episode_batch import EpisodeBatch, PendingEpisodes


class TensorEpisodes(PendingEpisodes):
    """The episodes that ended in a rollout of N environments on a device, sorted by environment and episode.

    Nothing is fetched from the device before something is read, usually at the end of an epoch.

    Args:
        record: The rollout.
        statistics: Statistics of the environments.
    """

    def __init__(self, record: RolloutRecord, statistics: TensorStatistics) -> None:
        self._statistics = statistics
        self._fetched: EpisodeBatch | None = None
        statistics.add(record, self._receive)

    def _receive(self, episodes: EpisodeBatch) -> None:
        self._fetched = episodes

    def fetched(self) -> EpisodeBatch:
        """Return the episodes."""
        while self._fetched is None:
            self._statistics.fetch_next()
        return self._fetched


def flags_of_invalid(tensor: Tensor) -> Tensor:
    """Return for each environment whether any of its numbers is NaN or infinite.

    Args:
        tensor: [T, N, ...], floating point.

    Returns:
        [N] bool.
    """
    return torch.isfinite(tensor).transpose(0, 1).flatten(1).all(1).logical_not()

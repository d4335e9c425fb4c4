"""Episodes that ended on a device, whose statistics are fetched when they are first needed."""

from __future__ import annotations

from maze_pl.collect.tensors.tensor_statistics import RolloutRecord, TensorStatistics
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
        self._received: list[EpisodeBatch] = []  # one, once they are fetched
        statistics.add(record, self._received.append)  # which does not keep this object

    def fetched(self) -> EpisodeBatch:
        """Return the episodes."""
        while not self._received:
            self._statistics.fetch_next()
        return self._received[0]

"""Episodes of a CPU that stay pending, as on a GPU."""

from __future__ import annotations

from maze_pl.collect.tensors.tensor_episodes import TensorEpisodes
from maze_pl.core.episode_batch import EpisodeBatch


class LateEpisodes(TensorEpisodes):
    """Episodes that stay pending when the collector asks for them on the CPU."""

    _is_asked = False

    def fetched(self) -> EpisodeBatch:
        """Return the episodes from the second call on."""
        if not self._is_asked:
            self._is_asked = True
            return self  # type: ignore[return-value]
        return super().fetched()

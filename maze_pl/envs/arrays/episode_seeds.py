"""Seeds of the episodes of many environments, derived ahead."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from maze_pl.core.seed_sequences import derive_seeds, words_of
from maze_pl.envs.arrays.pcg64 import Wide, seeded
from maze_pl.envs.arrays.prepared_seeds import PreparedSeeds
from maze_pl.envs.structured_env import Array

_MOST_AHEAD: Final = 16
_MOST_SEEDS: Final = 16_384


class EpisodeSeeds:
    """Seeds of the episodes of N environments, the same as those of a `SequentialVectorEnv`.

    Deriving a few seeds takes as long as deriving a thousand, and so does starting NumPy's
    generators. With few environments, of which few end in a step, this is therefore done for
    several episodes together; the generators only once an environment has asked for them.

    Args:
        seed: Seed of the run.
        index: [N] number of each environment, or zeros if environments have the same seeds.
    """

    def __init__(self, seed: int, index: Array) -> None:
        self._seed = seed
        self._index = index
        n_ahead = max(1, min(_MOST_AHEAD, _MOST_SEEDS // len(index)))
        self._ahead = np.arange(n_ahead)
        self._first = np.full(len(index), -n_ahead)  # episode of the first seed of each environment
        self._next = np.zeros(len(index), np.int64)  # the next episode of each environment, as far as is known
        self._seeds = np.zeros((len(index), n_ahead), np.int64)
        self._generators: Array | None = None  # [4, N, n_ahead] states and increments, upper halves first

    def of(self, which: Array, episodes: Array) -> PreparedSeeds:
        """Return seeds.

        Args:
            which: [n] environments, none of them twice.
            episodes: [n] the next episode of each.

        Returns:
            [n] int64, seeds in [0, 2**31).
        """
        place = episodes - self._first[which]
        if not ((place >= 0) & (place < len(self._ahead))).all():
            self._next[which] = episodes
            self._derive()
            place = episodes - self._first[which]
        self._next[which] = episodes + 1
        return PreparedSeeds.of(self._seeds[which, place], partial(self._generators_of, which, place))

    def _generators_of(self, which: Array, place: Array, seeds: Array) -> tuple[Wide, Wide] | None:
        """Return the generators at places of environments; None if their seeds are other ones by now."""
        if not np.array_equal(self._seeds[which, place], seeds):
            return None
        if self._generators is None:
            self._generators = np.zeros((4, *self._seeds.shape), np.uint64)
            self._start(np.arange(len(self._seeds)))
        state_high, state_low, increment_high, increment_low = self._generators[:, which, place]
        return Wide(state_high, state_low), Wide(increment_high, increment_low)

    def _start(self, rows: Array) -> None:
        """Start the generators of all seeds of some environments."""
        assert self._generators is not None
        state, increment = seeded(*words_of(self._seeds[rows].ravel()))
        self._generators[:, rows] = np.stack([*state, *increment]).reshape(4, len(rows), -1)

    def _derive(self) -> None:
        """Derive seeds for all environments that have used half of theirs."""
        n_ahead = len(self._ahead)
        place = self._next - self._first
        rows = np.flatnonzero((place < 0) | (place >= (n_ahead + 1) // 2))
        self._first[rows] = self._next[rows]
        numbers = self._first[rows, np.newaxis] + self._ahead
        index = np.repeat(self._index[rows], n_ahead)
        self._seeds[rows] = derive_seeds(self._seed, "env", index, numbers.ravel()).reshape(numbers.shape)
        if self._generators is not None:
            self._start(rows)

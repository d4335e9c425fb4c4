"""Streams of raw random numbers: 64 bits, 32 bits and bounded integers of many generators at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from maze_pl.envs.arrays.pcg64 import Wide, Words64, following, following_each, output, product_high
from maze_pl.envs.arrays.prepared_seeds import started_generators
from maze_pl.envs.structured_env import Array

Which = Sequence[int] | Array | slice | None
"""Numbers of the streams to draw from, each at most once, or a slice of them; all if None."""

_MASK = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_1 = np.uint64(1)
_HIGHEST_64 = np.uint64(0xFFFFFFFFFFFFFFFF)


class BitStreams:
    """N generators `PCG64` of NumPy, with the methods that its distributions are made of.

    Args:
        seeds: [N] one seed for each stream; integers of any size, at least 0.
    """

    def __init__(self, seeds: Sequence[int] | Array) -> None:
        self._state, self._increment = started_generators(seeds)
        self.n_streams = len(self._state.low)
        self._has_half = np.zeros(self.n_streams, np.bool_)
        self._half = np.zeros(self.n_streams, np.uint64)

    def seed(self, seeds: Sequence[int] | Array, which: Which = None) -> None:
        """Start streams again from seeds.

        Args:
            seeds: [n] one seed for each of the streams.
            which: The streams.
        """
        rows = self.rows_of(which)
        state, increment = started_generators(seeds)
        n = self.n_streams if rows is None else len(rows)
        if len(state.low) != n:
            raise ValueError(f"{len(state.low)} seeds were given for {n} streams")
        self.set_state(rows, state)
        if rows is None:
            self._increment = increment
            self._has_half = np.zeros(n, np.bool_)
            self._half = np.zeros(n, np.uint64)
            return
        self._increment.high[rows], self._increment.low[rows] = increment
        self._has_half[rows] = False
        self._half[rows] = 0

    def state_dict(self) -> dict[str, Array]:
        """Return the state of all streams, as arrays [N]."""
        return {
            "state_high": self._state.high.copy(),
            "state_low": self._state.low.copy(),
            "increment_high": self._increment.high.copy(),
            "increment_low": self._increment.low.copy(),
            "has_half": self._has_half.copy(),
            "half": self._half.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        arrays = {name: np.array(array) for name, array in state.items()}
        shapes = {array.shape for array in arrays.values()}
        if set(arrays) != set(self.state_dict()) or shapes != {(self.n_streams,)}:
            raise ValueError(f"the state of {self.n_streams} streams cannot be restored from {sorted(state)}, {shapes}")
        self._state = Wide(arrays["state_high"].astype(np.uint64), arrays["state_low"].astype(np.uint64))
        self._increment = Wide(arrays["increment_high"].astype(np.uint64), arrays["increment_low"].astype(np.uint64))
        self._has_half = arrays["has_half"].astype(np.bool_)
        self._half = arrays["half"].astype(np.uint64)

    def generator(self, stream: int) -> np.random.Generator:
        """Return NumPy's generator in the state of a stream."""
        bits = np.random.PCG64(0)
        bits.state = self._numpy_state(stream)
        return np.random.Generator(bits)

    def rows_of(self, which: Which) -> Array | None:
        """Numbers of the chosen streams, None for all."""
        if which is None:
            return None
        if isinstance(which, slice):
            return None if which == slice(None) else np.arange(self.n_streams)[which]
        rows = np.asarray(which)
        if rows.dtype == np.bool_:
            return np.flatnonzero(rows)
        return rows.astype(np.intp)

    def states_of(self, rows: Array | None) -> Wide:
        """Return the state of streams; those of all are not changed in place by `words_64`."""
        return self._at(self._state, rows)

    def copied_states_of(self, rows: Array | None) -> Wide:
        """Return a copy of the state of streams."""
        state = self.states_of(rows)
        return Wide(state.high.copy(), state.low.copy()) if rows is None else state

    def following_states(self, rows: Array | None, n_steps: int) -> Wide:
        """Return the next states [n, n_steps] of streams, without moving them."""
        return following(self._at(self._state, rows), self._at(self._increment, rows), n_steps)

    @staticmethod
    def _at(wide: Wide, rows: Array | None) -> Wide:
        return wide if rows is None else Wide(wide.high[rows], wide.low[rows])

    def set_state(self, rows: Array | None, state: Wide) -> None:
        """Set the state of streams."""
        if rows is None:
            self._state = Wide(state.high, state.low)
        else:
            self._state.high[rows], self._state.low[rows] = state

    def words_64(self, rows: Array | None, count: int) -> Words64:
        """Draw [n, count] numbers of 64 bits."""
        if not count:
            n = self.n_streams if rows is None else len(rows)
            return np.zeros((n, 0), np.uint64)
        states = self.following_states(rows, count)
        self.set_state(rows, Wide(states.high[:, -1].copy(), states.low[:, -1].copy()))
        return output(states)

    def words_64_each(self, rows: Array | None, counts: Array) -> Words64:
        """Draw numbers of 64 bits, `counts` [n] of each stream, one stream after the other; [sum of counts]."""
        state = self._at(self._state, rows)
        states = following_each(state, self._at(self._increment, rows), counts)
        drawing = np.flatnonzero(counts)
        if len(drawing):
            last = counts.cumsum()[drawing] - 1
            streams = drawing if rows is None else rows[drawing]
            self.set_state(streams, Wide(states.high[last], states.low[last]))
        return output(states)

    def words_32(self, rows: Array | None, count: int) -> Words64:
        """Draw [n, count] numbers of 32 bits; each 64-bit number gives two, the lower half first."""
        has_half = self._has_half.copy() if rows is None else self._has_half[rows]
        n_waiting = int(np.count_nonzero(has_half))
        if n_waiting in (0, len(has_half)):
            return self._words_32_alike(rows, count, n_waiting > 0)
        streams = np.arange(self.n_streams) if rows is None else rows
        words = np.empty((len(streams), count), np.uint64)
        words[has_half] = self._words_32_alike(streams[has_half], count, True)
        words[~has_half] = self._words_32_alike(streams[~has_half], count, False)
        return words

    def _words_32_alike(self, rows: Array | None, count: int, has_half: bool) -> Words64:
        """Draw numbers of 32 bits for streams that all have, or all do not have, a half left."""
        if not count:
            return self.words_64(rows, 0)
        n_wide = (count - has_half + 1) // 2
        wide = self.words_64(rows, n_wide)
        words = np.empty((len(wide), has_half + 2 * n_wide), np.uint64)
        if has_half:
            words[:, 0] = self._half if rows is None else self._half[rows]
        words[:, int(has_half) :: 2] = wide & _MASK
        words[:, int(has_half) + 1 :: 2] = wide >> _32
        is_left = words.shape[1] > count
        if rows is None:
            self._has_half = np.full(self.n_streams, is_left)
            self._half = words[:, -1].copy()
        else:
            self._has_half[rows] = is_left
            self._half[rows] = words[:, -1]
        return words[:, :count]

    def bounded_32(self, rows: Array | None, extents: Words64, count: int) -> Words64:
        """Draw [n, count] integers from 0 to extents, [n or 1, count or 1] from 1 to 2**32 - 2."""
        sizes = extents + _1
        before = self._snapshot(rows)
        products = self.words_32(rows, count) * sizes
        left = products & _MASK
        if not (left < sizes).any():
            return products >> _32
        thresholds = (_MASK - extents) % sizes

        def draw(streams: Array, sizes: Words64) -> tuple[Words64, Words64]:
            products = self.words_32(streams, 1)[:, 0] * sizes
            return products >> _32, products & _MASK

        return self._drawn_again(rows, before, products >> _32, left < thresholds, sizes, thresholds, draw)

    def bounded_64(self, rows: Array | None, extents: Words64, count: int) -> Words64:
        """Draw [n, count] integers from 0 to extents, [n, 1] below 2**64 - 1."""
        sizes = extents + _1
        before = self._snapshot(rows)
        words = self.words_64(rows, count)
        left = words * sizes
        drawn = product_high(words, sizes)
        if not (left < sizes).any():
            return drawn
        thresholds = (_HIGHEST_64 - extents) % sizes

        def draw(streams: Array, sizes: Words64) -> tuple[Words64, Words64]:
            words = self.words_64(streams, 1)[:, 0]
            return product_high(words, sizes), words * sizes

        return self._drawn_again(rows, before, drawn, left < thresholds, sizes, thresholds, draw)

    def interval(self, streams: Array, last: int) -> Array:
        """Draw one integer from 0 to `last` for each stream: as many bits as it has, until they fit."""
        mask = np.uint64(2 ** last.bit_length() - 1)
        drawn = np.empty(len(streams), np.int64)
        pending = np.arange(len(streams))
        while len(pending):
            numbers = self.words_32(streams[pending], 1)[:, 0] & mask
            drawn[pending] = numbers
            pending = pending[numbers > last]
        return drawn

    def _drawn_again(
        self,
        rows: Array | None,
        before: tuple[Wide, Array, Words64],
        drawn: Words64,
        rejected: Array,
        sizes: Words64,
        thresholds: Words64,
        draw: Callable[[Array, Words64], tuple[Words64, Words64]],
    ) -> Words64:
        """Repeat the draws of streams with a rejected number one after the other.

        A rejected number shifts all later ones of its stream, and rejections are rare.

        Args:
            rows: The streams.
            before: Their state before the first draw.
            drawn: [n, count] numbers drawn so far; changed in place.
            rejected: [n, count] numbers to draw again.
            sizes: Size of the range of each number, broadcast.
            thresholds: Remainders below it are rejected, broadcast.
            draw: Draws one number for each of some streams: numbers and remainders.
        """
        affected = np.flatnonzero(rejected.any(axis=1))
        if not len(affected):
            return drawn
        streams = affected if rows is None else rows[affected]
        state, has_half, half = before
        self.set_state(streams, Wide(state.high[affected], state.low[affected]))
        self._has_half[streams] = has_half[affected]
        self._half[streams] = half[affected]
        sizes = np.broadcast_to(sizes, drawn.shape)[affected]
        thresholds = np.broadcast_to(thresholds, drawn.shape)[affected]
        for column in range(drawn.shape[1]):
            pending = np.arange(len(affected))
            while len(pending):
                numbers, left = draw(streams[pending], sizes[pending, column])
                drawn[affected[pending], column] = numbers
                pending = pending[left < thresholds[pending, column]]
        return drawn

    def _snapshot(self, rows: Array | None) -> tuple[Wide, Array, Words64]:
        """State of streams, not changed by later draws."""
        if rows is None:
            return Wide(self._state.high.copy(), self._state.low.copy()), self._has_half.copy(), self._half.copy()
        return self._at(self._state, rows), self._has_half[rows], self._half[rows]

    def by_numpy(self, streams: Array, draw: Callable[[np.random.Generator, int], Any]) -> list[Any]:
        """Let NumPy draw for each of a few streams.

        Args:
            streams: [n] the streams.
            draw: Draws from a generator, for the stream with this place among the streams.

        Returns:
            The n results of `draw`.
        """
        bits = np.random.PCG64(0)
        generator = np.random.Generator(bits)
        results = []
        for place, stream in enumerate(streams.tolist()):
            bits.state = self._numpy_state(stream)
            results.append(draw(generator, place))
            number = bits.state["state"]["state"]
            self._state.high[stream] = number >> 64
            self._state.low[stream] = number % 2**64
        return results

    def _numpy_state(self, stream: int) -> Any:
        """State of a stream in the form of NumPy's `PCG64`."""
        state = int(self._state.high[stream]) << 64 | int(self._state.low[stream])
        increment = int(self._increment.high[stream]) << 64 | int(self._increment.low[stream])
        return {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": int(self._has_half[stream]),
            "uinteger": int(self._half[stream]),
        }

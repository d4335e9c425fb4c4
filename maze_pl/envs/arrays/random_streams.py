"""Random numbers for many environments at once, equal to NumPy's of each environment alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, prod
from typing import Any

import numpy as np

from maze_pl.envs.arrays.bit_streams import BitStreams, Which
from maze_pl.envs.arrays.pcg64 import Wide, Words64, output
from maze_pl.envs.arrays.ziggurat import exponential_of, normal_of
from maze_pl.envs.structured_env import Array

Size = int | tuple[int, ...] | None

_HIGHEST_32 = np.uint64(0xFFFFFFFF)
_HIGHEST_64 = np.uint64(0xFFFFFFFFFFFFFFFF)
_POISSON_BLOCK = 16


class RandomStreams:
    """N independent random generators in arrays, bit for bit those of `np.random.default_rng(seed)`.

    A method draws the same numbers for stream n as the method of `np.random.Generator` with this
    name, whatever was drawn before and for whichever streams: NumPy's seeding (`SeedSequence`),
    generator (`PCG64`) and distributions are computed with arrays. Gymnasium's `np_random` of a seed
    is the same generator. Sources: `maze_pl.envs.arrays.pcg64`; bounded integers by D. Lemire 2019,
    arXiv:1805.10941; normal and exponential numbers by the ziggurat of G. Marsaglia and W. W. Tsang
    2000, doi:10.18637/jss.v005.i08; Poisson numbers by W. Hoermann 1993,
    doi:10.1016/0167-6687(93)90997-4.

    Results have the shape `[n, *size]`, for n streams; `size=None` gives `[n]`.

    Args:
        seeds: [N] one seed for each stream; integers of any size, at least 0.

    Example:
        >>> streams = RandomStreams([5, 2**70])
        >>> streams.integers(10, size=3).tolist()
        [[6, 8, 0], [6, 5, 7]]
        >>> np.random.default_rng(2**70).integers(10, size=3).tolist()
        [6, 5, 7]
    """

    def __init__(self, seeds: Sequence[int] | Array) -> None:
        self._bits = BitStreams(seeds)
        self.n_streams = self._bits.n_streams

    def seed(self, seeds: Sequence[int] | Array, which: Which = None) -> None:
        """Start streams again from seeds.

        Args:
            seeds: [n] one seed for each of the streams. Those that `ArrayEnv.reset` gets take less
                time, see `maze_pl.envs.arrays.prepared_seeds`.
            which: The streams.
        """
        self._bits.seed(seeds, which)

    def state_dict(self) -> dict[str, Array]:
        """Return the state of all streams, as arrays [N]."""
        return self._bits.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self._bits.load_state_dict(state)

    def generator(self, stream: int) -> np.random.Generator:
        """Return NumPy's generator in the state of a stream."""
        return self._bits.generator(stream)

    # ------------------------------------------------------------------------------ distributions

    def random(self, size: Size = None, which: Which = None) -> Array:
        """Draw float64 uniform in [0, 1)."""
        rows = self._bits.rows_of(which)
        return _shaped(_doubles(self._bits.words_64(rows, _number(size))), size)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Size = None, which: Which = None) -> Array:
        """Draw float64 uniform in [low, high).

        Args:
            low: Lower bound, a number or [n] one for each stream.
            high: Upper bound, in the same form.
            size: Shape of the numbers of one stream.
            which: The streams.
        """
        low, extent = _columns(low), _columns(np.subtract(high, low, dtype=np.float64))
        if not np.isfinite(extent).all():
            raise OverflowError(f"high - low must be finite; got low={low} and high={high}")
        rows = self._bits.rows_of(which)
        return _shaped(low + extent * _doubles(self._bits.words_64(rows, _number(size))), size)

    def integers(
        self, low: Any, high: Any = None, size: Size = None, endpoint: bool = False, which: Which = None
    ) -> Array:
        """Draw int64 uniform from low to high - 1, or from 0 to low - 1 without `high`.

        Args:
            low: Lowest number, a number or [n] one for each stream.
            high: End of the range, in the same form.
            size: Shape of the numbers of one stream.
            endpoint: Whether `high` is drawn as well.
            which: The streams.

        Raises:
            ValueError: A range is empty.
        """
        rows = self._bits.rows_of(which)
        n = self.n_streams if rows is None else len(rows)
        first = np.asarray(0 if high is None else low, np.int64)
        last = np.subtract(low if high is None else high, not endpoint, dtype=np.int64)
        if (last < first).any():
            raise ValueError(f"integers needs low < high (or low <= high with endpoint=True); got {low=} and {high=}")
        first = np.broadcast_to(first.astype(np.uint64), (n,))
        extent = np.broadcast_to(last.astype(np.uint64) - first, (n,))
        count = _number(size)
        drawn = np.zeros((n, count), np.uint64)
        kinds: list[tuple[Array, Callable[[Any, Any, int], Any]]] = [
            ((extent > 0) & (extent < _HIGHEST_32), self._bits.bounded_32),
            (extent == _HIGHEST_32, lambda rows, _, count: self._bits.words_32(rows, count)),
            ((extent > _HIGHEST_32) & (extent < _HIGHEST_64), self._bits.bounded_64),
            (extent == _HIGHEST_64, lambda rows, _, count: self._bits.words_64(rows, count)),
        ]
        for chosen, draw in kinds:
            if chosen.all():
                drawn = draw(rows, extent[:, np.newaxis], count)
            elif chosen.any():
                places = np.flatnonzero(chosen)
                streams = places if rows is None else rows[places]
                drawn[places] = draw(streams, extent[places, np.newaxis], count)
        return _shaped((drawn + first[:, np.newaxis]).view(np.int64), size)

    def integers_within(self, lows: Array, highs: Array, n_draws: int, which: Which = None) -> Array:
        """Draw int64 `[n, n_draws, L]`, the last axis uniform from `lows` [L] to `highs` [L] - 1.

        Args:
            lows: [L] lowest numbers.
            highs: [L] ends of the ranges.
            n_draws: Number of draws of all L numbers.
            which: The streams.

        Raises:
            ValueError: A range is empty, or has more than 2**32 - 1 numbers.
        """
        extents = np.subtract(highs, lows) - 1
        if (extents < 0).any() or (extents >= int(_HIGHEST_32)).any():
            raise ValueError(f"integers_within needs 1 to 2**32 - 1 numbers from {lows=} to {highs=}")
        rows = self._bits.rows_of(which)
        n = self.n_streams if rows is None else len(rows)
        drawn = np.tile(lows.astype(np.int64), (n, n_draws, 1))
        several = np.flatnonzero(extents)  # of a single number, NumPy draws nothing
        if len(several):
            repeated = np.tile(extents[several].astype(np.uint64), n_draws)[np.newaxis]
            numbers = self._bits.bounded_32(rows, repeated, repeated.shape[1]).astype(np.int64)
            drawn[:, :, several] += numbers.reshape(n, n_draws, len(several))
        return drawn

    def choice(self, n: int, size: Size = None, p: Any = None, which: Which = None) -> Array:
        """Draw int64 from 0 to n - 1, with replacement.

        Args:
            n: Number of choices.
            size: Shape of the numbers of one stream.
            p: [n] probabilities; equal ones if None.
            which: The streams.
        """
        if p is None:
            return self.integers(n, size=size, which=which)
        probabilities = np.asarray(p, np.float64)
        if probabilities.shape != (n,) or (probabilities < 0).any() or abs(probabilities.sum() - 1) > 1e-8:
            raise ValueError(f"p must hold {n} probabilities that sum to 1; got {p}")
        cumulative = probabilities.cumsum()
        cumulative /= cumulative[-1]
        return cumulative.searchsorted(self.random(size, which), side="right").astype(np.int64)

    def shuffle(self, array: Array, which: Which = None) -> None:
        """Shuffle the items of each stream in place.

        Args:
            array: [n, L, ...] the L items of each of n streams.
            which: The streams.
        """
        rows = self._bits.rows_of(which)
        n, length = array.shape[:2]
        expected = self.n_streams if rows is None else len(rows)
        if n != expected:
            raise ValueError(f"shuffle got items of {n} streams for {expected}")
        streams = np.arange(n)
        for last in range(length - 1, 0, -1):
            partner = self._bits.interval(streams if rows is None else rows, last)
            moved = array[streams, partner]
            array[streams, partner] = array[:, last]
            array[:, last] = moved

    def permutation(self, length: int, which: Which = None) -> Array:
        """Draw permutations of 0 to length - 1, [n, length] int64."""
        rows = self._bits.rows_of(which)
        n = self.n_streams if rows is None else len(rows)
        items = np.tile(np.arange(length, dtype=np.int64), (n, 1))
        self.shuffle(items, which)
        return items

    def standard_normal(self, size: Size = None, which: Which = None) -> Array:
        """Draw float64 of the standard normal distribution."""
        count = _number(size)
        return _shaped(self._ziggurat(self._bits.rows_of(which), count, normal_of, "standard_normal"), size)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Size = None, which: Which = None) -> Array:
        """Draw float64 of normal distributions; `loc` and `scale` are numbers or [n]."""
        count = _number(size)
        drawn = self._ziggurat(self._bits.rows_of(which), count, normal_of, "standard_normal")
        return _shaped(_columns(loc) + _columns(scale) * drawn, size)

    def exponential(self, scale: Any = 1.0, size: Size = None, which: Which = None) -> Array:
        """Draw float64 of exponential distributions; `scale` is a number or [n]."""
        count = _number(size)
        drawn = self._ziggurat(self._bits.rows_of(which), count, exponential_of, "standard_exponential")
        return _shaped(_columns(scale) * drawn, size)

    def random_each(self, counts: Array, which: Which = None) -> Array:
        """Draw float64 uniform in [0, 1), a separate count from each stream.

        Args:
            counts: [n] int64, how many numbers each stream draws.
            which: The streams.

        Returns:
            [sum of counts] the numbers, one stream after the other.
        """
        return _doubles(self._bits.words_64_each(self._bits.rows_of(which), counts))

    def standard_normal_each(self, counts: Array, which: Which = None) -> Array:
        """Draw float64 of the standard normal distribution, a separate count from each stream.

        Args:
            counts: [n] int64, how many numbers each stream draws.
            which: The streams.

        Returns:
            [sum of counts] the numbers, one stream after the other.
        """
        rows = self._bits.rows_of(which)
        before = self._bits.copied_states_of(rows)
        drawn, is_inside = normal_of(self._bits.words_64_each(rows, counts))
        if is_inside.all():
            return drawn
        owners = np.repeat(np.arange(len(counts)), counts)
        outside = np.unique(owners[~is_inside])
        streams = outside if rows is None else rows[outside]
        self._bits.set_state(streams, Wide(before.high[outside], before.low[outside]))
        sizes = counts[outside].tolist()
        parts = self._bits.by_numpy(streams, lambda generator, place: generator.standard_normal(sizes[place]))
        is_outside = np.zeros(len(counts), np.bool_)
        is_outside[outside] = True
        drawn[is_outside[owners]] = np.concatenate(parts)
        return drawn

    def poisson(self, lam: float | Array = 1.0, which: Which = None) -> Array:
        """Draw one int64 of a Poisson distribution from each stream.

        Args:
            lam: Mean of the distribution, a number or [n] one for each stream.
            which: The streams.
        """
        given, place = np.unique(np.atleast_1d(np.asarray(lam, np.float64)), return_inverse=True)
        if not (np.isfinite(given).all() and (given >= 0).all()):
            raise ValueError(f"{lam=} must be finite and at least 0")
        rows = self._bits.rows_of(which)
        streams = np.arange(self.n_streams) if rows is None else rows
        result = np.zeros(len(streams), np.int64)
        means = np.broadcast_to(given[place], result.shape)
        large = np.flatnonzero(means >= 10)
        if len(large):
            of_large = means[large].tolist()
            result[large] = self._bits.by_numpy(
                streams[large], lambda generator, place: generator.poisson(of_large[place])
            )
        bounds = np.broadcast_to(np.array([exp(-mean) for mean in given.tolist()])[place], result.shape)
        small = np.flatnonzero((means > 0) & (means < 10))
        result[small] = self._poisson_of_small_means(streams[small], bounds[small])
        return result

    def _poisson_of_small_means(self, streams: Array, bounds: Array) -> Array:
        """Count the uniform numbers [n] whose product is above exp(-mean), `bounds` [n]."""
        result = np.zeros(len(streams), np.int64)
        product = np.ones(len(streams))
        running = np.arange(len(streams))
        while len(running):
            chosen = streams[running]
            states = self._bits.following_states(chosen, _POISSON_BLOCK)
            numbers = _doubles(output(states))
            numbers[:, 0] *= product[running]
            products = np.multiply.accumulate(numbers, axis=1)
            ends = products <= bounds[running, np.newaxis]
            is_over = ends.any(axis=1)
            n_above = np.where(is_over, ends.argmax(axis=1), _POISSON_BLOCK)
            result[running] += n_above
            n_drawn = np.minimum(n_above, _POISSON_BLOCK - 1)
            lines = np.arange(len(running))
            self._bits.set_state(chosen, Wide(states.high[lines, n_drawn], states.low[lines, n_drawn]))
            product[running] = products[:, -1]
            running = running[~is_over]
        return result

    def _ziggurat(self, rows: Array | None, count: int, shape: Callable[[Any], Any], name: str) -> Array:
        """Draw [n, count] numbers by a ziggurat; the few that do not lie well inside it, by NumPy."""
        before = self._bits.states_of(rows)
        drawn, is_inside = shape(self._bits.words_64(rows, count))
        outside = np.flatnonzero(~is_inside.all(axis=1))
        if len(outside):
            streams = outside if rows is None else rows[outside]
            self._bits.set_state(streams, Wide(before.high[outside], before.low[outside]))
            drawn[outside] = self._bits.by_numpy(streams, lambda generator, _: getattr(generator, name)(count))
        return drawn  # type: ignore[no-any-return]


def _number(size: Size) -> int:
    """Number of values of a size."""
    if size is None:
        return 1
    return int(size) if isinstance(size, int | np.integer) else prod(size)


def _shaped(drawn: Array, size: Size) -> Array:
    """Bring [n, count] numbers to the shape `[n, *size]`."""
    if size is None:
        return drawn.reshape(len(drawn))
    if isinstance(size, int | np.integer):
        return drawn.reshape(len(drawn), size)
    return drawn.reshape(len(drawn), *size)


def _columns(values: Any) -> Array:
    """Bring a number, or one number for each stream, to a shape that broadcasts with [n, count]."""
    array = np.asarray(values, np.float64)
    return array[:, np.newaxis] if array.ndim else array


def _doubles(words: Words64) -> Array:
    """Turn [n, count] numbers of 64 bits into float64 uniform in [0, 1)."""
    return (words >> np.uint64(11)) * (1.0 / 9007199254740992.0)

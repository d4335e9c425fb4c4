"""NumPy's `SeedSequence` for many seeds at once, in arrays.

The hash is NumPy's own (O'Neill's `seed_seq_fe`, https://www.pcg-random.org/posts/developing-a-seed_seq-alternative.html),
which NumPy promises to keep. Everything is computed in uint32, whose products wrap around.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

Words = np.ndarray[Any, np.dtype[np.uint32]]

_POOL_SIZE = 4
_INIT_A = 0x43B0D7E5
_MULT_A = 0x931E8875
_INIT_B = 0x8B51F9DD
_MULT_B = 0x58F38DED
_MIX_LEFT = np.uint32(0xCA01F9DD)
_MIX_RIGHT = np.uint32(0x4973F715)
_HALF = np.uint32(16)
_LARGEST = 2**63 - 1


def words_of(seeds: Sequence[int] | np.ndarray[Any, Any]) -> tuple[Words, np.ndarray[Any, Any]]:
    """Split seeds into 32-bit words, the lowest first.

    Args:
        seeds: [N] integers of any size, at least 0.

    Returns:
        Words [N, W], filled up with zeros, and the number of words of each seed [N].

    Raises:
        ValueError: A seed is negative.
        TypeError: A seed is not an integer.
    """
    array = np.asarray(seeds)
    if array.dtype.kind in "iu":
        if array.size and array.min() < 0:
            raise ValueError(f"seeds must be at least 0; got {array.min()}")
        wide = array.astype(np.uint64)
        words = np.stack([wide & np.uint64(0xFFFFFFFF), wide >> np.uint64(32)], axis=1)
        return words.astype(np.uint32), np.where(words[:, 1] > 0, 2, 1)
    numbers = list(seeds)
    wrong = [seed for seed in numbers if not isinstance(seed, int | np.integer)]
    if wrong:
        raise TypeError(f"seeds must be integers; got {wrong[0]!r} of type {type(wrong[0]).__name__}")
    integers = [int(seed) for seed in numbers]
    if integers and min(integers) < 0:
        raise ValueError(f"seeds must be at least 0; got {min(integers)}")
    counts = [max(1, -(-seed.bit_length() // 32)) for seed in integers]
    width = max(counts, default=1)
    raw = b"".join(seed.to_bytes(4 * width, "little") for seed in integers)
    return np.frombuffer(raw, "<u4").astype(np.uint32).reshape(-1, width), np.array(counts, np.int64)


def pools_of(words: Words, counts: np.ndarray[Any, Any] | None = None) -> Words:
    """Hash the entropy of N seed sequences into their pools.

    Args:
        words: [N, W] entropy.
        counts: [N] number of words that each entropy has; all W if None.

    Returns:
        Pools [N, 4].
    """
    n, width = words.shape
    xors, factors = _constants(_INIT_A, _MULT_A, _POOL_SIZE * max(_POOL_SIZE, width))
    pool = np.zeros((_POOL_SIZE, n), np.uint32)  # an absent word counts as 0
    pool[:width] = words.T[:_POOL_SIZE]
    pool = _hashed(pool, xors[:_POOL_SIZE], factors[:_POOL_SIZE])
    begin = _POOL_SIZE  # of the constants that come next
    for source in range(_POOL_SIZE):
        others = [place for place in range(_POOL_SIZE) if place != source]
        end = begin + len(others)
        pool[others] = _mixed(pool[others], _hashed(pool[source], xors[begin:end], factors[begin:end]))
        begin = end
    for place in range(_POOL_SIZE, width):
        end = begin + _POOL_SIZE
        mixed = _mixed(pool, _hashed(words[:, place], xors[begin:end], factors[begin:end]))
        pool = mixed if counts is None else np.where(counts > place, mixed, pool)
        begin = end
    return pool.T


def states_of_pools(pools: Words, n_words: int) -> Words:
    """Generate the state of N seed sequences.

    Args:
        pools: [N, 4], see `pools_of`.
        n_words: Number of 32-bit words to generate.

    Returns:
        State [N, n_words], as `SeedSequence.generate_state` returns it.
    """
    xors, factors = _constants(_INIT_B, _MULT_B, n_words)
    return _hashed(pools.T[np.arange(n_words) % _POOL_SIZE], xors, factors).T


def derive_seeds(*path: int | str | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Derive a seed for each of N paths; equal to `derive_seed` of each.

    Args:
        path: Numbers and names from the general to the specific; arrays [N] of integers from 0 to
            2**63 - 1 where the paths differ.

    Returns:
        [N] int64, seeds in [0, 2**31).

    Raises:
        ValueError: No part is an array, or a number in an array is out of range.

    Example:
        >>> from maze_pl.core.seeding import derive_seed
        >>> derive_seeds(1, "env", np.arange(2), 7).tolist() == [derive_seed(1, "env", n, 7) for n in range(2)]
        True
    """
    arrays = [part for part in path if isinstance(part, np.ndarray)]
    if not arrays:
        raise ValueError("derive_seeds needs an array in its path; derive_seed derives a single seed")
    for array in arrays:
        if array.dtype.kind not in "iu" or (array.size and not 0 <= array.min() <= array.max() <= _LARGEST):
            raise ValueError(f"arrays in a path must hold integers from 0 to 2**63 - 1; got {array}")
    (size,) = np.broadcast_shapes(*(array.shape for array in arrays))
    is_long = np.array([np.broadcast_to(array > 0xFFFFFFFF, size) for array in arrays])  # [number of arrays, N]
    if not is_long.any():
        return _seeds_of(path)
    seeds = np.zeros(size, np.int64)
    for pattern in np.unique(is_long, axis=1).T:  # paths have equally many words where the same numbers are long
        rows = np.flatnonzero((is_long == pattern[:, np.newaxis]).all(axis=0))
        chosen = [np.broadcast_to(part, size)[rows] if isinstance(part, np.ndarray) else part for part in path]
        seeds[rows] = _seeds_of(chosen)
    return seeds


def _seeds_of(path: Sequence[int | str | np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Derive seeds; in each array of the path, all or no numbers are above 2**32 - 1."""
    columns: list[Any] = [zlib.crc32(part.encode()) if isinstance(part, str) else part & 0xFFFFFFFF for part in path]
    for part in path:
        if not isinstance(part, str) and np.any(np.asarray(part) > 0xFFFFFFFF):
            columns.append(part >> 32 & 0xFFFFFFFF)
    words = np.stack(np.broadcast_arrays(*columns), axis=-1).astype(np.uint32)
    return (states_of_pools(pools_of(words), 1)[:, 0] >> np.uint32(1)).astype(np.int64)


@lru_cache(maxsize=16)
def _constants(initial: int, factor: int, n: int) -> tuple[Words, Words]:
    """Return what n uses of the hash have words combined with by xor and multiplied by, [n, 1] each.

    Args:
        initial: The first number.
        factor: Factor by which it changes with each use.
        n: Number of uses.
    """
    numbers = [initial]
    for _ in range(n):
        numbers.append(numbers[-1] * factor & 0xFFFFFFFF)
    column = np.array(numbers, np.uint32)[:, np.newaxis]
    return column[:-1], column[1:]


def _hashed(words: Words, xors: Words, factors: Words) -> Words:
    """Hash words [N] or [n, N] with n constants each, [n, N]."""
    hashed: Words = (words ^ xors) * factors
    return hashed ^ (hashed >> _HALF)


def _mixed(left: Words, right: Words) -> Words:
    """Mix two arrays of words into one."""
    mixed: Words = _MIX_LEFT * left - _MIX_RIGHT * right
    return mixed ^ (mixed >> _HALF)

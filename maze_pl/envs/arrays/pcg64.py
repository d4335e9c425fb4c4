"""The generator PCG64 for many streams at once: 128-bit arithmetic in pairs of uint64 arrays.

    state_{t+1} = (MULTIPLIER * state_t + increment) mod 2**128,   output_t = XSL-RR(state_t)

The state after k steps follows in one multiplication, as

    state_{t+k} = state_t + C_k * (state_{t+1} - state_t),   C_k = sum over i < k of MULTIPLIER**i

M. E. O'Neill 2014, PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for
Random Number Generation, Harvey Mudd College, HMC-CS-2014-0905.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from maze_pl.core.seed_sequences import pools_of, states_of_pools

Words64 = np.ndarray[Any, np.dtype[np.uint64]]

MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_MASK = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_58 = np.uint64(58)
_63 = np.uint64(63)
_64 = np.uint64(64)
_1 = np.uint64(1)


class Wide(NamedTuple):
    """Numbers of 128 bits.

    Attributes:
        high: Upper 64 bits.
        low: Lower 64 bits, of the same shape.
    """

    high: Words64
    low: Words64


def product_high(left: Words64, right: Words64) -> Words64:
    """Return the upper 64 bits of the products of 64-bit numbers; the arguments are broadcast."""
    left_low, left_high = left & _MASK, left >> _32
    right_low, right_high = right & _MASK, right >> _32
    middle = left_high * right_low
    middle += (left_low * right_low) >> _32
    other = left_low * right_high
    other += middle & _MASK
    result: Words64 = left_high * right_high
    result += middle >> _32
    result += other >> _32
    return result


def product(left: Wide, right: Wide) -> Wide:
    """Multiply modulo 2**128; the arguments are broadcast."""
    high = product_high(left.low, right.low)
    high += left.high * right.low
    high += left.low * right.high
    return Wide(high, left.low * right.low)


def total(left: Wide, right: Wide) -> Wide:
    """Add modulo 2**128; the arguments are broadcast."""
    low = left.low + right.low
    high = left.high + right.high
    high += low < right.low
    return Wide(high, low)


def following(state: Wide, increment: Wide, n_steps: int) -> Wide:
    """Return the next states of N streams.

    Args:
        state: [N] the current state.
        increment: [N] increment of each stream.
        n_steps: Number of states.

    Returns:
        [N, n_steps] the state after 1, 2, ... steps.
    """
    if n_steps == 1:
        state = total(product(_wide(MULTIPLIER), state), increment)
        return Wide(state.high[:, np.newaxis], state.low[:, np.newaxis])
    difference = total(product(_wide(MULTIPLIER - 1), state), increment)
    columns = Wide(difference.high[:, np.newaxis], difference.low[:, np.newaxis])
    return total(product(_coefficients(n_steps), columns), Wide(state.high[:, np.newaxis], state.low[:, np.newaxis]))


def following_each(state: Wide, increment: Wide, counts: Any) -> Wide:
    """Return the next states of N streams, some numbers of each.

    Args:
        state: [N] the current state.
        increment: [N] increment of each stream.
        counts: [N] int64, number of states of each stream.

    Returns:
        [sum of counts] the states after 1, 2, ... steps, one stream after the other.
    """
    difference = total(product(_wide(MULTIPLIER - 1), state), increment)
    streams = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(streams)) - np.repeat(counts.cumsum() - counts, counts)
    n_coefficients = 1 << int(counts.max(initial=1) - 1).bit_length()  # few sizes, so that they are found again
    coefficients = _coefficients(n_coefficients)
    factors = Wide(coefficients.high[0, places], coefficients.low[0, places])
    moved = product(factors, Wide(difference.high[streams], difference.low[streams]))
    return total(moved, Wide(state.high[streams], state.low[streams]))


def output(state: Wide) -> Words64:
    """Return the 64-bit numbers that states stand for (XSL-RR)."""
    folded = state.high ^ state.low
    rotation = state.high >> _58
    result: Words64 = folded >> rotation
    result |= folded << ((_64 - rotation) & _63)
    return result


def seeded(words: Any, counts: Any) -> tuple[Wide, Wide]:
    """Return state and increment [N] of the generators that NumPy seeds with these numbers.

    Args:
        words: [N, W] seeds; see `maze_pl.core.seed_sequences.words_of`.
        counts: [N] number of words of each seed.
    """
    halves = states_of_pools(pools_of(words, counts), 8).astype(np.uint64)
    drawn = halves[:, ::2] | halves[:, 1::2] << _32
    seed = Wide(drawn[:, 0], drawn[:, 1])
    increment = Wide(drawn[:, 2] << _1 | drawn[:, 3] >> _63, drawn[:, 3] << _1 | _1)
    state = total(product(_wide(MULTIPLIER), total(increment, seed)), increment)
    return state, increment


@lru_cache(maxsize=64)
def _coefficients(n_steps: int) -> Wide:
    """Return C_1, C_2, ... [1, n_steps]."""
    numbers = [1]
    for _ in range(n_steps - 1):
        numbers.append((numbers[-1] * MULTIPLIER + 1) % 2**128)
    high = np.array([[number >> 64 for number in numbers]], np.uint64)
    return Wide(high, np.array([[number % 2**64 for number in numbers]], np.uint64))


@lru_cache(maxsize=4)
def _wide(number: int) -> Wide:
    """Return a number as arrays [1], whose products wrap around without a warning."""
    return Wide(np.array([number >> 64], np.uint64), np.array([number % 2**64], np.uint64))

"""NumPy's normal and exponential numbers for many streams, as far as they lie well inside the ziggurat."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from maze_pl.envs.arrays.pcg64 import MULTIPLIER, Words64
from maze_pl.envs.structured_env import Array


def normal_of(words: Words64) -> tuple[Array, Array]:
    """Turn numbers of 64 bits into normal numbers; also return a mask of the certainly exact ones."""
    layer = (words & np.uint64(0xFF)).astype(np.intp)
    place = (words >> np.uint64(9)) & np.uint64(0x000FFFFFFFFFFFFF)
    widths, insides = _layers("standard_normal", 9, 52)
    drawn = place * widths[layer]
    is_negative = (words >> np.uint64(8)) & np.uint64(1) == 1
    return np.where(is_negative, -drawn, drawn), place < insides[layer]


def exponential_of(words: Words64) -> tuple[Array, Array]:
    """Turn numbers of 64 bits into exponential numbers; also return a mask of the certainly exact ones."""
    layer = ((words >> np.uint64(3)) & np.uint64(0xFF)).astype(np.intp)
    place = words >> np.uint64(11)
    widths, insides = _layers("standard_exponential", 11, 53)
    return place * widths[layer], place < insides[layer]


@lru_cache(maxsize=2)
def _layers(name: str, shift: int, n_bits: int) -> tuple[Array, Array]:
    """Return the 256 layers of NumPy's ziggurat, read from what its generator draws.

    A place in a layer is an integer below 2**n_bits. It is inside the ziggurat for certain if it is
    less than the width of the layer above.

    Args:
        name: Method of `np.random.Generator`.
        shift: Position of the place in a 64-bit number.
        n_bits: Number of bits of the place.

    Returns:
        Width of one place in each layer, and the number of places that are certainly inside.
    """
    bits = np.random.PCG64(0)
    generator = np.random.Generator(bits)
    inverse = pow(MULTIPLIER, -1, 2**128)
    place = 2**20
    widths = np.empty(256)
    for layer in range(256):
        word = place << shift | layer << (shift - 8 if name == "standard_exponential" else 0)
        state: Any = {"state": (word - 1) * inverse % 2**128, "inc": 1}  # so that `word` comes next
        bits.state = {"bit_generator": "PCG64", "state": state, "has_uint32": 0, "uinteger": 0}
        widths[layer] = abs(getattr(generator, name)()) / place
    insides = np.empty(256)
    insides[0] = widths[255] / widths[0]
    insides[1] = 0.0
    insides[2:] = widths[1:-1] / widths[2:]
    return widths, np.floor(insides * (1 - 1e-9) * 2.0**n_bits).astype(np.uint64)

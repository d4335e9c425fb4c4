"""Random numbers of many episodes as functions of their seeds, equal on all devices.

A number is the hash of a seed and a counter, so that no state has to be kept and any numbers can be
computed at any time. The hash is SplitMix64: G. L. Steele, D. Lea and C. H. Flood 2014, Fast
splittable pseudorandom number generators, doi:10.1145/2714064.2660195.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

_INCREMENT: Final = 0x9E3779B97F4A7C15 - 2**64
_FIRST_FACTOR: Final = 0xBF58476D1CE4E5B9 - 2**64
_SECOND_FACTOR: Final = 0x94D049BB133111EB - 2**64
_BITS: Final = 53  # of a float64


def hashed(numbers: Tensor) -> Tensor:
    """Return an int64 hash of each number.

    Args:
        numbers: [...] int64.
    """
    mixed = numbers + _INCREMENT
    mixed = (mixed ^ _shifted(mixed, 30)) * _FIRST_FACTOR
    mixed = (mixed ^ _shifted(mixed, 27)) * _SECOND_FACTOR
    return mixed ^ _shifted(mixed, 31)


def _shifted(numbers: Tensor, n_bits: int) -> Tensor:
    """Shift 64 bits to the right, filling up with zeros."""
    return (numbers >> n_bits) & ((1 << (64 - n_bits)) - 1)


def environment_seeds(seed: int, env_index: Tensor) -> Tensor:
    """Return a number for each environment from which `episode_seeds` follow.

    Args:
        seed: Seed of the run.
        env_index: [N] int64, numbers of the environments.

    Returns:
        [N] int64.
    """
    return hashed(hashed(torch.full_like(env_index, seed)) + env_index)


def episode_seeds(environment: Tensor, episode: Tensor) -> Tensor:
    """Return the seeds of episodes.

    Args:
        environment: [N] int64, the result of `environment_seeds`.
        episode: [N] int64, numbers of the episodes.

    Returns:
        [N] int64, not negative.
    """
    return hashed(environment + episode) & (2**63 - 1)


def uniform(seeds: Tensor, n_numbers: int, first: int | Tensor = 0) -> Tensor:
    """Return uniform random numbers in [0, 1) for each seed.

    Args:
        seeds: [N] int64.
        n_numbers: Number of random numbers for each seed.
        first: Number of random numbers that the seed was used for before; may be [N].

    Returns:
        [N, n_numbers] float64.

    Example:
        >>> uniform(torch.tensor([3, 4]), 5).shape
        torch.Size([2, 5])
    """
    counters = torch.arange(n_numbers, device=seeds.device).expand(len(seeds), n_numbers)
    counters = counters + (first.unsqueeze(1) if isinstance(first, Tensor) else first)
    bits = hashed(hashed(seeds).unsqueeze(1) + counters)
    return _shifted(bits, 64 - _BITS).double() * 2.0**-_BITS

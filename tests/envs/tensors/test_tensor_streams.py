"""Random numbers from seeds, compared with the same hash in Python's integers."""

from __future__ import annotations

import pytest
import torch

from maze_pl.envs.tensors.tensor_streams import environment_seeds, episode_seeds, hashed, uniform
from tests.devices import DEVICES

MASK = 2**64 - 1


def slow_hash(number: int) -> int:
    """SplitMix64 of an unsigned number, as published."""
    mixed = (number + 0x9E3779B97F4A7C15) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)


def test_the_hash_is_that_of_the_reference_implementation() -> None:
    # the first outputs of the published generator with seed 1234567 are the hashes of multiples of its increment
    first = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    found, state = [], 1234567
    for _ in first:
        found.append(slow_hash(state))
        state = (state + 0x9E3779B97F4A7C15) & MASK
    assert found == first


@pytest.mark.parametrize("device", DEVICES)
def test_hashes_equal_those_of_integers_without_limits(device: str) -> None:
    numbers = [0, 1, -1, 2**63 - 1, -(2**63), 987654321987654321]
    found = hashed(torch.tensor(numbers, device=device))
    assert [number % 2**64 for number in found.tolist()] == [slow_hash(number % 2**64) for number in numbers]


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_are_53_bits_of_the_hash_and_can_be_continued(device: str) -> None:
    seeds = torch.tensor([5, 6], device=device)
    numbers = uniform(seeds, 4)
    expected = [[(slow_hash(slow_hash(seed) + counter) >> 11) / 2**53 for counter in range(4)] for seed in (5, 6)]
    assert numbers.tolist() == expected
    assert torch.equal(uniform(seeds, 2, first=2), numbers[:, 2:])
    assert torch.equal(uniform(seeds, 1, first=torch.tensor([1, 3], device=device))[:, 0], numbers[[0, 1], [1, 3]])


def test_numbers_are_uniform_and_independent() -> None:
    numbers = uniform(episode_seeds(environment_seeds(7, torch.arange(200_000)), torch.tensor(0)), 2)
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    counts = torch.histc(numbers[:, 0], 20, 0.0, 1.0)
    assert float(((counts - 10_000) ** 2 / 10_000).sum()) < 50.0, "chi-squared of 19 degrees of freedom"
    assert abs(float(torch.corrcoef(numbers.T)[0, 1])) < 0.01


def test_seeds_differ_between_environments_episodes_and_runs() -> None:
    every = [
        episode_seeds(environment_seeds(run, torch.arange(50)), torch.full((50,), episode))
        for run in range(4)
        for episode in range(50)
    ]
    seeds = torch.cat(every)
    assert len(seeds.unique()) == len(seeds)
    assert int(seeds.min()) >= 0

"""Seeds that are derived ahead, against one derivation for each."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.core.seeding import derive_seed
from maze_pl.envs.arrays.bit_streams import BitStreams
from maze_pl.envs.arrays.episode_seeds import EpisodeSeeds


@pytest.mark.parametrize("n_envs", [1, 3, 40_000])
def test_seeds_are_those_of_single_environments_in_any_order_of_episodes(n_envs: int) -> None:
    generator = np.random.default_rng(0)
    seeds = EpisodeSeeds(7, np.arange(n_envs) + 100)
    episode = np.zeros(n_envs, np.int64)
    for turn in range(60):
        which = np.flatnonzero(generator.random(n_envs) < (1.0 if turn == 0 else min(0.5, 20 / n_envs)))
        if turn == 30:  # episodes may go back, and jump
            episode[: n_envs // 2 + 1] = 3
            episode[-1] = 1000
        found = seeds.of(which, episode[which])
        few = slice(0, 20)
        expected = [derive_seed(7, "env", int(env) + 100, int(episode[env])) for env in which[few]]
        assert found[few].tolist() == expected
        episode[which] += 1


def test_environments_of_one_index_have_the_same_seeds() -> None:
    seeds = EpisodeSeeds(1, np.zeros(3, np.int64))
    assert len(set(seeds.of(np.arange(3), np.full(3, 5)).tolist())) == 1


def started(seeds: Any) -> list[list[int]]:
    """First numbers of the generators that seeds start."""
    streams = BitStreams(np.zeros(len(seeds), np.int64))
    streams.seed(seeds, np.arange(len(seeds)))
    return [[int(number) for number in row] for row in streams.words_64(None, 2)]


def by_numpy(seeds: Iterable[int]) -> list[list[int]]:
    return [np.random.PCG64(int(seed)).random_raw(2).tolist() for seed in seeds]


def test_generators_are_those_of_numpy_in_any_order_of_episodes() -> None:
    generator = np.random.default_rng(0)
    seeds = EpisodeSeeds(7, np.arange(5))
    episode = np.zeros(5, np.int64)
    for _ in range(60):
        which = np.flatnonzero(generator.random(5) < 0.6)
        found = seeds.of(which, episode[which])
        assert started(found) == by_numpy(found.tolist())
        episode[which] += 1


def test_seeds_that_were_changed_or_are_looked_up_late_start_their_own_generators() -> None:
    seeds = EpisodeSeeds(7, np.arange(5))
    found = seeds.of(np.arange(5), np.zeros(5, np.int64))
    assert started(found[2:]) == by_numpy(found[2:].tolist())
    assert started(found + 1) == by_numpy((found + 1).tolist())
    assert started(found[::-1]) == by_numpy(found[::-1].tolist())
    assert started(found.copy()) == by_numpy(found.tolist())
    seeds.of(np.arange(5), np.full(5, 1000))  # derives others
    assert started(found) == by_numpy(found.tolist())
    found = seeds.of(np.arange(5), np.full(5, 1001))
    found[1] = 3
    assert started(found) == by_numpy(found.tolist())
    assert started(found) != by_numpy(seeds.of(np.arange(5), np.full(5, 1001)).tolist())


def test_prepared_seeds_are_ordinary_arrays_elsewhere() -> None:
    found = EpisodeSeeds(7, np.arange(3)).of(np.arange(3), np.zeros(3, np.int64))
    assert isinstance(found, np.ndarray) and found.dtype == np.int64
    for copy in (pickle.loads(pickle.dumps(found)), deepcopy(found), np.array(found)):
        assert copy.tolist() == found.tolist() and started(copy) == by_numpy(found.tolist())
    assert torch.from_numpy(found).tolist() == found.tolist()

"""Seeds that are derived ahead, against one derivation for each."""

from __future__ import annotations

import numpy as np
import pytest

from maze_pl.core.seeding import derive_seed
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

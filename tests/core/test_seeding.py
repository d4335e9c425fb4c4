"""Seeds are stable and differ for different purposes."""

from __future__ import annotations

from maze_pl.core.seeding import derive_seed


def test_seeds_are_the_same_everywhere_and_for_ever() -> None:
    assert derive_seed(0, "env", 0, 0) == 321727323
    assert derive_seed(42, "policy") == 45460830


def test_different_paths_give_different_seeds_in_range() -> None:
    seeds = [
        derive_seed(run, purpose, env, episode)
        for run in range(3)
        for purpose in ("env", "evaluation")
        for env in range(10)
        for episode in range(10)
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_numbers_beyond_32_bits_change_the_seed() -> None:
    assert len({derive_seed(1, "env", 0, 5 + restarts * 2**32) for restarts in range(20)}) == 20

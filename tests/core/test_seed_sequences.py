"""Hashing of many seeds at once, against NumPy's `SeedSequence` and `derive_seed`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.core.seed_sequences import derive_seeds, pools_of, states_of_pools, words_of
from maze_pl.core.seeding import derive_seed

SEEDS = st.one_of(
    st.integers(0, 2**64), st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**64, 2**128 - 1, 2**128, 3**300])
)


@given(st.lists(SEEDS, min_size=1, max_size=5), st.integers(1, 9))
def test_states_equal_those_of_numpys_seed_sequences(seeds: list[int], n_words: int) -> None:
    states = states_of_pools(pools_of(*words_of(seeds)), n_words)
    expected = [np.random.SeedSequence(seed).generate_state(n_words) for seed in seeds]
    assert states.dtype == np.uint32
    assert states.tolist() == np.array(expected).tolist()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64])
def test_seeds_in_arrays_equal_seeds_in_lists(dtype: type) -> None:
    seeds = np.array([0, 5, np.iinfo(dtype).max], dtype)
    from_array, from_list = words_of(seeds), words_of(seeds.tolist())
    assert states_of_pools(pools_of(*from_array), 4).tolist() == states_of_pools(pools_of(*from_list), 4).tolist()


NUMBERS = st.one_of(st.integers(0, 2**32 - 1), st.integers(2**32, 2**63 - 1), st.sampled_from([2**32 - 1, 2**32]))


@given(st.integers(-5, 2**70), st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=4))
def test_derived_seeds_equal_derive_seed(seed: int, pairs: list[tuple[int, int]]) -> None:
    indices, episodes = np.array(pairs).T
    expected = [derive_seed(seed, "env", index, episode) for index, episode in pairs]
    assert derive_seeds(seed, "env", indices, episodes).tolist() == expected


def test_seeds_that_cannot_be_hashed_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 0; got -1"):
        words_of([3, -1])
    with pytest.raises(ValueError, match="at least 0; got -1"):
        words_of(np.array([3, -1]))
    with pytest.raises(TypeError, match=r"0\.5 of type float"):
        words_of([1, 0.5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="derive_seed derives a single seed"):
        derive_seeds(1, "env", 2)
    with pytest.raises(ValueError, match="from 0 to"):
        derive_seeds(1, np.array([-1]))

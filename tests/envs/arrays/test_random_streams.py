"""Random streams in arrays, draw for draw against NumPy's generators."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.envs.arrays.random_streams import RandomStreams

SEEDS = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**64, 2**128, 3**300, *range(40)]
P = [0.1, 0.2, 0.3, 0.25, 0.15]
DRAWS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("random", (), {}),
    ("random", (), {"size": (3, 2)}),
    ("uniform", (-0.05, 0.05), {"size": (4,)}),
    ("integers", (6,), {}),
    ("integers", (1, 6), {"size": (3, 2), "endpoint": True}),
    ("integers", (1,), {}),
    ("integers", (3 * 2**30,), {"size": 5}),  # every fourth number is rejected
    ("integers", (2**32 - 1,), {"size": 3}),
    ("integers", (2**32,), {"size": 3}),
    ("integers", (-5, 2**40), {}),
    ("integers", (3 * 2**61,), {"size": 3}),
    ("integers", (-(2**63), 2**63 - 1), {"endpoint": True}),
    ("permutation", (7,), {}),
    ("choice", (5,), {}),
    ("choice", (5,), {"p": P, "size": 2}),
    ("standard_normal", (), {}),
    ("standard_normal", (), {"size": 40}),
    ("normal", (2.0, 3.0), {}),
    ("exponential", (2.0,), {"size": 40}),
    ("poisson", (0.0,), {}),
    ("poisson", (4.0,), {}),
    ("poisson", (9.99,), {}),
    ("poisson", (10.0,), {}),
    ("poisson", (70.0,), {}),
]


def numpys(generators: list[np.random.Generator], name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Numbers that NumPy draws."""
    return np.array([getattr(generator, name)(*args, **options) for generator in generators])


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(DRAWS), st.sets(st.integers(0, 5))), min_size=1, max_size=8), st.data())
def test_any_sequence_of_draws_of_any_streams_equals_numpys(calls: list[Any], data: st.DataObject) -> None:
    seeds = data.draw(st.lists(st.integers(0, 2**80), min_size=6, max_size=6))
    streams, generators = RandomStreams(seeds), [np.random.default_rng(seed) for seed in seeds]
    for (name, args, options), chosen in calls:
        which = sorted(chosen) or None
        drawn = getattr(streams, name)(*args, **options, which=which)
        expected = numpys([generators[n] for n in which or range(6)], name, args, options)
        assert drawn.shape == expected.shape
        np.testing.assert_array_equal(drawn, expected)
    for n, generator in enumerate(generators):
        assert streams.generator(n).bit_generator.state == generator.bit_generator.state


@pytest.mark.parametrize("call", DRAWS, ids=str)
def test_thousands_of_streams_equal_numpys(call: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
    seeds = [*SEEDS, *range(100, 1200)]
    streams, generators = RandomStreams(seeds), [np.random.default_rng(seed) for seed in seeds]
    name, args, options = call
    for _ in range(2):
        drawn, expected = getattr(streams, name)(*args, **options), numpys(generators, *call)
        assert drawn.dtype == expected.dtype
        np.testing.assert_array_equal(drawn, expected)
    assert streams.generator(11).bit_generator.state == generators[11].bit_generator.state


def test_bounds_by_stream_equal_numpys_even_where_widths_of_ranges_differ() -> None:
    highs = np.array([1, 2, 7, 2**31, 2**32 - 1, 2**32, 2**33, 2**62, 3, 1])
    lows = -np.arange(10)
    streams, generators = RandomStreams(range(10)), [np.random.default_rng(seed) for seed in range(10)]
    for _ in range(50):
        bounds = zip(generators, lows, highs, strict=True)
        expected = [generator.integers(low, high, 3) for generator, low, high in bounds]
        np.testing.assert_array_equal(streams.integers(lows, highs, 3), expected)
    expected = [generator.uniform(low, high) for generator, low, high in zip(generators, lows, highs, strict=True)]
    np.testing.assert_array_equal(streams.uniform(lows, highs), expected)


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 40), min_size=6, max_size=6), min_size=1, max_size=6), st.sets(st.integers(0, 5))
)
def test_another_number_of_draws_from_each_stream_equals_numpys(numbers: list[list[int]], chosen: set[int]) -> None:
    streams, generators = RandomStreams(range(6)), [np.random.default_rng(seed) for seed in range(6)]
    which = sorted(chosen) or None
    drawing = which or list(range(6))
    for of_all in numbers:
        counts = np.array([of_all[n] for n in drawing])
        for name in ("random", "standard_normal"):
            drawn = getattr(streams, f"{name}_each")(counts, which)
            expected = [getattr(generators[n], name)(of_all[n]) for n in drawing]
            np.testing.assert_array_equal(drawn, np.concatenate(expected))
    for n, generator in enumerate(generators):
        assert streams.generator(n).bit_generator.state == generator.bit_generator.state


def test_many_draws_from_each_of_thousands_of_streams_equal_numpys() -> None:
    streams, generators = RandomStreams(range(2000)), [np.random.default_rng(seed) for seed in range(2000)]
    counts = np.arange(2000) % 30
    for _ in range(2):
        drawn = streams.standard_normal_each(counts)
        parts = [generator.standard_normal(n) for generator, n in zip(generators, counts.tolist(), strict=True)]
        np.testing.assert_array_equal(drawn, np.concatenate(parts))
    assert streams.random().tolist() == [generator.random() for generator in generators]


def test_means_by_stream_equal_numpys() -> None:
    means = np.array([0.0, 0.5, 3.9, 9.99, 10.0, 70.0, 0.5, 12.5])
    streams, generators = RandomStreams(range(8)), [np.random.default_rng(seed) for seed in range(8)]
    for which in (None, [1, 4, 6, 7], [0]):
        chosen = list(range(8)) if which is None else which
        for _ in range(20):
            expected = [generators[n].poisson(means[n]) for n in chosen]
            assert streams.poisson(means[chosen], which).tolist() == expected


def test_shuffling_equals_numpys_and_moves_whole_items() -> None:
    items = np.arange(5 * 6 * 2).reshape(5, 6, 2)
    expected = items.copy()
    for seed in range(5):
        np.random.default_rng(seed).shuffle(expected[seed])
    RandomStreams(range(5)).shuffle(items)
    np.testing.assert_array_equal(items, expected)


def test_streams_equal_gymnasiums_generators() -> None:
    generators = [gymnasium.utils.seeding.np_random(seed)[0] for seed in SEEDS]
    expected = [generator.uniform(-0.05, 0.05, (4,)) for generator in generators]
    np.testing.assert_array_equal(RandomStreams(SEEDS).uniform(-0.05, 0.05, (4,)), expected)


def test_seeding_some_streams_leaves_the_others_as_they_are() -> None:
    streams, other = RandomStreams([1, 2, 3]), np.random.default_rng(1)
    streams.integers(9)  # leaves half of a number in each stream
    other.integers(9)
    streams.seed([2**64, 7], which=[2, 1])
    generators = [other, np.random.default_rng(7), np.random.default_rng(2**64)]
    np.testing.assert_array_equal(streams.integers(9, size=3), numpys(generators, "integers", (9,), {"size": 3}))
    streams.seed([4, 5, 6])
    assert streams.integers(100).tolist() == [np.random.default_rng(seed).integers(100) for seed in (4, 5, 6)]


def test_state_restores_streams_in_the_middle_of_a_number() -> None:
    streams = RandomStreams(range(4))
    streams.integers(9, which=[0, 3])
    state = streams.state_dict()
    copy = RandomStreams([0] * 4)
    copy.load_state_dict(state)
    expected = streams.integers(9, size=5)
    streams.random()  # does not change what was saved
    np.testing.assert_array_equal(copy.integers(9, size=5), expected)
    with pytest.raises(ValueError, match="the state of 4 streams cannot be restored"):
        copy.load_state_dict(RandomStreams([1]).state_dict())


def test_choosing_streams_by_a_mask_equals_choosing_them_by_number() -> None:
    by_mask, by_number = RandomStreams(range(3)), RandomStreams(range(3))
    assert by_mask.random(which=np.array([True, False, True])).tolist() == by_number.random(which=[0, 2]).tolist()


def test_sizes_of_nothing_draw_nothing() -> None:
    streams = RandomStreams([1, 2])
    assert streams.random(0).shape == streams.integers(5, size=0).shape == (2, 0)
    assert streams.random(3, which=[]).shape == (0, 3)
    assert streams.permutation(1).tolist() == [[0], [0]]
    assert streams.random().tolist() == RandomStreams([1, 2]).random().tolist()


def test_draws_that_make_no_sense_are_refused() -> None:
    streams = RandomStreams([1, 2])
    with pytest.raises(ValueError, match="low < high"):
        streams.integers(3, [4, 3])
    with pytest.raises(OverflowError, match="finite"):
        streams.uniform(0, np.inf)
    with pytest.raises(ValueError, match="lam=-1 must be finite"):
        streams.poisson(-1)
    with pytest.raises(ValueError, match=r"inf.* must be finite"):
        streams.poisson(np.array([1.0, np.inf]))
    with pytest.raises(ValueError, match="sum to 1"):
        streams.choice(2, p=[0.5, 0.6])
    with pytest.raises(ValueError, match="items of 3 streams for 2"):
        streams.shuffle(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="3 seeds were given for 2 streams"):
        streams.seed([1, 2, 3])


def test_a_slice_chooses_streams() -> None:
    by_slice, by_number = RandomStreams([1, 2, 3]), RandomStreams([1, 2, 3])
    assert by_slice.random(which=slice(None)).tolist() == by_number.random().tolist()
    assert by_slice.integers(9, which=slice(1, None)).tolist() == by_number.integers(9, which=[1, 2]).tolist()
    by_slice.seed([7, 8, 9], which=slice(None))
    by_number.seed([7, 8, 9])
    assert by_slice.standard_normal(which=slice(None)).tolist() == by_number.standard_normal().tolist()

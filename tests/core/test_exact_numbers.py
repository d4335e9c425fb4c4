"""Numbers that a type of integers can hold, against Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.core.exact_numbers import first_beyond, first_changed, overflow_of

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@given(
    source=st.sampled_from(INTEGERS),
    target=st.sampled_from(INTEGERS),
    data=st.data(),
)
def test_integers_are_compared_with_the_limits_of_the_type(source: str, target: str, data: Any) -> None:
    known, limits = np.iinfo(source), np.iinfo(target)
    near = [limits.min - 1, limits.min, limits.max, limits.max + 1, 0, -1]
    possible = st.sampled_from([number for number in near if known.min <= number <= known.max])
    numbers = data.draw(st.lists(st.one_of(possible, st.integers(known.min, known.max)), max_size=4))
    outside = [number for number in numbers if not limits.min <= number <= limits.max]
    for find in (first_changed, first_beyond):
        found = find(np.array(numbers, source), np.dtype(target))
        assert found == (outside[0] if outside else None)


@pytest.mark.parametrize(
    ("numbers", "dtype", "expected"),
    [
        ([1.0, 2.5, 3.5], "int64", 2.5),
        ([[1.0, 2.0], [-3.0, 4.0]], "int8", None),
        (-1.0, "uint8", -1.0),
        (np.inf, "int32", np.inf),
        ([True, False], "int8", None),
        ([0, 1], "bool", None),
        ([0, 2], "bool", 2),
        (np.zeros((0, 3), np.int64), "int8", None),
        ([0.1, 1e300], "float32", None),
        (2**53 + 1, "float32", None),
    ],
)
def test_fractions_and_other_types(numbers: Any, dtype: str, expected: Any) -> None:
    assert first_changed(np.asarray(numbers), np.dtype(dtype)) == expected


def test_a_value_that_is_not_a_number() -> None:
    assert np.isnan(first_changed(np.array([1.0, np.nan]), np.dtype(np.int64)))


@given(
    numbers=st.lists(st.floats(-1e6, 1e6, width=32) | st.sampled_from([127.9, 128.0, -128.9, -129.0])),
    target=st.sampled_from(["int8", "uint8", "int16", "uint16"]),
)
def test_fractions_are_cut_off_before_floats_are_compared_with_limits(numbers: list[float], target: str) -> None:
    limits = np.iinfo(target)
    outside = [number for number in numbers if not limits.min <= int(number) <= limits.max]
    assert first_beyond(np.array(numbers), np.dtype(target)) == (outside[0] if outside else None)


class Untouched(np.ndarray[Any, Any]):
    """An array whose numbers may not be looked at."""

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a pass over all numbers")


def test_types_that_hold_all_numbers_need_no_pass_over_them() -> None:
    numbers = np.array([0.5, 1e300]).view(Untouched)
    for find in (first_changed, first_beyond, overflow_of):
        assert find(numbers, np.dtype(np.float32)) is None
        with pytest.raises(AssertionError, match=r"a pass over all numbers"):
            find(numbers, np.dtype(np.int8))


def test_an_overflow_is_described() -> None:
    assert overflow_of(np.array([1.5, 2.5]), np.dtype(np.int8)) is None
    assert overflow_of(np.array([1e300]), np.dtype(np.float32)) is None
    expected = "has the value 200, which its type int8 cannot hold; declare a space of type uint8"
    assert overflow_of(np.array([1, 200], np.uint8), np.dtype(np.int8)) == expected

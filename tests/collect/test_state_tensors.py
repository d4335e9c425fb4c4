"""Saved states hold tensors, numbers and texts only, and are restored exactly."""

import io
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.state_tensors import from_tensors, to_tensors


def _restored(state: Any) -> Any:
    """Return a state after it was in a weights-only checkpoint."""
    file = io.BytesIO()
    torch.save(to_tensors(state), file)
    file.seek(0)
    return from_tensors(torch.load(file, weights_only=True))


def _objects(*values: Any) -> np.ndarray:
    array = np.empty(len(values), object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def test_arrays_of_numbers_become_tensors_that_share_nothing() -> None:
    array = np.arange(6.0).reshape(2, 3)[:, ::-1]
    saved = to_tensors({"array": array, "single": np.float32(0.5)})
    array[...] = 0.0
    assert saved["array"].tolist() == [[2.0, 1.0, 0.0], [5.0, 4.0, 3.0]]
    assert type(saved["single"]) is float
    restored = from_tensors(saved)
    saved["array"].zero_()
    assert restored["array"].tolist() == [[2.0, 1.0, 0.0], [5.0, 4.0, 3.0]]


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "", "long"]),
        np.array([["a", "b"], ["c", "d"]])[:, ::-1],
        np.array("one"),
        np.empty((0, 2), "<U3"),
        np.empty((2, 0), object),
        np.zeros(0, np.uint16),
    ],
)
def test_arrays_of_texts_keep_their_type_and_shape(array: np.ndarray) -> None:
    restored = _restored([array])[0]
    assert restored.dtype == array.dtype
    assert restored.shape == array.shape
    assert restored.tolist() == array.tolist()
    assert restored.flags.writeable


def test_arrays_of_objects_keep_the_types_of_their_entries() -> None:
    entries = [
        {"kind": "a", "value": np.float32(0.1), "count": 2},
        {"kind": np.str_("b"), "value": None, "parts": [1, (2, np.int8(3))]},
        "text",
        [True, np.bool_(False)],
        np.arange(3, dtype=np.int16),
    ]
    restored = _restored({"entries": _objects(*entries)})["entries"].tolist()
    last = restored.pop()
    assert repr(restored) == repr(entries[:-1])  # tells np.float32(0.1) from 0.1
    assert last.dtype == np.int16
    assert last.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "came"),
    [
        (np.array(["2020-01-01"], "datetime64[D]"), "an array of type datetime64[D]"),
        (np.zeros(2, np.dtype(np.float32).newbyteorder()), "an array of type >f4"),
        (np.zeros(2, [("x", np.int64)]), "an array of type [('x', '<i8')]"),
        (np.datetime64("2020-01-01"), "a value of type datetime64"),
        ({1, 2}, "a value of type set"),
    ],
)
def test_types_that_cannot_be_saved_are_named_with_their_place(value: Any, came: str) -> None:
    with pytest.raises(TypeError) as caught:
        to_tensors({"array_env": [{"table": value}]})
    assert str(caught.value).startswith(f"state 'array_env.0.table' is {came}, which cannot be saved; use ")
    with pytest.raises(TypeError, match=r"^state 'array_env\.1\.0' is an? .*, which cannot be saved; use "):
        to_tensors({"array_env": _objects(0, [value])})
    with pytest.raises(TypeError, match="state is a value of type object, which"):
        to_tensors(object())

"""Content of checkpoints: numbers of NumPy become Python's, and what torch would not read again is named."""

from __future__ import annotations

import io
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.core.readable_content import readable


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.float64(1.5), 1.5),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("best"), "best"),
        ({"best": [np.float64(2.0), 1.0]}, {"best": [2.0, 1.0]}),
        ({np.int64(1): (np.int32(2), None)}, {1: (2, None)}),
        ({np.float64(1)}, {1.0}),
        ([{(np.int64(1), "x")}], [{(1, "x")}]),
        (OrderedDict(score=np.float64("inf")), OrderedDict(score=float("inf"))),
    ],
)
def test_numbers_of_numpy_become_equal_numbers_of_python(given: Any, expected: Any) -> None:
    found = readable(given, "state")
    assert found == expected
    assert repr(found) == repr(expected)  # types as well


@pytest.mark.parametrize(
    "given",
    [
        {"a": [1, 2.5, None, "x", b"y", True, 1j], "b": (torch.ones(2), {"c": {}})},
        OrderedDict(weight=torch.nn.Parameter(torch.ones(2))),
        {1, 2},
        Counter("ab"),
        torch.float32,
        torch.Size([2]),
    ],
)
def test_values_that_torch_reads_are_returned_as_they_are(given: Any) -> None:
    assert readable(given, "state") is given
    file = io.BytesIO()
    torch.save(given, file)
    file.seek(0)
    torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"x": np.arange(3)},
            r"^state\['x'\] of the checkpoint is a numpy.ndarray, .*tuples, dicts and sets of them instead$",
        ),
        ([0, {"y": deque([1.0])}], r"^state\[1\]\['y'\] of the checkpoint is a collections.deque,"),
        ({"random": np.random.default_rng(0)}, r"^state\['random'\] .* is a numpy.random._generator.Generator,"),
        ({"counts": defaultdict(int, a=1)}, r"^state\['counts'\] .* is a collections.defaultdict,"),
        ({PurePosixPath("a"): 1}, r"^a key of state\[0\] .* is a pathlib.PurePosixPath,"),
        ({PurePosixPath("a")}, r"^state\[0\] .* is a pathlib.PurePosixPath,"),
        (np.longdouble(1.0), r"^state of the checkpoint is a numpy.longdouble,"),
        ({"f": lambda: None}, r"^state\['f'\] .* is a builtins.function,"),
    ],
)
def test_objects_that_torch_would_not_read_are_refused_by_their_place(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        readable(given, "state")


def test_the_state_of_a_callback_is_not_changed() -> None:
    history = [np.float64(1.0)]
    given = {"history": history}
    assert type(readable(given, "state")["history"][0]) is float
    assert given["history"] is history
    assert type(history[0]) is np.float64


def test_weights_with_numbers_of_numpy_keep_the_versions_of_their_modules() -> None:
    given = torch.nn.BatchNorm1d(2).state_dict()
    given["extra"] = np.float64(1.0)  # type: ignore[assignment]
    found = readable(given, "state_dict")
    assert type(found["extra"]) is float
    assert found._metadata == given._metadata == {"": {"version": 2}}  # type: ignore[attr-defined]


def test_a_list_that_contains_itself_is_refused() -> None:
    given: list[Any] = [np.float64(1.0)]
    given.append(given)
    with pytest.raises(ValueError, match=r"^state of the checkpoint contains itself, or is nested too deeply$"):
        readable({"history": given}, "state")

"""Merging of the parts of a configuration."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from maze_pl.config.merging import merge, merged_by_now

COMPONENT = {"class_path": "a.B", "init_args": {"x": 1}}


@pytest.mark.parametrize(
    ("before", "option", "value", "after"),
    [
        ([COMPONENT, COMPONENT], "x", 2, [COMPONENT, {"class_path": "a.B", "init_args": {"x": 2}}]),
        (["a.B"], "x", 2, [{"class_path": "a.B", "init_args": {"x": 2}}]),
        ("a.B", "x", 2, {"class_path": "a.B", "init_args": {"x": 2}}),
        ({"class_path": "a.B", "y": 1}, "x", 2, {"class_path": "a.B", "init_args": {"x": 2, "y": 1}}),
        ("B", None, {"init_args": {"x": 2}}, {"class_path": "B", "init_args": {"x": 2}}),
        ([COMPONENT], "init_args", {"y": 2}, [{"class_path": "a.B", "init_args": {"x": 1, "y": 2}}]),
        ([], "x", 2, {"x": 2}),
        (COMPONENT, None, "a.C", {"class_path": "a.C", "init_args": {"x": 1}}),
        (COMPONENT, None, "C", {"class_path": "C", "init_args": {"x": 1}}),
        (COMPONENT, None, "text", "text"),
        (COMPONENT, None, [1], [1]),
        (
            [COMPONENT, COMPONENT, {"x": 1}, 3],
            None,
            [{"class_path": "a.B", "init_args": {"y": 2}}, "a.C", {"y": 2}, 4],
            [
                {"class_path": "a.B", "init_args": {"x": 1, "y": 2}},
                {"class_path": "a.C", "init_args": {"x": 1}},
                {"y": 2},
                4,
            ],
        ),
        ([COMPONENT, 3], None, [{"class_path": "a.B"}], [{"class_path": "a.B"}]),
    ],
)
def test_options_are_merged_into_components_and_last_items(
    before: Any, option: str | None, value: Any, after: Any
) -> None:
    whole = {"data": {"class_path": "a.Data", "init_args": {"wrappers": copy.deepcopy(before)}}}
    content = value if option is None else {option: value}
    merge(whole, {"data": {"wrappers": content}}, 1 if option is None else 2)
    assert merged_by_now(whole)["data"]["init_args"] == {"wrappers": after}

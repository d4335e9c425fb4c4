"""Merging of the parts of a configuration."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from maze_pl.config.merging import merge, merged_by_now

COMPONENT = {"class_path": "a.B", "init_args": {"x": 1}}
WITH_BOTH = {"class_path": "a.B", "init_args": {"x": 1, "y": 2}}


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


@pytest.mark.parametrize(
    ("argument", "before", "value", "after"),
    [
        ("evaluators", {"a": {"x": 1, "w": ["b.C"]}, "b": {"x": 1}}, {"a": {"x": 2}}, {"a": {"x": 2, "w": ["b.C"]}}),
        ("evaluators", {"a": {"env": COMPONENT}}, {"a": {"env": {"y": 2}}}, {"a": {"env": WITH_BOTH}}),
        ("evaluators", {"a": {"x": 1}}, {"b": {"x": 2}}, {"b": {"x": 2}}),
        ("evaluators", {"a": {"x": 1}}, {}, {}),
        ("optimizer_groups", {"a": {"options": {"x": 1}}}, {"a": {"options": {"y": 2}}}, {"a": {"options": {"y": 2}}}),
        ("parts", {"a": COMPONENT, "b": COMPONENT}, {"a": {"x": 2}}, {"a": {**COMPONENT, "init_args": {"x": 2}}}),
        ("modality_config", {"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"y": 2}}),
    ],
)
def test_entries_keep_options_of_earlier_ones_of_the_same_name_if_they_are_options_of_a_class(
    argument: str, before: Any, value: Any, after: Any
) -> None:
    whole = {"data": {"class_path": "a.Data", "init_args": {argument: copy.deepcopy(before)}}}
    merge(whole, {"data": {argument: value}}, 1)
    assert merged_by_now(whole)["data"]["init_args"][argument] == after


def test_arguments_next_to_a_class_path_keep_their_order() -> None:
    names = [f"option_{n}" for n in range(20)]
    whole: dict[str, Any] = {"env": {"class_path": "a.B", **dict.fromkeys(names, 1)}}
    merge(whole, {"env": {"further": 2}}, 1)
    assert [*whole["env"]["init_args"]] == [*names, "further"]

"""Summaries of configurations: the options that differ, in a line each."""

from __future__ import annotations

from typing import Any

import pytest

from maze_pl.config.summary import Summary, may_be_shown

WRAPPERS = "maze_pl.envs.wrappers"


def wrapper(name: str, **arguments: Any) -> dict[str, Any]:
    return {"class_path": f"{WRAPPERS}.{name}", "init_args": arguments}


@pytest.mark.parametrize(
    ("value", "previous", "line"),
    [
        (3, 2, "3 (instead of 2)"),
        (3, None, "3"),
        ([1, 2], [1, 3], "[1, 2] (instead of [1, 3])"),
        (
            [wrapper("TimeLimitWrapper", max_episode_steps=96)],
            [wrapper("TimeLimitWrapper", max_episode_steps=200)],
            "... max_episode_steps: 96}}] (instead of ... max_episode_steps: 200}}])",
        ),
        (
            [wrapper("TimeLimitWrapper", n=9), wrapper("RewardScalingWrapper", scale=0.1)],
            [wrapper("TimeLimitWrapper", n=9)],
            f"... n: 9}}}}, {{class_path: {WRAPPERS}.RewardScalingWrap ... (instead of ... n: 9}}}}])",
        ),
        ("/data/" + "x" * 80 + "a", "/data/" + "x" * 80 + "b", f"... {'x' * 30}a (instead of ... {'x' * 30}b)"),
        ("x" * 80 + "/a", "x" * 80 + "/", f"... {'x' * 29}/a (instead of ... {'x' * 29}/)"),
    ],
)
def test_a_line_shows_the_difference_of_values_that_begin_alike(value: Any, previous: Any, line: str) -> None:
    assert str(Summary("own", {"option": (value, previous)})) == f"configuration: own, with\n  option: {line}"


@pytest.mark.parametrize(
    ("text", "value", "is_shown"),
    [
        ("3", 3, True),
        ("3", 33, False),
        ("... b: 2}", {"a": "x" * 60, "b": 2}, True),
        ("... b: 2}", {"a": "x" * 60, "b": 2, "c": 3}, False),
        ("... b: 2 ...", {"a": "x" * 60, "b": 2, "c": "x" * 60}, True),
        ("... b: 3 ...", {"a": "x" * 60, "b": 2, "c": "x" * 60}, False),
        ("x" * 60 + " ...", "x" * 61, True),
        ("x" * 60 + " ...", "x" * 60, False),
    ],
)
def test_a_text_shows_a_value_if_it_is_a_part_of_it(text: str, value: Any, is_shown: bool) -> None:
    assert may_be_shown(text, value) == is_shown

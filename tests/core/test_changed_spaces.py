"""Differences of specifications, in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gymnasium import spaces

from maze_pl.core.changed_spaces import changed_spaces, shortened
from maze_pl.core.spec import Spec, StepSpec

OBSERVATIONS = spaces.Dict(level=spaces.Box(-1, 1, (1,)), allowed=spaces.Box(0, 1, (3,), np.int8))
ACTIONS = spaces.Dict(mode=spaces.Discrete(3), valve=spaces.Box(0, 1000, (1,)))
STEP = StepSpec(OBSERVATIONS, ACTIONS, masks={"mode": "allowed"})
COUNTS = ("n_agents", "n_slots")


def changes(**parts: object) -> list[str]:
    return changed_spaces(Spec({"tank": STEP}).to_dict(), Spec({"tank": replace(STEP, **parts)}).to_dict())


def test_each_part_that_differs_is_named_with_both_values() -> None:
    assert changes() == []
    heads = {"mode": spaces.Discrete(3, dtype=np.int32), "valve": spaces.Box(0, 10, (1,))}
    boxes = "was Box(0.0, 1000.0, (1,), float32) and is Box(0.0, 10.0, (1,), float32)"
    assert changes(action_space=spaces.Dict(heads)) == [f"action 'valve' of sub-step 'tank' {boxes}"]
    assert changes(masks={}) == ["the mask of action 'mode' of sub-step 'tank' was 'allowed' and is missing"]
    assert changes(n_agents=2, n_slots=2) == [f"{name} of sub-step 'tank' was 1 and is 2" for name in COUNTS]


def test_a_difference_that_is_not_printed_is_named_all_the_same() -> None:
    boxes = [spaces.Box(-1, np.append(np.ones(199, np.float32), np.float32(last))) for last in (2, 3)]
    wide, wider = (spaces.Dict(ACTIONS.spaces | {"valve": box}) for box in boxes)
    specs = [Spec({"tank": replace(STEP, action_space=space)}).to_dict() for space in (wide, wider)]
    assert changed_spaces(*specs) == ["action 'valve' of sub-step 'tank' has changed"]


def test_long_lists_are_shortened() -> None:
    assert shortened(["a", "b", "c"]) == "a, b, c"
    assert shortened(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"

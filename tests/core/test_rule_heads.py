"""Heads that a rule decides, and others."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium import spaces

from maze_pl.core.rule_heads import require_heads

KNOWN = {"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,)), "c": spaces.Discrete(2)}


class Rule:
    """A rule without actions."""


@pytest.mark.parametrize("heads", [{"a": spaces.Discrete(3)}, {"b": spaces.Box(-1, 1, (2,)), "c": spaces.Discrete(2)}])
def test_some_of_the_known_heads_are_accepted(heads: dict[str, Any]) -> None:
    require_heads(Rule(), spaces.Dict(heads), KNOWN)


@pytest.mark.parametrize(
    "heads",
    [
        {"d": spaces.Discrete(3)},
        {"a": spaces.Discrete(2)},
        {"a": spaces.Discrete(3, start=1)},
        {"a": spaces.Discrete(3), "b": spaces.MultiDiscrete([3, 3])},
        {"b": spaces.Box(-2, 2, (2,))},
    ],
)
def test_other_heads_are_refused_with_what_was_given(heads: dict[str, Any]) -> None:
    expected = r"^Rule gives actions of \{'a': Discrete\(3\), .*, but the action heads are \{.*\}; play it without"
    with pytest.raises(ValueError, match=expected):
        require_heads(Rule(), spaces.Dict(heads), KNOWN)

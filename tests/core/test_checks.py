"""Options that must be numbers: other objects are named in the message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from maze_pl.core.checks import check_at_least, check_fraction, check_not_negative, check_positive
from maze_pl.schedules import Linear


@pytest.mark.parametrize("check", [check_fraction, check_not_negative, check_positive])
@pytest.mark.parametrize("value", [Linear(1.0, 0.0), lambda progress: 0.9, "0.9"])
def test_schedules_and_texts_are_refused_where_a_number_is_needed(check: Callable[..., None], value: Any) -> None:
    with pytest.raises(TypeError, match=r"gamma=.* must be a number, not (Linear|function|str)$"):
        check(gamma=value)
    check(gamma=0.9)


def test_a_missing_number_is_not_checked() -> None:
    check_at_least(1, n=None)

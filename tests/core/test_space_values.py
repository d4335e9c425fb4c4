"""Values that belong to a leaf space, and others."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.core.spaces import no_value

ALL = [spaces.Discrete(3, start=1), spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])]


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("space", ALL)
@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 0.5, 9.0, -1.0])
def test_numbers_that_are_no_choices_are_refused_without_a_warning(
    number: float, space: spaces.Space[Any], convert: Callable[[Any], Any]
) -> None:
    values = np.ones((2, *(space.shape or ())), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not no_value(space, convert(values), 2)
        values[1] = number
        assert no_value(space, convert(values), 2)


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_values_of_boxes_are_finite(convert: Callable[[Any], Any]) -> None:
    space = spaces.Box(-1.0, 1.0, (2,))
    values = np.array([[0.5, 3.0]], np.float32)  # unbounded samples may exceed the bounds
    assert not no_value(space, convert(values), 1)
    for number in (math.inf, -math.inf, math.nan):
        values[0, 1] = number
        assert no_value(space, convert(values), 1)

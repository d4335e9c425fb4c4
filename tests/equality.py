"""Equality of rollouts and of what they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from maze_pl.core.episode_batch import fetched_summaries


def assert_equal(one: Any, other: Any) -> None:
    one, other = fetched_summaries(one), fetched_summaries(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif hasattr(one, "__dataclass_fields__"):
        for name in one.__dataclass_fields__:
            if name != "seconds":
                assert_equal(getattr(one, name), getattr(other, name))
    elif isinstance(one, list):
        assert len(one) == len(other)
        for x, y in zip(one, other, strict=True):
            assert_equal(x, y)
    else:
        assert one == other

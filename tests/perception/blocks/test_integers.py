"""Integers, bytes and flags as inputs of blocks without weights, against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.perception import LevelsBlock, MaskedGlobalPoolingBlock

INTEGERS = [torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool]


@pytest.mark.parametrize("n_levels", [2, 5, 300])
@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bfloat16, torch.float64], ids=str)
def test_levels_of_numbers_and_of_differences_are_those_of_a_loop(dtype: torch.dtype, n_levels: int) -> None:
    block = LevelsBlock(["a", "b"], "out", [[2], [3]], n_levels, compare_keys=["b"])
    numbers = torch.tensor([0, 6]).to(dtype)
    others = torch.tensor([7, 0, 1]).to(dtype)
    expected = []
    for number in map(int, numbers):
        expected += [float(min(number, n_levels - 1) == level) for level in range(n_levels)]
    for number in map(int, numbers):
        for other in map(int, others):
            difference = min(number - other, n_levels - 1)
            expected += [float(difference == level) for level in range(1 - n_levels, n_levels)]
    assert block({"a": numbers, "b": others})["out"].tolist() == expected


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("function", ["mean", "sum", "max"])
def test_integers_are_pooled_as_floats(function: Any, dtype: torch.dtype) -> None:
    values = torch.tensor([[100, 0], [101, 1], [102, 0]]).to(dtype)
    expected = getattr(np, function)(values.double().numpy(), 0)
    for network in (torch.float32, torch.float64):
        block = MaskedGlobalPoolingBlock("set", "out", [3, 2], function, -2).to(network)
        pooled = block({"set": values})["out"]
        assert pooled.dtype == network
        np.testing.assert_allclose(pooled.numpy(), expected, rtol=1e-6)

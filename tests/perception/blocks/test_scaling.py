"""Scaling of numbers by their bounds, also of integers that floating point numbers cannot tell apart."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from maze_pl.perception import ScalingBlock, SetBlock

TIME = 1_700_000_000
LOW, HIGH = [TIME, -(2**60), 0, 5], [TIME + 1000, -(2**60) + 7, 2**40, 5]


def exact(values: Tensor, low: list[int], high: list[int]) -> Tensor:
    """(x - low) / (high - low) in fractions."""
    rows = [
        [float(Fraction(x - lowest, highest - lowest or 1)) for x, lowest, highest in zip(row, low, high, strict=True)]
        for row in values.tolist()
    ]
    return torch.tensor(rows)


def large_numbers() -> Tensor:
    rng = np.random.default_rng(0)
    columns = [rng.integers(low, high + 1, 50) for low, high in zip(LOW, HIGH, strict=True)]
    return torch.from_numpy(np.stack(columns, axis=-1))


def test_large_integers_keep_their_differences() -> None:
    block = ScalingBlock("numbers", "vector", [4], low=LOW, high=HIGH)
    numbers = large_numbers()
    scaled = block({"numbers": numbers})["vector"]
    assert scaled.dtype == torch.float32
    torch.testing.assert_close(scaled, exact(numbers, LOW, HIGH), rtol=1e-6, atol=0)
    assert len(set(scaled[:, 0].tolist())) == len(set(numbers[:, 0].tolist()))
    one = ScalingBlock("time", "scaled", [1], low=TIME, high=TIME + 1000)
    assert one({"time": torch.tensor([TIME + 10])})["scaled"].item() == pytest.approx(0.01)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64, torch.bool, torch.float32])
@pytest.mark.parametrize(
    ("low", "high"), [(0, 255), (-100, 100), ([-3, 0, 5], [4, 1, 5]), (0.0, 1.0), (-0.3, [1, 2, 3])]
)
def test_numbers_that_are_exact_as_floats_are_scaled_as_floats(dtype: torch.dtype, low: Any, high: Any) -> None:
    block = ScalingBlock("numbers", "vector", [3], low=low, high=high)
    numbers = torch.randint(0, 2 if dtype == torch.bool else 100, (40, 3)).to(dtype)
    lowest = torch.tensor(low, dtype=torch.float64)
    width = torch.tensor(high, dtype=torch.float64) - lowest
    factor = torch.where(width > 0, 1.0 / width, 1.0).float()
    expected = (numbers.float() - lowest.float()) * factor
    assert torch.equal(block({"numbers": numbers})["vector"], expected)


def test_bounds_whose_differences_are_no_integers_of_64_bits_are_scaled_as_floats() -> None:
    block = ScalingBlock("numbers", "vector", [1], low=-(2**63), high=2**63)
    scaled = block({"numbers": torch.tensor([[-(2**63)], [0], [2**63 - 1]])})["vector"]
    assert scaled.flatten().tolist() == [0.0, 0.5, 1.0]


def test_columns_of_large_integers_in_a_set_keep_their_differences() -> None:
    torch.manual_seed(0)
    block = SetBlock("rows", "vector", [50, 4], hidden_units=[8], low=LOW, high=HIGH)
    plain = SetBlock("rows", "vector", [50, 4], hidden_units=[8])
    plain.load_state_dict(block.state_dict())
    numbers = large_numbers()
    expected = plain({"rows": exact(numbers, LOW, HIGH)})["vector"]
    torch.testing.assert_close(block({"rows": numbers})["vector"], expected)


def test_large_integers_are_traced_and_converted_with_the_network() -> None:
    block = ScalingBlock("numbers", "vector", [4], low=LOW, high=HIGH)
    numbers = large_numbers()
    traced = make_fx(lambda x: block({"numbers": x})["vector"])(numbers[:3])
    torch.testing.assert_close(traced(numbers[:3]), exact(numbers[:3], LOW, HIGH))
    scaled = block.double()({"numbers": numbers})["vector"]
    assert scaled.dtype == torch.float64
    torch.testing.assert_close(scaled.float(), exact(numbers, LOW, HIGH))
    assert not block.state_dict()


@pytest.mark.slow
def test_large_integers_are_scaled_alike_by_other_programs() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    block = ScalingBlock("numbers", "vector", [4], low=LOW, high=HIGH)
    sizes = {"numbers": {0: torch.export.Dim("batch")}}
    inputs = {"numbers": large_numbers()[:3]}
    program = torch.export.export(block, (inputs,), dynamic_shapes={"block_input": sizes}, strict=False)
    model = torch.onnx.export(program, dynamo=True, verbose=False).model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    numbers = large_numbers()
    (scaled,) = session.run(None, {session.get_inputs()[0].name: numbers.numpy()})
    torch.testing.assert_close(torch.from_numpy(scaled), exact(numbers, LOW, HIGH))


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (np.array([0, 1]), np.array([4, 5])),
        (np.int64(0), np.float32(4)),
        ([np.int64(0), np.int64(1)], (4, np.uint8(5))),
    ],
)
def test_bounds_may_be_numbers_of_numpy(low: Any, high: Any) -> None:
    block = ScalingBlock("numbers", "vector", [2], low=low, high=high)
    lowest, highest = (torch.as_tensor(np.asarray(bound, np.float32)) for bound in (low, high))
    numbers = torch.tensor([[2, 3], [1, 5]])
    torch.testing.assert_close(block({"numbers": numbers})["vector"], (numbers - lowest) / (highest - lowest))

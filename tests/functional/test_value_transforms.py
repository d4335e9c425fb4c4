"""Scales of values: numbers by hand, the published formulas, and that each transform has its inverse."""

from __future__ import annotations

import doctest

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.functional import reduce_scale, restore_scale, scalar_to_support, support_to_scalar, value_transforms


def test_scales_by_hand() -> None:
    assert reduce_scale(torch.tensor([-8.0, -3.0, 0.0, 3.0, 99.0]), 0.0).tolist() == [-2.0, -1.0, 0.0, 1.0, 9.0]
    torch.testing.assert_close(reduce_scale(torch.tensor([99.0, -8.0])), torch.tensor([9.099, -2.008]))
    torch.testing.assert_close(restore_scale(torch.tensor([9.099, -2.008])), torch.tensor([99.0, -8.0]))
    assert restore_scale(torch.tensor([-2.0, 9.0]), 0.0).tolist() == [-8.0, 99.0]


@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 1.0])
def test_scales_are_those_of_the_published_formulas(epsilon: float) -> None:
    x = torch.linspace(-1e4, 1e4, 401, dtype=torch.float64)
    expected = x.sign() * ((x.abs() + 1).sqrt() - 1) + epsilon * x
    torch.testing.assert_close(reduce_scale(x, epsilon), expected, rtol=1e-10, atol=1e-10)
    r = ((1 + 4 * epsilon * (x.abs() + 1 + epsilon)).sqrt() - 1) / (2 * epsilon)
    torch.testing.assert_close(restore_scale(x, epsilon), x.sign() * (r**2 - 1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
@pytest.mark.parametrize("size", [1e-20, 1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_the_inverse_is_exact_for_values_of_all_sizes(size: float, epsilon: float) -> None:
    x = torch.tensor([-size, size])
    torch.testing.assert_close(restore_scale(reduce_scale(x, epsilon), epsilon), x, rtol=1e-5, atol=0.0)


def test_gradients_at_zero() -> None:
    for transform, slope in ((reduce_scale, 0.501), (restore_scale, 1 / 0.501)):
        x = torch.zeros(1, requires_grad=True)
        transform(x).sum().backward()
        assert x.grad is not None
        assert x.grad.item() == pytest.approx(slope)


def test_a_scalar_lies_between_its_two_neighbours() -> None:
    support = scalar_to_support(torch.tensor([[-1.0, 0.25], [1.5, 9.0], [-3.0, 2.0]]), -1, 2)
    assert support.tolist() == [
        [[1.0, 0.0, 0.0, 0.0], [0.0, 0.75, 0.25, 0.0]],
        [[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.0, 1.0]],
        [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]],
    ]


@given(st.floats(-7.0, 12.0), st.sampled_from([torch.float32, torch.float64]))
def test_supports_are_distributions_with_the_scalar_as_mean(scalar: float, dtype: torch.dtype) -> None:
    x = torch.tensor(scalar, dtype=dtype)
    support = scalar_to_support(x, -7, 12)
    assert support.dtype == dtype
    torch.testing.assert_close(support.sum(), torch.ones((), dtype=dtype))
    torch.testing.assert_close(support_to_scalar(support, -7, 12), x, rtol=1e-5, atol=1e-5)


def test_a_support_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"probability has shape \(2, 3\), expected \[\.\.\., 4\] for -1\.\.2"):
        support_to_scalar(torch.zeros(2, 3), -1, 2)


def test_the_examples_run() -> None:
    assert doctest.testmod(value_transforms).failed == 0

"""Quantiles against torch and mpmath."""

from __future__ import annotations

import mpmath
import pytest
import torch

from maze_pl.bundle.quantiles import beta_quantile, normal_quantile


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_normal_quantiles_are_those_of_torch() -> None:
    probability = numbers(1e-15, 1e-8, 0.01, 0.074, 0.076, 0.3, 0.5, 0.924, 0.99, 1 - 1e-9)
    torch.testing.assert_close(normal_quantile(probability), torch.special.ndtri(probability), rtol=1e-13, atol=1e-13)


def test_normal_quantiles_of_all_uniform_numbers_are_finite() -> None:
    assert normal_quantile(numbers(0.0)).item() == pytest.approx(-8.29, abs=0.01)
    assert normal_quantile(numbers(1.0 - 2**-53)).item() == pytest.approx(8.21, abs=0.01)


@pytest.mark.parametrize(
    ("alpha", "beta"), [(1.0, 1.0), (1.0001, 1.0), (1.0, 50.0), (2.0, 3.0), (300.0, 2.0), (1e3, 1e3), (1.0, 1e4)]
)
def test_beta_quantiles_invert_the_incomplete_beta_function(alpha: float, beta: float) -> None:
    probability = numbers(1e-9, 1e-3, 0.31, 0.5, 0.77, 1 - 1e-6)
    found = beta_quantile(probability, torch.full_like(probability, alpha), torch.full_like(probability, beta))
    for wanted, (x, rest) in zip(probability.tolist(), found.tolist(), strict=True):
        with mpmath.workdps(25):
            if wanted < 0.5:
                mass = mpmath.betainc(alpha, beta, 0, x, regularized=True)
            else:
                mass = 1 - mpmath.betainc(beta, alpha, 0, rest, regularized=True)
            density = mpmath.mpf(x) ** (alpha - 1) * mpmath.mpf(rest) ** (beta - 1) / mpmath.beta(alpha, beta)
            error = float(abs(mass - wanted) / density)
        assert error < 1e-9
        assert error < 2e-9 * min(x, rest)

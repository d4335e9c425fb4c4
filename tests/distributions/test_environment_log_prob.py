"""Log-probabilities of actions as environments receive them, against integrals and other implementations."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.core.spaces import environment_actions
from maze_pl.distributions import (
    BetaProbabilityDistribution,
    CategoricalProbabilityDistribution,
    DeterministicProbabilityDistribution,
    DiagonalGaussianProbabilityDistribution,
    DictProbabilityDistribution,
    SquashedGaussianProbabilityDistribution,
)

GAUSSIAN = DiagonalGaussianProbabilityDistribution


def log_of_normal(action: float, mean: float, std: float, low: float, high: float) -> float:
    """One clipped component, with many digits."""
    with mpmath.workdps(60):
        mean, std = mpmath.mpf(mean), mpmath.mpf(std)
        if action <= low and action >= high:
            return 0.0
        if action <= low:
            return float(mpmath.log(mpmath.ncdf((low - mean) / std)))
        if action >= high:
            return float(mpmath.log(mpmath.ncdf((mean - high) / std)))
        return float(mpmath.log(mpmath.npdf(action, mean, std)))


BOUNDS = {
    "both": ([-1.0, -0.3], [1.0, 0.7]),
    "only_low": ([0.1, -1.0], [np.inf, np.inf]),
    "only_high": ([-np.inf, -np.inf], [0.1, 2.0]),
    "none": ([-np.inf, -np.inf], [np.inf, np.inf]),
    "mixed": ([-0.1, -np.inf], [np.inf, 0.3]),
    "one_value": ([0.5, -1.0], [0.5, 1.0]),
}


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stored", [np.float32, np.float64])
def test_a_bound_has_the_probability_of_all_that_is_clipped_to_it(name: str, dtype: Any, stored: Any) -> None:
    low, high = (np.array(bound, dtype) for bound in BOUNDS[name])
    space = spaces.Box(low, high, (2,), dtype)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(300, 4, generator=generator)
    distribution = GAUSSIAN(logits, space)
    action = environment_actions(space, distribution.sample(generator).numpy()).astype(stored)
    found = distribution.environment_log_prob(torch.from_numpy(action))
    mean, std = logits[:, :2].double().numpy(), logits[:, 2:].double().exp().numpy()
    single_low, single_high, single = low.astype(np.float32), high.astype(np.float32), action.astype(np.float32)
    for n in range(300):
        numbers = [(float(x), float(m), float(s)) for x, m, s in zip(single[n], mean[n], std[n], strict=True)]
        edges = zip(single_low, single_high, strict=True)
        terms = [log_of_normal(*part, float(a), float(b)) for part, (a, b) in zip(numbers, edges, strict=True)]
        assert float(found[n]) == pytest.approx(sum(terms), rel=2e-4, abs=2e-4)


@pytest.mark.parametrize(
    "kind",
    [GAUSSIAN, BetaProbabilityDistribution, SquashedGaussianProbabilityDistribution],
    ids=lambda kind: kind.__name__,
)
def test_a_box_without_dimensions_is_one_component(kind: Any) -> None:
    logits = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    action = torch.linspace(-0.9, 0.9, 9)
    if kind is GAUSSIAN:
        action = torch.linspace(-1.0, 1.0, 9)  # with both bounds
    scalar = kind(logits, spaces.Box(-1.0, 1.0, ())).environment_log_prob(action)
    single = kind(logits, spaces.Box(-1.0, 1.0, (1,))).environment_log_prob(action[:, None])
    assert scalar.shape == (9,)
    assert torch.equal(scalar, single)
    if kind is GAUSSIAN:
        for n in range(9):
            mean, log_std = logits[n].tolist()
            expected = log_of_normal(float(action[n]), mean, math.exp(log_std), -1.0, 1.0)
            assert float(scalar[n]) == pytest.approx(expected, rel=2e-4, abs=2e-4)


def test_probabilities_and_densities_add_up_to_one() -> None:
    space = spaces.Box(-1.0, 2.0, (1,))
    logits = torch.tensor([1.4, 0.3], dtype=torch.float64)
    distribution = GAUSSIAN(logits, space)
    inside = torch.linspace(-1.0, 2.0, 30_001, dtype=torch.float64)[1:-1, None]
    mass = distribution.environment_log_prob(torch.tensor([[-1.0], [2.0]])).exp().sum()
    total = distribution.environment_log_prob(inside).exp().sum() * 1e-4 + mass
    assert float(total) == pytest.approx(1.0, abs=1e-4)


def test_tails_far_away_have_finite_values_and_gradients() -> None:
    space = spaces.Box(np.float32([-1.0, -np.inf, -1.0]), np.float32([1.0, np.inf, np.inf]))
    logits = torch.tensor([50.0, 0.0, 90.0, -1.0, 0.0, -1.0], requires_grad=True)
    action = torch.tensor([[-1.0, 3.0, -1.0], [1.0, -3.0, 5.0]])
    found = GAUSSIAN(logits.expand(2, -1), space).environment_log_prob(action)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert found.isfinite().all() and gradient.isfinite().all()
    std = math.exp(-1.0)
    expected = log_of_normal(-1.0, 50.0, std, -1.0, 1.0) + log_of_normal(3.0, 0.0, 1.0, -9.0, 9.0)
    expected += log_of_normal(-1.0, 90.0, std, -1.0, 1e9)
    assert float(found[0].detach()) == pytest.approx(expected, rel=1e-4)


def test_actions_beyond_the_bounds_are_received_as_the_bounds() -> None:
    distribution = GAUSSIAN(torch.tensor([0.2, 0.1]), spaces.Box(-1.0, 1.0, (1,)))
    found = distribution.environment_log_prob(torch.tensor([[-7.0], [-1.0], [4.0], [1.0]]))
    assert found[0] == found[1] and found[2] == found[3] and found[0] != found[2]


def test_noise_that_ends_at_the_bounds_has_probabilities_there() -> None:
    space = spaces.Box(-2.0, 4.0, (1,))
    distribution = DeterministicProbabilityDistribution(torch.full((2000, 1), 0.9), space)
    distribution.exploration = 0.4
    action = distribution.sample(torch.Generator().manual_seed(0))
    found = distribution.environment_log_prob(action)
    mean, std = float(distribution.deterministic_sample()[0]), 3.0 * 0.4
    expected = [log_of_normal(float(one), mean, std, -2.0, 4.0) for one in action]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)
    is_high = action.squeeze(-1) == 4.0
    assert is_high.any() and float(is_high.float().mean()) == pytest.approx(math.exp(found[is_high][0]), abs=0.03)


@pytest.mark.parametrize("mean", [-14.0, -9.2, 0.3, 8.7, 14.0])
def test_a_saturated_squashed_gaussian_has_the_probabilities_of_its_rounded_samples(mean: float) -> None:
    space = spaces.Box(-1.0, 1.0, (1,))
    distribution = SquashedGaussianProbabilityDistribution(torch.tensor([mean, 0.0]).expand(20_000, -1), space)
    action = distribution.sample(torch.Generator().manual_seed(1))
    found = distribution.environment_log_prob(action)
    for bound in (-1.0, 1.0):
        is_there = action.squeeze(-1) == bound
        share = float(is_there.float().mean())
        mass = float(distribution.environment_log_prob(torch.full_like(action, bound))[0].exp())
        assert share == pytest.approx(mass, abs=0.02)
    inside = action.squeeze(-1).abs() < 1.0
    torch.testing.assert_close(found[inside], distribution.log_prob(action)[inside])


@pytest.mark.parametrize(
    ("low", "high", "mean", "log_std"),
    [(-1.0, 2.0, -8.0, 0.5), (-1.0, 2.0, 8.6, 0.3), (-0.001, 1.0, -12.0, 0.4), (0.25, 100.0, -11.0, 0.3)],
)
def test_bounds_near_0_have_the_share_of_samples_that_are_rounded_to_them(
    low: float, high: float, mean: float, log_std: float
) -> None:
    space = spaces.Box(low, high, (1,))
    logits = torch.tensor([mean, log_std]).expand(100_000, -1)
    distribution = SquashedGaussianProbabilityDistribution(logits, space)
    action = distribution.sample(torch.Generator().manual_seed(2)).squeeze(-1)
    bound = float(space.low[0] if mean < 0 else space.high[0])
    inward = np.float32(np.inf if mean < 0 else -np.inf)
    share = float((action == bound).float().mean())
    mass = float(distribution.environment_log_prob(torch.full((100_000, 1), bound))[0].exp())
    with mpmath.workdps(30):  # x from which an action lies less than half a float from the bound
        half = abs(mpmath.mpf(float(np.nextafter(np.float32(bound), inward))) - bound) / 2
        fraction = half / (mpmath.mpf(float(space.high[0])) - float(space.low[0]))
        x = (mpmath.log(fraction) - mpmath.log(1 - fraction)) / 2
        expected = float(mpmath.ncdf((x - (mean if mean < 0 else -mean)) / mpmath.exp(log_std)))
    assert 0.05 < expected < 0.95
    assert mass == pytest.approx(expected, rel=1e-3)
    assert share == pytest.approx(mass, abs=0.005)


def test_a_bound_of_0_to_which_nothing_is_rounded_has_no_probability() -> None:
    space = spaces.Box(np.float32([0.0, -10.0]), np.float32([10.0, 0.0]))
    logits = torch.tensor([-9.0, 9.0, 0.5, 0.5])
    distribution = SquashedGaussianProbabilityDistribution(logits.expand(10_000, -1), space)
    assert not bool((distribution.sample(torch.Generator().manual_seed(3)) == 0.0).any())
    for kind in (SquashedGaussianProbabilityDistribution, BetaProbabilityDistribution):
        found = kind(logits[None], space).environment_log_prob(torch.zeros(1, 2))
        assert found.isfinite().all() and float(found) < -150.0


@pytest.mark.parametrize(("mean", "std"), [(-46.0, 1.0), (-50.0, math.e), (44.0, 1.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_bound_of_0_has_the_share_of_samples_for_which_the_sigmoid_underflows(
    mean: float, std: float, dtype: torch.dtype
) -> None:
    if dtype == torch.float64:  # underflows at -709.8 instead of -88.7
        mean += math.copysign(310.53, mean)
    space = spaces.Box(0.0, 1.0, (1,)) if mean < 0 else spaces.Box(-1.0, 0.0, (1,))
    logits = torch.tensor([mean, math.log(std)], dtype=dtype).expand(20_000, -1)
    distribution = SquashedGaussianProbabilityDistribution(logits, space)
    action = distribution.sample(torch.Generator().manual_seed(5))
    share = float((action == 0.0).double().mean())
    mass = float(distribution.environment_log_prob(torch.zeros_like(action))[0].exp())
    assert share > 0.3 and mass == pytest.approx(share, abs=0.015)


def log_of_beta(action: float, alpha: float, beta: float, low: float, high: float) -> float:
    """One component in float32, with many digits."""
    with mpmath.workdps(60):
        a, b, width = mpmath.mpf(alpha), mpmath.mpf(beta), mpmath.mpf(high) - mpmath.mpf(low)
        if action > low and action < high:
            at = (mpmath.mpf(action) - low) / width
            return float(mpmath.log(at ** (a - 1) * (1 - at) ** (b - 1) / mpmath.beta(a, b) / width))
        is_low = action <= low
        nearest, inward = (low, np.inf) if is_low else (high, -np.inf)
        half = abs(mpmath.mpf(float(np.nextafter(np.float32(nearest), np.float32(inward)))) - nearest) / 2
        first, second = (a, b) if is_low else (b, a)
        return float(mpmath.log(mpmath.betainc(first, second, 0, half / width, regularized=True)))


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.25, 100.0), (0.0, 10.0), (-5.0, 0.0)])
def test_bounds_have_the_probability_that_a_beta_distribution_is_rounded_to_them(low: float, high: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 4.0 * torch.randn(40, 2, generator=generator)
    distribution = BetaProbabilityDistribution(logits, spaces.Box(low, high, (1,)))
    action = torch.linspace(low, high, 41)[:40, None].clone()
    action[::3] = low
    action[1::3] = high
    action[3] = low - 1.0  # received as the bound
    found = distribution.environment_log_prob(action)
    assert found.dtype == torch.float32
    for n in range(40):
        alpha, beta = distribution.concentration[n, 0].tolist()
        expected = log_of_beta(float(action[n]), alpha, beta, low, high)
        assert float(found[n]) == pytest.approx(expected, rel=1e-5, abs=1e-4)
    inside = torch.arange(40) % 3 == 2
    torch.testing.assert_close(found[inside], distribution.log_prob(action)[inside])


@pytest.mark.slow
def test_samples_of_a_beta_distribution_end_on_a_bound_as_often_as_its_probability_says() -> None:
    logits = torch.tensor([-30.0, 60.0]).expand(1_000_000, -1)
    distribution = BetaProbabilityDistribution(logits, spaces.Box(100.0, 101.0, (1,)))
    action = distribution.sample(torch.Generator().manual_seed(4))
    share = float((action == 100.0).float().mean())
    mass = float(distribution.environment_log_prob(torch.full_like(action, 100.0))[0].exp())
    assert share == pytest.approx(mass, rel=0.15) and share > 1e-4


def test_other_heads_are_received_as_they_are() -> None:
    generator = torch.Generator().manual_seed(2)
    beta = BetaProbabilityDistribution(torch.randn(5, 4, generator=generator), spaces.Box(0.0, 1.0, (2,)))
    option = CategoricalProbabilityDistribution(torch.randn(5, 3, generator=generator), spaces.Discrete(3))
    joint = DictProbabilityDistribution({"beta": beta, "option": option})
    action = joint.sample(generator)
    torch.testing.assert_close(joint.environment_log_prob(action), joint.log_prob(action))

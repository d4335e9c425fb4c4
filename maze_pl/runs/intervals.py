"""Statistics of a few runs: the mean and the interquartile mean, each with a confidence interval."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maze_pl.core.exact_sums import exact_mean

CONFIDENCE = 0.95
"""Confidence level of all intervals."""
N_RESAMPLES = 10_000
"""Number of bootstrap samples."""
_PRECISION = 1e-12
_LARGEST = sys.float_info.max

Interval = tuple[float, float]
"""Lower and upper end."""


@dataclass(frozen=True)
class Estimate:
    """Summary of independent numbers, such as the returns of several seeds.

    Attributes:
        n: Number of values.
        mean: Their mean.
        mean_interval: Interval of the mean by Student's t; None for a single value.
        iqm: Their interquartile mean.
        iqm_interval: Interval of the interquartile mean by the bootstrap; None for a single value.
    """

    n: int
    mean: float
    mean_interval: Interval | None
    iqm: float
    iqm_interval: Interval | None


def estimate(values: Sequence[float]) -> Estimate:
    """Summarise independent numbers.

    Args:
        values: At least one number.

    Raises:
        ValueError: There is no number.
    """
    if not values:
        raise ValueError("there is nothing to summarise: at least one number is needed")
    numbers = np.asarray(values, dtype=np.float64)
    is_single = len(numbers) == 1
    return Estimate(
        n=len(numbers),
        mean=exact_mean(values),
        mean_interval=None if is_single else t_interval(numbers.tolist()),
        iqm=interquartile_mean(numbers.tolist()),
        iqm_interval=None if is_single else bootstrap_interval(numbers.tolist()),
    )


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean without the lowest and the highest floor(n / 4) of n values.

    Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice",
    arXiv:2108.13264. With fewer than 4 values nothing is left out.

    Args:
        values: At least one number.
    """
    left_out = len(values) // 4
    kept = sorted(values)[left_out : len(values) - left_out]
    return exact_mean(kept)


def t_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the confidence interval of the mean of normally distributed values.

        mean +- t_{n-1} * s / sqrt(n),   s^2 = sum((x_i - mean)^2) / (n - 1)

    Student 1908, "The probable error of a mean", Biometrika 6.

    Args:
        values: At least two numbers.
        confidence: Probability that such an interval contains the true mean.
    """
    n = len(values)
    mean = exact_mean(values)
    distance = math.hypot(*(value - mean for value in values))  # no square overflows
    half = t_quantile(confidence, n - 1) * distance / math.sqrt((n - 1) * n)
    return mean - half, mean + half


def t_quantile(confidence: float, degrees: int) -> float:
    """Return the t for which P(|T| <= t) equals `confidence` under Student's distribution.

    Args:
        confidence: Probability, above 0 and below 1.
        degrees: Degrees of freedom, at least 1.
    """
    low, high = 0.0, 1.0
    while t_probability(high, degrees) < confidence:
        high *= 2.0
    while high - low > _PRECISION * high:
        middle = (low + high) / 2.0
        if t_probability(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return high


def t_probability(t: float, degrees: int) -> float:
    """Return P(|T| <= t) under Student's distribution.

    A finite sum: Abramowitz and Stegun 1964, "Handbook of mathematical functions", 26.7.3 for odd
    and 26.7.4 for even degrees of freedom.

    Args:
        t: A number that is not negative.
        degrees: Degrees of freedom, at least 1.
    """
    angle = math.atan(t / math.sqrt(degrees))
    square = math.cos(angle) ** 2
    is_odd = degrees % 2 == 1
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for index in range(degrees // 2):
        total += term
        numerator = 2 * index + 2 if is_odd else 2 * index + 1
        term *= square * numerator / (numerator + 1)
    if is_odd:
        return 2.0 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def bootstrap_interval(
    values: Sequence[float],
    confidence: float = CONFIDENCE,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return the percentile bootstrap interval of the interquartile mean.

    Efron 1979, "Bootstrap methods: another look at the jackknife", as used by Agarwal et al. 2021,
    arXiv:2108.13264. With fewer than about 5 values it is too narrow: it never reaches beyond the
    lowest and the highest of them.

    Args:
        values: At least two numbers.
        confidence: Share of the resampled estimates that lie in the interval.
        n_resamples: Number of samples with replacement.
        seed: Seed of the resampling.
    """
    generator = np.random.default_rng(seed)
    n = len(values)
    numbers = np.asarray(values, dtype=np.float64)
    scale = 1.0 / n if np.abs(numbers).max() > _LARGEST / n else 1.0  # no sum overflows
    resamples = np.sort(generator.choice(numbers * scale, (n_resamples, n)), axis=1)
    left_out = n // 4
    estimates = resamples[:, left_out : n - left_out].mean(axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(estimates, [tail, 1.0 - tail])
    return float(low) / scale, float(high) / scale

"""Customers' demand: Poisson numbers whose mean stays, follows a season, or drifts."""

from __future__ import annotations

from math import exp, floor, lgamma, log, pi, sin

import numpy as np

from maze_pl.envs.structured_env import Array

_TAIL = 1e-10
"""Probability that is cut off: larger demand counts as the largest in the table."""


class PoissonDemand:
    """Poisson demand with a constant, seasonal or drifting mean.

        mean_t = level_t * (1 + amplitude * sin(2 pi t / season))

    Without `drift`, the level is `mean`. With it, the level is a random walk on lowest, lowest + step,
    ..., highest: in each period it moves down with probability drift / 2 and up with probability
    drift / 2, staying where it is at an end. It starts at a level drawn with equal probabilities.
    Demand is drawn by inversion from tables, which leave out a tail of probability 1e-10.

    Args:
        mean: Mean demand of a period, in units; with drift, the scale of observations.
        season: Length of a season in periods.
        amplitude: Relative amplitude of the season, from 0 to 1.
        drift: Probability that the level moves in a period.
        step: Distance of two levels, in units.
        lowest: Lowest level; `mean` / 2 if None.
        highest: Highest level; 1.5 `mean` if None.

    Raises:
        ValueError: An option is out of range.

    Attributes:
        levels: [n_levels] float64, the levels.
        probabilities: [n_levels, season, n_values] float64, probability of each demand.
        largest: Largest demand, n_values - 1.
    """

    def __init__(
        self,
        mean: float,
        season: int = 1,
        amplitude: float = 0.0,
        drift: float = 0.0,
        step: float = 1.0,
        lowest: float | None = None,
        highest: float | None = None,
    ) -> None:
        if not 0 < mean <= 1000:
            raise ValueError(f"{mean=} units must be above 0 and at most 1000")
        if season < 1 or not 0 <= amplitude <= 1:
            raise ValueError(f"{season=} periods must be at least 1, and {amplitude=} from 0 to 1")
        if amplitude and season < 2:
            raise ValueError(f"{amplitude=} needs a season of at least 2 periods; got {season=}")
        if not 0 <= drift <= 1 or step <= 0:
            raise ValueError(f"{drift=} must be a probability, and {step=} units above 0")
        self.mean = float(mean)
        self.season = season if amplitude else 1
        self.amplitude = float(amplitude)
        self.drift = float(drift)
        self.levels = np.array([self.mean])
        if drift:
            low = mean / 2 if lowest is None else lowest
            high = 1.5 * mean if highest is None else highest
            if not 0 < low < high <= 1000:
                raise ValueError(f"lowest={low} and highest={high} must satisfy 0 < lowest < highest <= 1000 units")
            self.levels = low + step * np.arange(floor((high - low) / step + 1e-9) + 1)
            if len(self.levels) < 2:
                raise ValueError(
                    f"{step=} is larger than the span from {low} to {high}; drift needs two levels or more"
                )
        elif lowest is not None or highest is not None:
            raise ValueError(f"{lowest=} and {highest=} belong to drifting demand; give drift, too, or leave them out")
        means = np.multiply.outer(self.levels, [self._factor(t) for t in range(self.season)])
        self.largest = _largest(float(means.max()))
        self.probabilities = np.zeros((*means.shape, self.largest + 1))
        for place in np.ndindex(*means.shape):
            self.probabilities[place] = _poisson(float(means[place]), self.largest)
        self._cumulative = self.probabilities.cumsum(axis=-1)
        self._cumulative[..., -1] = 1.0

    def _factor(self, period: int) -> float:
        """Factor of the season."""
        return 1 + self.amplitude * sin(2 * pi * period / self.season)

    def first_levels(self, numbers: Array) -> Array:
        """Numbers [n] int64 of the levels that episodes start with, from uniform numbers [n] in [0, 1)."""
        return (numbers * len(self.levels)).astype(np.int64)

    def draw(self, levels: Array, periods: Array, numbers: Array) -> tuple[Array, Array]:
        """Draw the demand of a period, and the levels of the next one.

        Args:
            levels: [n] int64, numbers of the levels.
            periods: [n] int64, periods since the start of the episode.
            numbers: [n, 2] float64, uniform in [0, 1).

        Returns:
            Demand [n] int64 in units, and levels [n] int64.
        """
        cumulative = self._cumulative[levels, periods % self.season]
        demand = (cumulative <= numbers[:, :1]).sum(axis=1)
        moves = (numbers[:, 1] >= 1 - self.drift / 2).astype(np.int64) - (numbers[:, 1] < self.drift / 2)
        return demand, np.clip(levels + moves, 0, len(self.levels) - 1)


def _largest(mean: float) -> int:
    """Return a demand that is exceeded with a probability of at most 1e-10, slightly above the smallest one."""
    value = floor(mean)
    term = exp(value * log(mean) - mean - lgamma(value + 1)) if mean else 0.0
    while term > _TAIL / 10:
        value += 1
        term *= mean / value
    return max(value, 1)


def _poisson(mean: float, largest: int) -> Array:
    """Probabilities [largest + 1] of a Poisson distribution; the last one includes the tail."""
    if mean == 0:
        return np.asarray(np.eye(1, largest + 1)[0])
    values = np.arange(largest + 1)
    logarithms = np.array([lgamma(value + 1) for value in values])
    probabilities = np.exp(values * log(mean) - mean - logarithms)
    probabilities[-1] += max(1 - probabilities.sum(), 0.0)
    return np.asarray(probabilities / probabilities.sum())

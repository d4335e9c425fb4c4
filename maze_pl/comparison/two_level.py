"""Confidence intervals of estimates from several runs with the same episodes.

Runs and episodes count if they have a value, see `effects`. With at least 8 episodes, and one run
or at least 8 of them for each entry, the interval is that of a studentized bootstrap of two levels
(Efron 1981, "Nonparametric standard errors and confidence intervals"; Davison and Hinkley 1997,
"Bootstrap methods and their application", sections 3.8 and 5.2):

    estimate - q_{1 - alpha / 2} sqrt(V)   to   estimate - q_{alpha / 2} sqrt(V)

with the quantiles q of t* = (estimate* - estimate) / sqrt(V*). Episodes are drawn with
replacement, all entries together, which keeps them paired. Effects of runs are drawn from a normal
distribution with the estimated variance, since resampling about 10 of them is too coarse. The
percentile bootstrap that Agarwal et al. 2021, arXiv:2108.13264, use covers too rarely with so few
runs: it takes the observed effects of runs for all that there are.

An interquartile mean whose kept values are all equal has the percentile bootstrap, see `plateaus`.

With 2 to 7 runs or fewer than 8 episodes no bootstrap covers often enough. The interval then is
Student's t with the degrees of freedom of Satterthwaite 1946, "An approximate distribution of
estimates of variance components". `tests/comparison/test_coverage.py` simulates both.

Wins, losses and ties of one size in the episodes of single runs have the interval of `outcomes`.
So do means of single runs with only two different results, if there are at least 8 episodes. In
fewer episodes differences may have one size by chance: their intervals also cover that of Student.

If few episodes decide, such as rare large differences, all resamples favour the same entry, and
the bootstrap alone would exclude 0. The interval of a difference of two single runs, and any
comparison with ties or rare large differences, therefore covers Student's interval, too: like
differences of equally good policies, it is symmetric. With ties or rare large differences, one
more win of each entry, in one run and episode, is added to Student's variance, as in the adjusted
interval of Bonett and Price 2012, "Adjusted Wald confidence interval for a difference of binomial
proportions based on paired data", Journal of Educational and Behavioral Statistics 37. Their
interval also moves towards 0; this one keeps its centre. `tests/comparison/test_rare_events.py`
enumerates how often intervals exclude 0 by mistake.

Differences that seem not to vary have an interval of width 0, unless a sign test of so few
episodes or runs could not exclude 0; it then reaches from 0 to twice the difference.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from maze_pl.comparison.effects import FEWEST_UNITS, Effects, RunVariance, Values
from maze_pl.comparison.outcomes import score_interval
from maze_pl.comparison.plateaus import iqm_percentile_interval
from maze_pl.runs.intervals import CONFIDENCE, N_RESAMPLES, Interval, t_quantile

_LEAST_VARIANCE = 0.1
"""Smallest variance of a resample, relative to the variance from episodes.

Resamples of a rare event may be constant; without a bound, t* and the interval would be infinite."""
_MOST_DEGREES = 1000
"""More degrees of freedom hardly change the quantile, but take time."""
_N_TOGETHER = 64


def two_level_intervals(
    estimates: Sequence[Effects], confidence: float = CONFIDENCE, n_resamples: int = N_RESAMPLES, seed: int = 0
) -> list[Interval | None]:
    """Return a confidence interval for each estimate; None where the data does not determine one.

    That is the case for fewer than two values, for a single episode unless all entries have several
    runs, and where only one of several runs has values. Results that never vary have intervals of
    width 0, but for few equal differences.

    Args:
        estimates: The estimates.
        confidence: Probability that such an interval contains the true value.
        n_resamples: Number of bootstrap samples.
        seed: Seed of the resampling, which is the same for all estimates.
    """
    intervals: list[Interval | None] = [None] * len(estimates)
    resampled: dict[int, list[int]] = {}  # by the number of episodes
    for index, effects in enumerate(estimates):
        if not _is_determined(effects):
            continue
        if effects.plateau is not None:
            intervals[index] = iqm_percentile_interval(effects.plateau, confidence, seed)
        elif effects.outcomes is not None:
            interval = score_interval(effects.outcomes, confidence)
            is_short = effects.n_values < FEWEST_UNITS
            intervals[index] = _wide_enough(interval, effects, confidence) if is_short else interval
        elif effects.is_constant:
            n_equal = min(effects.n_values, effects.n_runs) if effects.runs else effects.n_values
            half = 0.0 if n_equal >= fewest_equal(confidence) else abs(effects.estimate)
            intervals[index] = (effects.estimate - half, effects.estimate + half)
        elif effects.variance == 0.0 and not effects.added_variance:
            intervals[index] = (effects.estimate, effects.estimate)
        elif _has_enough_units(effects):
            resampled.setdefault(effects.n_values, []).append(index)
        else:
            intervals[index] = student_interval(effects, confidence)
    for n_values, of_number in resampled.items():
        bootstrap = Bootstrap(n_values, n_resamples, seed)
        for first in range(0, len(of_number), _N_TOGETHER):
            indices = of_number[first : first + _N_TOGETHER]
            found = bootstrap.intervals([estimates[index] for index in indices], confidence)
            for index, interval in zip(indices, found, strict=True):
                intervals[index] = _wide_enough(interval, estimates[index], confidence)
    return intervals


def _is_determined(effects: Effects) -> bool:
    """True if the data determines an interval."""
    if math.isnan(effects.estimate) or effects.lacks_runs:
        return False
    if effects.n_episodes == 1:
        return effects.is_repeated
    return effects.n_values >= 2


def _has_enough_units(effects: Effects) -> bool:
    """True if there are enough episodes and runs for the bootstrap."""
    has_episodes = effects.n_values >= FEWEST_UNITS
    return has_episodes and all(part.n_runs >= FEWEST_UNITS for part in effects.runs)


def _wide_enough(interval: Interval, effects: Effects, confidence: float) -> Interval:
    """Return an interval, widened so that it covers that of Student where it has to."""
    if effects.added_variance is None:
        return interval
    low, high = student_interval(effects, confidence)
    return min(interval[0], low), max(interval[1], high)


def fewest_equal(confidence: float) -> int:
    """Return the smallest number of equal differences for which a sign test excludes 0.

        2 / 2^n <= 1 - confidence

    Args:
        confidence: Confidence level.
    """
    return 1 + math.ceil(-math.log2(1.0 - confidence))


def student_interval(effects: Effects, confidence: float) -> Interval:
    """Return the interval by Student's t; if few episodes decide, with one more win of each entry.

    Args:
        effects: An estimate whose variance is not 0, or to which one more win adds variance.
        confidence: Confidence level.
    """
    quantile, error = student_error(effects, confidence, effects.n_values)
    half = quantile * error
    return effects.estimate - half, effects.estimate + half


def student_error(effects: Effects, confidence: float, n_values: float) -> tuple[float, float]:
    """Return Student's quantile and the standard error, as expected after another number of episodes.

    Args:
        effects: An estimate from at least 2 episodes, or from the same number of them.
        confidence: Confidence level.
        n_values: Number of episodes with a value.
    """
    degrees = min(degrees_of_freedom(effects, n_values), _MOST_DEGREES)
    quantile = _student_quantile(confidence, degrees)
    variance = effects.variance_of_episodes * effects.n_values / n_values
    variance += sum(part.excess for part in effects.runs)
    if effects.added_variance:
        variance += effects.added_variance * effects.n_values * (effects.n_values - 1) / (n_values * (n_values - 1))
    return quantile, math.sqrt(variance)


@lru_cache(maxsize=4096)
def _student_quantile(confidence: float, degrees: int) -> float:
    """Return `t_quantile`, which is the same for most estimates of a table."""
    return t_quantile(confidence, degrees)


def degrees_of_freedom(effects: Effects, n_values: float | None = None) -> int:
    """Return the degrees of freedom of an estimated variance, rounded down, at least 1.

        V^2 / sum_i (a_i^2 V_i^2 / d_i)   for   V = sum_i a_i V_i

    Satterthwaite 1946, Biometrics Bulletin 2. They are those of the episodes if nothing varies.

    Args:
        effects: An estimate.
        n_values: Number of episodes with a value for which they are expected; None means those there are.
    """
    n_episodes = effects.n_values if n_values is None else n_values
    scale = effects.n_values / n_episodes
    variance = total = 0.0
    if n_episodes > 1:
        variance = effects.variance_of_episodes * scale
        total = variance**2 / (n_episodes - 1)
    for part in effects.runs:
        within = part.within * scale
        if part.excess > 0.0:
            variance += part.excess
            total += (part.excess + within) ** 2 / (part.n_runs - 1)
        if part.excess > 0.0 and n_episodes > 1:
            total += within**2 / ((part.n_runs - 1) * (n_episodes - 1))
    return max(1, math.floor(variance**2 / total if total > 0.0 else n_episodes - 1))


class Bootstrap:
    """Resamples of episodes and runs.

    Args:
        n_episodes: Number of episodes with a value.
        n_resamples: Number of resamples.
        seed: Seed of the resampling.
    """

    def __init__(self, n_episodes: int, n_resamples: int, seed: int) -> None:
        self._seed = seed
        self._n_resamples = n_resamples
        generator = np.random.default_rng([seed, n_episodes])
        drawn = generator.integers(n_episodes, size=(n_resamples, n_episodes))
        drawn += np.arange(n_resamples)[:, None] * n_episodes
        counts = np.bincount(drawn.ravel(), minlength=n_resamples * n_episodes)
        self._weights = counts.reshape(n_resamples, n_episodes) / n_episodes  # [B, E]
        self._runs: dict[tuple[int, int], tuple[Values, Values, Values]] = {}

    def intervals(self, estimates: Sequence[Effects], confidence: float) -> list[Interval]:
        """Return the interval of each estimate.

        Args:
            estimates: Estimates whose variance is not 0.
            confidence: Probability that such an interval contains the true value.
        """
        n = self._weights.shape[1]
        influences = np.stack([effects.episodes for effects in estimates], axis=1)  # [E, K]
        deviation = self._weights @ influences  # [B, K]
        variance = (self._weights @ influences**2 - deviation**2) / (n - 1)
        bounds = [_LEAST_VARIANCE * effects.variance_of_episodes for effects in estimates]
        np.maximum(variance, bounds, out=variance)
        for column, effects in enumerate(estimates):
            for place, part in enumerate(effects.runs):
                effect, excess = self._resampled_runs(part, place)
                deviation[:, column] += effect
                variance[:, column] += excess
        scale = np.sqrt(variance)
        t = np.divide(deviation, scale, out=np.zeros_like(deviation), where=scale > 0.0)
        tail = (1.0 - confidence) / 2.0
        low, high = np.quantile(t, [tail, 1.0 - tail], axis=0)
        intervals = []
        for effects, lower, upper in zip(estimates, low, high, strict=True):
            error = math.sqrt(effects.variance)
            intervals.append((effects.estimate - float(upper) * error, effects.estimate - float(lower) * error))
        return intervals

    def _resampled_runs(self, part: RunVariance, place: int) -> tuple[Values, Values]:
        """Return the mean effect of runs and its estimated variance in each resample.

        Args:
            part: Variance of an estimate from an entry's runs.
            place: Number of the entry in the estimate.
        """
        effect, of_between, of_within = self._draws(part.n_runs, place)
        within = min(part.within, part.between)
        between = (part.excess + within) * of_between
        excess = np.maximum(between - within * of_within, 0.0)
        return math.sqrt(part.excess) * effect, excess

    def _draws(self, n_runs: int, place: int) -> tuple[Values, Values, Values]:
        """Return standard normal numbers, and estimates of a variance of 1 by runs and by episodes."""
        if (n_runs, place) not in self._runs:
            generator = np.random.default_rng([self._seed, n_runs, place])
            degrees = (n_runs - 1) * (self._weights.shape[1] - 1)
            self._runs[n_runs, place] = (
                generator.standard_normal(self._n_resamples),
                generator.chisquare(n_runs - 1, self._n_resamples) / (n_runs - 1),
                generator.chisquare(degrees, self._n_resamples) / degrees,
            )
        return self._runs[n_runs, place]

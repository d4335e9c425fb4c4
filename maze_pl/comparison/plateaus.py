"""Intervals of interquartile means of results that are mostly the same, such as the highest possible return.

If all values that an interquartile mean keeps are equal, small changes of values do not change it:
its influence values are 0, and so would be the width of an interval that follows from them. Here
runs and episodes are resampled, and the interquartile mean of each resample is computed.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maze_pl.comparison.effects import Values
from maze_pl.runs.intervals import Interval

_N_RESAMPLES = 2000
_FEWEST_RESAMPLES = 200
_MOST_NUMBERS = 20_000_000
"""Largest number of weights of all resamples together; with more, there are fewer resamples."""


def iqm_percentile_interval(values: Values, confidence: float, seed: int = 0) -> Interval:
    """Return the percentile interval of the interquartile mean, as in Agarwal et al. 2021, arXiv:2108.13264.

    Runs and episodes are drawn with replacement, the same episodes for all runs, as these have the
    same seeds.

    Args:
        values: [R, E] results; NaN where an episode has none.
        confidence: Confidence level.
        seed: Seed of the resampling.
    """
    n_runs, n_episodes = values.shape
    n_resamples = max(_FEWEST_RESAMPLES, min(_N_RESAMPLES, _MOST_NUMBERS // values.size))
    generator = np.random.default_rng([seed, n_runs, n_episodes])
    of_runs = generator.multinomial(n_runs, np.full(n_runs, 1.0 / n_runs), n_resamples)
    of_episodes = generator.multinomial(n_episodes, np.full(n_episodes, 1.0 / n_episodes), n_resamples)
    counts = (of_runs[:, :, None] * of_episodes[:, None]).reshape(n_resamples, -1)  # [B, R * E]
    means = weighted_iqm(values.ravel(), counts)
    means = means[~np.isnan(means)]
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


def weighted_iqm(values: Values, counts: NDArray[Any]) -> Values:
    """Return the interquartile means of resamples, NaN for those without values.

    Args:
        values: [N] results; NaN where there is none.
        counts: [B, N] number of times that each result is in each resample.
    """
    order = np.argsort(values)  # NaN comes last
    order = order[: int((~np.isnan(values)).sum())]
    ordered = values[order]
    weights = counts[:, order]
    ends = np.cumsum(weights, axis=1)
    if not len(order):
        return np.full(len(counts), np.nan)
    n = ends[:, -1:]
    left_out = n // 4
    kept = np.minimum(ends, n - left_out) - np.maximum(ends - weights, left_out)
    kept = np.maximum(kept, 0)
    with np.errstate(invalid="ignore"):
        means: Values = (kept @ ordered) / (n - 2 * left_out)[:, 0]
    return means

"""Estimates from episodes of several runs on the same seeds, in a form from which intervals follow.

Results of an entry are an array [R, E]: R runs of one configuration, each with the same E episodes.
An estimate (a mean, an interquartile mean, a difference, a probability of improvement) is close to a
constant plus a mean over its *influence values* [R, E], see Hampel 1974, "The influence curve and its
role in robust estimation". Its variance thus is that of a mean with two crossed factors, runs and
episodes:

    V = C / E + max(0, B - W) / R

with the variance C of the means of episodes over runs, the variance B of the means of runs over
episodes, and the part W of it that comes from the interaction of both, as in the analysis of variance
(Searle, Casella and McCulloch 1992, "Variance components", section 4.3).

NaN marks episodes without a value. Runs and episodes that have no value at all tell nothing about the
estimate: they are left out before anything is counted. What is then still missing has the influence 0,
as in a ratio of sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
_ROUNDING = 1e-12
"""Relative size below which a variation is due to rounding."""
_LARGE = 0.1
"""Share of the largest difference above which a difference is large."""


@dataclass(frozen=True)
class RunVariance:
    """Variance of an estimate that comes from the choice of an entry's runs.

    Attributes:
        n_runs: Number of runs, at least 2.
        between: Variance of the mean over the runs, B / R.
        within: Part of it that comes from episodes, W / R.
    """

    n_runs: int
    between: float
    within: float

    @property
    def excess(self) -> float:
        """Part of the variance that is due to differences between runs."""
        return max(0.0, self.between - self.within)


@dataclass(frozen=True)
class Effects:
    """An estimate, with the components of its variance.

    Attributes:
        estimate: The estimate; NaN if there are no values.
        episodes: [n_values] influence of each episode with a value, with mean 0.
        runs: Variance from the runs of each entry with several runs that have values.
        n_episodes: Number of all episodes, E.
        is_repeated: Whether all entries have several runs with values.
        lacks_runs: Whether an entry has several runs of which only one has values, so that the
            differences between its runs are unknown.
        plateau: [R, n_values] results of an interquartile mean if all values that it keeps are equal
            while others differ; its influence values then are 0.
        added_variance: Variance of further wins where few episodes decide, which Student's interval
            includes; None if the interval need not cover that of Student, see `two_level`.
        n_equal: Number of differences, of pairs of runs without a common run, if all differences are
            the same and not 0; else None.
    """

    estimate: float
    episodes: Values
    runs: tuple[RunVariance, ...]
    n_episodes: int
    is_repeated: bool
    lacks_runs: bool
    plateau: Values | None = None
    added_variance: float | None = None
    n_equal: int | None = None

    @property
    def n_values(self) -> int:
        """Number of episodes with a value; for two entries, those in which both have one."""
        return len(self.episodes)

    @cached_property
    def variance_of_episodes(self) -> float:
        """Variance of the estimate from the choice of episodes; 0 for fewer than two with a value."""
        n = self.n_values
        return float(self.episodes.var(ddof=1)) / n if n > 1 else 0.0

    @property
    def variance(self) -> float:
        """Variance of the estimate."""
        return self.variance_of_episodes + sum(part.excess for part in self.runs)


def mean_effects(values: Values) -> Effects:
    """Return the mean of all episodes of all runs.

    Args:
        values: [R, E] results; NaN where an episode has none.
    """
    present = _with_values(values)
    influence, mean = _influence_of_mean(present)
    return _effects(mean, [influence], [1.0], values.shape)


def iqm_effects(values: Values) -> Effects:
    """Return the interquartile mean over all episodes of all runs.

    The mean without the lowest and the highest g = floor(n / 4) of n values, Agarwal et al. 2021,
    arXiv:2108.13264. The influence of a value x is (w - mean(w)) / (1 - 2 g / n), with w = x clipped to
    the values that are kept, as in Tukey and McLaughlin 1963, "Less vulnerable confidence and
    significance procedures for location based on a single sample".

    Args:
        values: [R, E] results; NaN where an episode has none.
    """
    present = _with_values(values)
    is_present = ~np.isnan(present)
    ordered = np.sort(present[is_present])
    n = len(ordered)
    if n == 0:
        return _effects(np.nan, [present], [1.0], values.shape)
    left_out = n // 4
    kept = ordered[left_out : n - left_out]
    clipped = np.where(is_present, np.clip(present, kept[0], kept[-1]), np.nan)
    influence, _ = _influence_of_mean(clipped)
    effects = _effects(float(kept.mean()), [influence / (1.0 - 2.0 * left_out / n)], [1.0], values.shape)
    is_plateau = kept[0] == kept[-1] and ordered[0] != ordered[-1]
    return replace(effects, plateau=present) if is_plateau else effects


def difference_effects(values: Values, baseline: Values) -> Effects:
    """Return the mean difference of two results of the same episode, which have the same seed.

        D = mean of x_re - y_se over all runs r and s, and episodes e, in which both have a result

    Without missing results this is the difference of the two means.

    Args:
        values: [R, E] results x of an entry.
        baseline: [S, E] results y of the entry that it is compared with.
    """
    ours = values[:, None]
    others = baseline[None]
    differences = ours - others  # [R, S, E]
    is_shared = ~np.isnan(differences)
    n_shared = max(1, int(is_shared.sum()))
    sums = [abs(float(np.where(is_shared, table, 0.0).sum())) for table in (ours, others)]
    size = max(sums) / n_shared
    effects = _paired_effects(differences, 0.0, size)
    if effects.n_values and effects.estimate != 0.0 and np.ptp(differences[is_shared]) <= _ROUNDING * size:
        effects = replace(effects, n_equal=n_shared // max(len(values), len(baseline)))
    if len(values) == len(baseline) == 1:
        return replace(effects, added_variance=effects.added_variance or 0.0)
    return effects


def improvement_effects(values: Values, baseline: Values) -> Effects:
    """Return the probability that a run has a higher result than one of the baseline.

        P = 1 / E sum_e 1 / (R S) sum_{r, s} (1 if x_re > y_se, 1 / 2 if equal, else 0)

    Agarwal et al. 2021, arXiv:2108.13264, section 4.3 (the statistic of Mann and Whitney), with the
    seeds of episodes as tasks.

    Args:
        values: [R, E] results x of an entry.
        baseline: [S, E] results y of the entry that it is compared with.
    """
    ours = values[:, None]
    others = baseline[None]
    wins = np.where(ours > others, 1.0, np.where(ours == others, 0.5, 0.0))  # [R, S, E]
    wins[np.isnan(ours) | np.isnan(others)] = np.nan
    return _paired_effects(wins, 0.5)


def _paired_effects(values: Values, of_tie: float, size: float = 0.0) -> Effects:
    """Return the mean over pairs of runs that have results of the same episode.

    Args:
        values: [R, S, E] result of each pair; NaN where one of both has none.
        of_tie: Result of a pair that is equally good.
        size: Size of the numbers that they come from, for rounding errors.
    """
    present = _with_values(values)
    influence, mean = _influence_of_mean(present, size)
    influences = [influence, influence]
    if influence.size:
        influences = [influence.mean(axis=1), influence.mean(axis=0)]  # [R, E] and [S, E]
    weights = [1.0, 0.0]  # both have the same mean in an episode, which counts once
    effects = _effects(mean, influences, weights, values.shape)
    if not influence.size:
        return effects
    are_binary = len(values) == len(values[0]) == 1 or effects.variance == 0.0
    return replace(effects, added_variance=_added_variance(np.abs(present - of_tie), _ROUNDING * size, are_binary))


def _added_variance(sizes: Values, smallest: float, are_binary: bool) -> float | None:
    """Return the variance of a mean that one more win of either entry adds; None unless few episodes may decide.

        (1 / R^2 + 1 / S^2) m / (E (E - 1))   for the mean square m of the large sizes

    Few episodes may decide if there are ties, if at most half of the sizes are large, such as those of
    rare successes among small costs, or if there are only wins and losses of one size.

    Args:
        sizes: [R, S, E] size of the difference of each pair of runs in each episode; NaN if there is none.
        smallest: Size below which a difference is due to rounding.
        are_binary: Whether episodes with wins and losses of one size are binary. Those of several runs are
            not, as they are means over pairs of runs.
    """
    n_runs, n_others, n_episodes = sizes.shape
    largest = float(np.nanmax(sizes))
    large = sizes[sizes > _LARGE * largest]
    has_ties = bool((sizes <= max(smallest, _ROUNDING * largest)).any())
    is_rare = 2 * large.size <= int((~np.isnan(sizes)).sum())
    is_binary = are_binary and float(np.nanmin(sizes)) >= (1.0 - _ROUNDING) * largest
    if n_episodes < 2 or not large.size or not (has_ties or is_rare or is_binary):
        return None
    of_one = (large**2).mean() / (n_episodes * (n_episodes - 1))
    return float((1.0 / n_runs**2 + 1.0 / n_others**2) * of_one)


def _with_values(values: Values) -> Values:
    """Return a table without the runs and episodes that have no value.

    Args:
        values: The table, with runs and episodes on its axes.
    """
    is_present = ~np.isnan(values)
    axes = range(values.ndim)
    has_values = [is_present.any(axis=tuple(other for other in axes if other != axis)) for axis in axes]
    return values[np.ix_(*has_values)]


def _influence_of_mean(values: Values, size: float = 0.0) -> tuple[Values, float]:
    """Return the influence values of a mean over values that are not NaN, and the mean.

    Args:
        values: The values, of any shape.
        size: Size of the numbers that they come from, if it may be larger than the mean; variations
            and means that are small compared with it are due to rounding.
    """
    is_present = ~np.isnan(values)
    n = int(is_present.sum())
    if n == 0:
        return np.zeros_like(values), float("nan")
    mean = float(values[is_present].mean())
    deviation = np.where(is_present, values - mean, 0.0)
    smallest = _ROUNDING * max(size, abs(mean))
    if abs(mean) <= _ROUNDING * size:
        mean = 0.0
    if np.abs(deviation).max() <= smallest:
        return np.zeros_like(values), mean
    return deviation * (values.size / n), mean


def _effects(estimate: float, influences: Sequence[Values], weights: Sequence[float], shape: Sequence[int]) -> Effects:
    """Return an estimate with its variances.

    Args:
        estimate: The estimate.
        influences: [R, n_values] influence values of each entry, of the runs and episodes with values.
        weights: Weight of each entry in the influence of an episode.
        shape: Numbers of all runs of each entry, and of all episodes.
    """
    *n_runs, n_episodes = shape
    episodes = np.zeros(influences[0].shape[-1])
    runs = []
    lacks_runs = False
    for influence, weight, n in zip(influences, weights, n_runs, strict=True):
        if not influence.size:
            continue
        episodes = episodes + weight * influence.mean(axis=0)
        if len(influence) > 1:
            runs.append(_variance_of_runs(influence))
        else:
            lacks_runs |= n > 1
    is_repeated = len(runs) == len(influences)
    return Effects(estimate, episodes, tuple(runs), n_episodes, is_repeated, lacks_runs)


def _variance_of_runs(influence: Values) -> RunVariance:
    """Return the variance from the choice of runs, for influence values [R, E]."""
    n_runs, n_episodes = influence.shape
    of_runs = influence.mean(axis=1)
    between = float(of_runs.var(ddof=1)) / n_runs
    if n_episodes == 1:
        return RunVariance(n_runs, between, 0.0)
    interaction = influence - of_runs[:, None] - influence.mean(axis=0) + influence.mean()
    degrees = (n_runs - 1) * (n_episodes - 1)
    within = float((interaction**2).sum()) / degrees / (n_runs * n_episodes)
    return RunVariance(n_runs, between, within)

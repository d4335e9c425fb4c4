"""Estimates from episodes of several runs on the same seeds, in a form from which intervals follow.

Results of an entry are an array [R, E]: R runs of one configuration, each with the same E
episodes. An estimate (a mean, an interquartile mean, a difference, a probability of improvement)
is close to a constant plus a mean over its *influence values* [R, E], see Hampel 1974, "The
influence curve and its role in robust estimation". Its variance thus is that of a mean with two
crossed factors, runs and episodes:

    V = C / E + max(0, B - W) / R

with the variance C of the means of episodes over runs, the variance B of the means of runs over
episodes, and the part W of it that comes from the interaction of both, as in the analysis of
variance (Searle, Casella and McCulloch 1992, "Variance components", section 4.3).

NaN marks episodes without a value. Runs and episodes that have no value at all tell nothing about
the estimate: they are left out before anything is counted. What is then still missing has the
influence 0, as in a ratio of sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maze_pl.comparison.outcomes import Outcomes

Values = NDArray[np.float64]
FEWEST_UNITS = 8
"""Smallest number of runs, and of episodes, that show how results are distributed."""
_ROUNDING = 1e-10
"""Relative size below which a variation is due to rounding, as in sums in another order."""
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
        """Part of the variance that is due to differences between runs; 0 if it is due to rounding."""
        excess = self.between - self.within
        return excess if excess > _ROUNDING * self.between else 0.0


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
        outcomes: Numbers of wins, losses and ties if the episodes of single runs are such; else None.
        added_variance: Variance of further wins where few episodes decide, which Student's interval
            includes; None if the interval need not cover that of Student, see `two_level`.
        is_constant: Whether this is a difference that seems not to vary, and is not 0.
    """

    estimate: float
    episodes: Values
    runs: tuple[RunVariance, ...]
    n_episodes: int
    is_repeated: bool
    lacks_runs: bool
    plateau: Values | None = None
    outcomes: Outcomes | None = None
    added_variance: float | None = None
    is_constant: bool = False

    @property
    def n_values(self) -> int:
        """Number of episodes with a value; for two entries, those in which both have one."""
        return len(self.episodes)

    @property
    def n_runs(self) -> int:
        """Number of runs with values of both entries of a difference together."""
        return sum(part.n_runs for part in self.runs) + 2 - len(self.runs)

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
    effects = _effects(mean, [influence], [1.0], values.shape)
    if effects.runs or effects.n_values < FEWEST_UNITS or effects.variance == 0.0:
        return effects
    low, high = float(present.min()), float(present.max())
    middle = (low + high) / 2.0
    size = (high - low) / 2.0
    smallest = float(np.abs(present - middle).min())
    is_binary = size - smallest <= _ROUNDING * max(abs(low), abs(high))
    return replace(effects, outcomes=_outcomes(present, middle, size)) if is_binary else effects


def iqm_effects(values: Values) -> Effects:
    """Return the interquartile mean over all episodes of all runs.

    The mean without the lowest and the highest g = floor(n / 4) of n values, Agarwal et al. 2021,
    arXiv:2108.13264. The influence of a value x is (w - mean(w)) / (1 - 2 g / n), with w = x
    clipped to the values that are kept, as in Tukey and McLaughlin 1963, "Less vulnerable
    confidence and significance procedures for location based on a single sample".

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
    differences, size = _differences(values, baseline)
    effects = _paired_effects(differences, size)
    if not effects.n_values:
        return effects
    if effects.variance == 0.0:
        return replace(effects, is_constant=effects.estimate != 0.0)
    present = _with_values(differences)
    sizes = np.abs(present)
    added = _added_variance(sizes)
    if effects.runs:
        return replace(effects, added_variance=added)
    largest = float(sizes.max())
    has_one_size = largest - float(sizes[sizes > 0.0].min()) <= _ROUNDING * max(size, largest)
    outcomes = _outcomes(present, 0.0, largest) if has_one_size else None
    return replace(effects, outcomes=outcomes, added_variance=added or 0.0)


def improvement_effects(values: Values, baseline: Values) -> Effects:
    """Return the probability that a run has a higher result than one of the baseline.

        P = 1 / E sum_e 1 / (R S) sum_{r, s} (1 if x_re > y_se, 1 / 2 if equal, else 0)

    Agarwal et al. 2021, arXiv:2108.13264, section 4.3 (the statistic of Mann and Whitney), with the
    seeds of episodes as tasks.

    Args:
        values: [R, E] results x of an entry.
        baseline: [S, E] results y of the entry that it is compared with.
    """
    differences, _ = _differences(values, baseline)
    wins = np.sign(differences) / 2.0 + 0.5
    effects = _paired_effects(wins)
    if not effects.n_values:
        return effects
    if not effects.runs:
        return replace(effects, outcomes=_outcomes(_with_values(wins), 0.5, 0.5))
    advantages = _with_values(wins) - 0.5
    return replace(
        effects,
        runs=_with_one_more_run(effects.runs, advantages),
        added_variance=_added_variance(np.abs(advantages)),
    )


def _differences(values: Values, baseline: Values) -> tuple[Values, float]:
    """Return the difference [R, S, E] of each pair of runs in each episode, and the usual size of results.

    Differences that are due to rounding are 0.

    Args:
        values: [R, E] results of an entry.
        baseline: [S, E] results of the entry that it is compared with.
    """
    ours = values[:, None]
    others = baseline[None]
    differences = ours - others
    is_shared = ~np.isnan(differences)
    sizes = np.maximum(np.abs(ours), np.abs(others))
    size = float(np.median(sizes[is_shared])) if is_shared.any() else 0.0
    is_tie = np.abs(differences) <= _ROUNDING * np.maximum(sizes, size)
    return np.where(is_tie, 0.0, differences), size


def _paired_effects(values: Values, size: float = 0.0) -> Effects:
    """Return the mean over pairs of runs that have results of the same episode.

    Args:
        values: [R, S, E] result of each pair; NaN where one of both has none.
        size: Size of the numbers that they come from, for rounding errors.
    """
    influence, mean = _influence_of_mean(_with_values(values), size)
    influences = [influence, influence]
    if influence.size:
        influences = [influence.mean(axis=1), influence.mean(axis=0)]  # [R, E] and [S, E]
    weights = [1.0, 0.0]  # both have the same mean in an episode, which counts once
    return _effects(mean, influences, weights, values.shape)


def _outcomes(values: Values, of_tie: float, size: float) -> Outcomes:
    """Return the outcomes of the episodes of a single run or pair of runs.

    Args:
        values: Results of the episodes, of any shape.
        of_tie: Result of a tie.
        size: Amount by which a win is above it, and a loss below it.
    """
    n_wins = int((values > of_tie).sum())
    n_losses = int((values < of_tie).sum())
    return Outcomes(n_wins, n_losses, values.size - n_wins - n_losses, of_tie, size)


def _with_one_more_run(runs: Sequence[RunVariance], advantages: Values) -> tuple[RunVariance, ...]:
    """Return the variances of a probability of improvement, with one more run that always wins or loses.

        B / R + m / R^2,   2 m in place of m if the other entry has a single run

    for the mean m of the products of the advantages of a pair of runs in two different episodes.
    If runs decide, it is 1 / 4; then few runs may all be ordered by chance, and seem not to
    differ: 2 runs are better than 2 others, or worse, in a third of the comparisons. If episodes
    decide, it is about 0.

    Args:
        runs: The variances from the runs of each entry with several runs.
        advantages: [R, S, E] 1 / 2 for wins, -1 / 2 for losses, and 0 for ties; NaN where there are none.
    """
    n_episodes = (~np.isnan(advantages)).sum(axis=2)
    n_products = n_episodes * (n_episodes - 1)
    squares = np.nansum(advantages**2, axis=2)
    if n_products.any():
        products = np.nansum(advantages, axis=2) ** 2 - squares
        of_runs = max(0.0, float(products.sum() / n_products.sum()))
    else:
        of_runs = float(squares.sum() / n_episodes.sum())
    added = of_runs * 2.0 / len(runs)
    return tuple(replace(part, between=part.between + added / part.n_runs**2) for part in runs)


def _added_variance(sizes: Values) -> float | None:
    """Return the variance that one more win of either entry adds; None unless few episodes may decide.

        (1 / R^2 + 1 / S^2) m / (E (E - 1))   for the mean square m of the large sizes

    Few episodes may decide if there are ties, or if at most half of the sizes are large, such as
    those of rare successes among small costs.

    Args:
        sizes: [R, S, E] size of the difference of each pair of runs in each episode; NaN if there is none.
    """
    n_runs, n_others, n_episodes = sizes.shape
    large = sizes[sizes > _LARGE * float(np.nanmax(sizes))]
    is_rare = 2 * large.size <= int((~np.isnan(sizes)).sum())
    if n_episodes < 2 or not large.size or not ((sizes == 0.0).any() or is_rare):
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

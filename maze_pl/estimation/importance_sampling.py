"""Estimators of a policy's value that weight the episodes of another policy.

With rho_i the ratio of the probabilities of act i under both policies, w_i = rho_1 ... rho_i and
w_0 = 1, d_i the discount of act i, r_i the reward after it, and E episodes, of which the subscript e is left out:

    importance sampling              mean of  w_L * sum_i d_i r_i
    weighted importance sampling     sum of   w_L * sum_i d_i r_i   /   sum of w_L
    per decision                     mean of  sum_i w_i d_i r_i
    weighted per decision            sum_i    (sum of w_i d_i r_i   /   sum of w_i)
    doubly robust                    mean of  sum_i d_i (w_i (r_i - q_i) + w_{i-1} v_i)  +  w_L d_{L+1} v_{L+1}

D. Precup, R. S. Sutton and S. Singh 2000, "Eligibility traces for off-policy policy evaluation"
(the first four); N. Jiang and L. Li 2016, arXiv:1511.03722, and P. S. Thomas and E. Brunskill 2016,
arXiv:1604.00923, for the doubly robust one, in which q_i and v_i are a model's values of the act
and of the state. The weight of an episode that has ended stays what it was, as in the second of these.

An act is the decision of one actor: with several sub-steps or agents, w_i is the product over all acts so far.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from maze_pl.estimation.weighted_episodes import Array, ModelValues, WeightedEpisodes

_SMALLEST_TOTAL: Final = 1e-250
"""Sum of relative weights below which they lack digits."""
Estimator = Callable[[WeightedEpisodes, Array], Array]
"""Function of episodes and [R, E] the counts of each episode in R samples; returns [R] estimates."""


def importance_sampling(episodes: WeightedEpisodes, counts: Array) -> Array:
    """Mean of the returns, each multiplied by the weight of its episode: unbiased, with a large variance."""
    weighted = _finite_product(_exp(episodes.log_weights[:, -1]), episodes.returns)
    return _mean(weighted, counts)


def weighted_importance_sampling(episodes: WeightedEpisodes, counts: Array) -> Array:
    """Mean of the returns, weighted by episodes: biased by at most the range of returns, and consistent."""
    returns = episodes.returns[:, np.newaxis]
    means: Array = _weighted_means(episodes.log_weights[:, -1:], returns, counts)[:, 0]
    return means


def per_decision(episodes: WeightedEpisodes, counts: Array) -> Array:
    """Importance sampling in which a reward is weighted by the acts before it only."""
    discounted = episodes.discount * episodes.reward
    weighted = _finite_product(_exp(episodes.log_weights), discounted).sum(1)
    return _mean(weighted, counts)


def weighted_per_decision(episodes: WeightedEpisodes, counts: Array) -> Array:
    """Weighted importance sampling of each reward by itself."""
    discounted = episodes.discount * episodes.reward
    estimates: Array = _weighted_means(episodes.log_weights, discounted, counts).sum(1)
    return estimates


def doubly_robust(episodes: WeightedEpisodes, counts: Array) -> Array:
    """Per-decision importance sampling of what a model of the values leaves unexplained.

    Raises:
        ValueError: The episodes have no values by a model.
    """
    values = _values(episodes)
    after = _exp(episodes.log_weights)
    before = np.concatenate([np.ones((len(after), 1)), after[:, :-1]], axis=1)
    correction = _finite_product(after, episodes.discount * (episodes.reward - values.of_acts))
    expected = _finite_product(before, episodes.discount * values.before)
    tail = _finite_product(after[:, -1], values.tail)
    return _mean((correction + expected).sum(1) + tail, counts)


def weighted_doubly_robust(episodes: WeightedEpisodes, counts: Array) -> Array:
    """The doubly robust estimator with weights that are normalised over the episodes, act by act.

    Raises:
        ValueError: The episodes have no values by a model.
    """
    values = _values(episodes)
    log_weights = episodes.log_weights
    rest = episodes.discount * (episodes.reward - values.of_acts)
    before = episodes.discount * values.before
    correction = _weighted_means(log_weights, rest, counts)
    expected = _weighted_means(log_weights[:, :-1], before[:, 1:], counts)
    first = _mean(before[:, 0], counts)
    tail = _weighted_means(log_weights[:, -1:], values.tail[:, np.newaxis], counts)[:, 0]
    estimates: Array = correction.sum(1) + expected.sum(1) + first + tail
    return estimates


WEIGHTING: Final[dict[str, Estimator]] = {
    "importance_sampling": importance_sampling,
    "weighted_importance_sampling": weighted_importance_sampling,
    "per_decision": per_decision,
    "weighted_per_decision": weighted_per_decision,
}
"""Estimators that need no model, by name."""
DOUBLY_ROBUST: Final[dict[str, Estimator]] = {
    "doubly_robust": doubly_robust,
    "weighted_doubly_robust": weighted_doubly_robust,
}
"""Estimators that need the values of a model, by name."""


def effective_sample_size(episodes: WeightedEpisodes) -> float:
    """Number of episodes of the evaluated policy that would say as much as the weighted ones.

        (sum of w_L)^2 / sum of w_L^2

    L. Kish 1965, "Survey sampling", section 8.2. 0 if no episode could be one of the evaluated policy.
    """
    log_weights = episodes.log_weights[:, -1]
    if np.isneginf(log_weights.max()):
        return 0.0
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights**2).sum())


def _values(episodes: WeightedEpisodes) -> ModelValues:
    """Return the values of the model."""
    if episodes.values is None:
        raise ValueError("doubly robust estimators need the values of a model: fit one before")
    return episodes.values


def _weighted_means(log_weights: Array, values: Array, counts: Array) -> Array:
    """[R, L] means of values [E, L], weighted by column; NaN where no episode has a weight.

    The weights of a column are divided by its largest one, which does not change the means. In a
    sample without the episodes of the largest weights, the others may be too small for float64: the
    largest one among them counts there.
    """
    weights = _relative(log_weights)
    total = counts @ weights
    means: Array = _ratio(counts @ (weights * values), total)
    is_too_small = total < _SMALLEST_TOTAL
    for sample in np.flatnonzero(is_too_small.any(1)):
        columns = np.flatnonzero(is_too_small[sample])
        chosen = np.flatnonzero(counts[sample])
        part = np.ix_(chosen, columns)
        counted = counts[sample, chosen, np.newaxis] * _relative(log_weights[part])
        means[sample, columns] = _ratio((counted * values[part]).sum(0), counted.sum(0))
    return means


def _relative(log_weights: Array) -> Array:
    """[E, L] weights, each column divided by its largest one; 0 where no episode has a weight."""
    largest = log_weights.max(0)
    weights: Array = np.exp(log_weights - np.where(np.isneginf(largest), 0.0, largest))
    return weights


def _exp(log_weights: Array) -> Array:
    """Weights, infinite where they are too large for float64."""
    with np.errstate(over="ignore"):
        weights: Array = np.exp(log_weights)
    return weights


def _mean(values: Array, counts: Array) -> Array:
    """[R] means of values [E] that occur as often as counted."""
    means: Array = counts @ values / counts.sum(1)
    return means


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Quotient; NaN where no episode of the sample has a weight."""
    with np.errstate(invalid="ignore", divide="ignore"):
        quotient: Array = np.where(denominator > 0.0, numerator / denominator, np.nan)
    return quotient


def _finite_product(weights: Array, values: Array) -> Array:
    """Product of weights, which may have overflowed to infinity, and values: 0 where the value is 0."""
    product: Array = np.multiply(weights, values, out=np.zeros_like(values, np.float64), where=values != 0.0)
    return product

"""Rules for the number of episodes: confidence sequences for adding episodes, and power calculations."""

import math
from bisect import bisect_left
from statistics import NormalDist

from maze_pl.comparison.effects import Effects
from maze_pl.comparison.two_level import fewest_equal, student_error
from maze_pl.runs.intervals import CONFIDENCE, Interval

POWER = 0.8
"""Probability with which the recommended number of episodes tells two entries apart."""
_MOST_EPISODES = 10**18
"""Number of episodes with which only differences between runs matter."""
_STEP = 0.02
"""Relative distance of the numbers of episodes that are tried."""
_MOST_STEPS = 350
"""Number of these steps, to 1,000 times as many episodes; then only differences between runs are left."""


def confidence_sequence(effects: Effects, n_planned: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Return the interval of an estimate at this number of episodes in an asymptotic confidence sequence.

        estimate +- s sqrt(2 (n rho^2 + 1) / (n^2 rho^2) log(sqrt(n rho^2 + 1) / alpha))

    for n episodes with a value, which have the standard deviation s. All intervals of the sequence
    together contain the true value with probability 1 - alpha, so that one may look at them after any
    number of episodes and stop: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2021, "Time-uniform
    central limit theory and asymptotic confidence sequences", arXiv:2103.06476, theorem 2.2. rho is
    chosen as in their appendix B.2, so that the interval is narrow at `n_planned` episodes.

    Runs are taken as given: more episodes do not tell more about other runs of the same configuration.

    Args:
        effects: The estimate.
        n_planned: Number of episodes at which the interval is narrow compared to others.
        confidence: Probability 1 - alpha.

    Returns:
        The interval; None for fewer than two values.
    """
    if effects.n_values < 2 or math.isnan(effects.estimate):
        return None
    n = effects.n_values
    level = -2.0 * math.log(1.0 - confidence)
    squared_rho = (level + math.log(level + 1.0)) / n_planned
    growth = n * squared_rho + 1.0
    logarithm = math.log(math.sqrt(growth) / (1.0 - confidence))
    deviation = float(effects.episodes.std(ddof=1))
    half = deviation * math.sqrt(2.0 * growth / (n**2 * squared_rho) * logarithm)
    return effects.estimate - half, effects.estimate + half


def episodes_needed(difference: Effects, confidence: float = CONFIDENCE, power: float = POWER) -> int | None:
    """Return the number of episodes that tells two entries apart, if their difference is as estimated.

        smallest n with   (t_{1 - alpha / 2} + z_power) sqrt(C / n + W / (n (n - 1)) + A) <= d

    for a difference d, variance C per episode, variance W of one more win of each entry if few episodes
    decide, and variance A of the difference between runs, which more episodes do not reduce. Where A
    matters, a larger n may not suffice, as the degrees of freedom then are those of the runs. If only a
    share of the episodes has values, n counts these and is divided by this share. Lachin 1981,
    "Introduction to sample size determination and power analysis for clinical trials"; Colas, Sigaud and
    Oudeyer 2018, arXiv:1806.08295. Differences that do not vary need as many as a sign test.

    Args:
        difference: Difference of two entries.
        confidence: Confidence level 1 - alpha of the interval that should exclude 0.
        power: Probability that it then excludes 0.

    Returns:
        The number; None if no number suffices, or if there are too few values to tell.
    """
    is_constant_of_runs = difference.is_constant and difference.is_repeated
    has_too_few = difference.n_values < 2 and not is_constant_of_runs
    if has_too_few or difference.estimate == 0.0 or math.isnan(difference.estimate):
        return None
    share = difference.n_values / difference.n_episodes
    if difference.is_constant:
        fewest = fewest_equal(confidence)
        return None if difference.runs and difference.n_runs < fewest else math.ceil(fewest / share)
    of_power = NormalDist().inv_cdf(power)
    of_normal = NormalDist().inv_cdf((1.0 + confidence) / 2.0)

    def suffices(n_episodes: int, is_variance_known: bool = False) -> bool:
        of_student, error = student_error(difference, confidence, n_episodes * share)
        quantile = of_normal if is_variance_known else of_student
        return (quantile + of_power) * error <= abs(difference.estimate)

    numbers = range(math.ceil(2 / share), _MOST_EPISODES)
    index = bisect_left(numbers, True, key=lambda n: suffices(n, is_variance_known=True))
    if index == len(numbers):
        return None
    first = enough = numbers[index]
    for _ in range(_MOST_STEPS):
        if suffices(enough):
            return first + bisect_left(range(first, enough), True, key=suffices)
        first = enough + 1
        enough += math.ceil(enough * _STEP)
    return None

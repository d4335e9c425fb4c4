"""Intervals of results that are wins, losses or ties of one size, such as successes and failures.

Resamples of few such results hardly differ, or not at all, so that no bootstrap is reliable for them.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

from maze_pl.runs.intervals import Interval

_N_HALVINGS = 60


@dataclass(frozen=True)
class Outcomes:
    """Numbers of episodes by their outcome.

    Attributes:
        n_wins: Number of wins.
        n_losses: Number of losses.
        n_ties: Number of ties.
        of_tie: Result of a tie.
        size: Amount by which a win is above it, and a loss below it.
    """

    n_wins: int
    n_losses: int
    n_ties: int
    of_tie: float
    size: float


def score_interval(outcomes: Outcomes, confidence: float) -> Interval:
    """Return the interval of the mean result, whose ends are possible means.

    It has all mean results `of_tie + d size` with

        |b - c - n d| - 1 <= z_{1 - alpha / 2} sqrt(n (2 q + d - d^2))

    for b wins and c losses in n episodes, a difference d between the probabilities of a win and of
    a loss, and the probability q of a loss that is the most likely one with this difference:

        q = (sqrt(B^2 - 4 A C) - B) / (2 A)
        A = 2 n,   B = (2 n - b + c) d - b - c,   C = -c d (1 - d)

    Tango 1998, "Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design", Statistics in Medicine 17, with the correction for continuity of Edwards
    1948, "Note on the correction for continuity in testing the significance of the difference
    between correlated proportions", Psychometrika 13. Without ties it is the interval of Wilson
    1927.

    Args:
        outcomes: The outcomes of at least one episode.
        confidence: Confidence level.
    """
    won, lost = outcomes.n_wins, outcomes.n_losses
    n = won + lost + outcomes.n_ties
    quantile = NormalDist().inv_cdf((1.0 + confidence) / 2.0)

    def includes(d: float) -> bool:
        linear = (2 * n - won + lost) * d - won - lost
        root = math.sqrt(max(0.0, linear**2 + 8 * n * lost * d * (1.0 - d)))
        variance = n * ((root - linear) / (2 * n) + d - d**2)
        return abs(won - lost - n * d) - 1.0 <= quantile * math.sqrt(max(0.0, variance))

    def end(inside: float, outside: float) -> float:
        if includes(outside):
            return outside
        for _ in range(_N_HALVINGS):
            middle = (inside + outside) / 2.0
            inside, outside = (middle, outside) if includes(middle) else (inside, middle)
        return inside

    estimate = (won - lost) / n
    low, high = end(estimate, -1.0), end(estimate, 1.0)
    return outcomes.of_tie + low * outcomes.size, outcomes.of_tie + high * outcomes.size

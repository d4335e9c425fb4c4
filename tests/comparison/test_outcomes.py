"""Intervals of wins, losses and ties: coverage by enumeration, order, bounds, and published numbers."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from maze_pl.comparison.effects import Values, difference_effects, improvement_effects, mean_effects
from maze_pl.comparison.outcomes import Outcomes, score_interval
from maze_pl.comparison.two_level import student_interval, two_level_intervals

PROBABILITIES = (0.0, 0.002, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9, 0.95, 0.99, 1.0)


def intervals(n_episodes: int, *, has_ties: bool) -> tuple[Values, Values, Values]:
    """Intervals [K, 2] of the difference of probabilities for all numbers of wins [K] and losses [K]."""
    n_wins, n_losses = np.meshgrid(np.arange(n_episodes + 1.0), np.arange(n_episodes + 1.0), indexing="ij")
    is_possible = n_wins + n_losses <= n_episodes if has_ties else n_wins + n_losses == n_episodes
    wins, losses = n_wins[is_possible], n_losses[is_possible]
    ends = []
    for won, lost in zip(wins, losses, strict=True):
        outcomes = Outcomes(int(won), int(lost), n_episodes - int(won + lost), of_tie=0.0, size=1.0)
        ends.append(score_interval(outcomes, 0.95))
    return wins, losses, np.array(ends)


def probabilities(wins: Values, losses: Values, n_episodes: int, of_win: float, of_loss: float) -> Values:
    """Probability [K] of each number of wins and losses."""
    logarithm: Values = np.full(len(wins), math.lgamma(n_episodes + 1.0))
    numbers = (wins, losses, n_episodes - wins - losses)
    for number, probability in zip(numbers, (of_win, of_loss, max(0.0, 1.0 - of_win - of_loss)), strict=True):
        factorials = np.array([math.lgamma(one + 1.0) for one in number])
        logarithm += np.where(number > 0.0, number * math.log(max(probability, 1e-300)), 0.0) - factorials
    found: Values = np.exp(logarithm)
    return found


@pytest.mark.parametrize("n_episodes", [2, 3, 5, 6, 8, 12, 20, 40])
def test_intervals_with_ties_cover_95_percent_and_rarely_name_a_winner(n_episodes: int) -> None:
    wins, losses, ends = intervals(n_episodes, has_ties=True)
    for of_win in PROBABILITIES:
        for of_loss in PROBABILITIES:
            if of_win + of_loss <= 1.0:
                weights = probabilities(wins, losses, n_episodes, of_win, of_loss)
                covers = (ends[:, 0] <= of_win - of_loss + 1e-9) & (of_win - of_loss - 1e-9 <= ends[:, 1])
                assert weights[covers].sum() >= 0.95


@pytest.mark.parametrize("n_episodes", [*range(2, 30), 100, 162, 200])
def test_intervals_without_ties_cover_95_percent(n_episodes: int) -> None:
    wins, losses, ends = intervals(n_episodes, has_ties=False)
    for of_win in np.concatenate([[0.001, 0.002, 0.005], np.linspace(0.01, 0.5, 50)]):
        weights = probabilities(wins, losses, n_episodes, of_win, 1.0 - of_win)
        covers = (ends[:, 0] <= 2.0 * of_win - 1.0 + 1e-9) & (2.0 * of_win - 1.0 - 1e-9 <= ends[:, 1])
        assert weights[covers].sum() >= (0.95 if of_win == 0.5 else 0.949)
    assert (np.diff(ends, axis=0) >= 0.0).all() and np.abs(ends).max() <= 1.0


@pytest.mark.parametrize("n_episodes", [3, 12, 30])
def test_more_wins_in_place_of_ties_or_losses_raise_both_ends(n_episodes: int) -> None:
    wins, losses, ends = intervals(n_episodes, has_ties=True)
    found = {(won, lost): interval for won, lost, interval in zip(wins, losses, ends, strict=True)}
    for (won, lost), interval in found.items():
        for more in ((won + 1.0, lost), (won + 1.0, lost - 1.0)):
            if more in found:
                assert (found[more] >= interval - 1e-9).all()
        assert found[lost, won] == pytest.approx(-interval[::-1])
    assert np.abs(ends).max() <= 1.0


@pytest.mark.parametrize("alpha", [0.05, 0.025, 0.05 / 3.0, 0.0125])
def test_equally_good_entries_have_a_winner_in_at_most_the_promised_share(alpha: float) -> None:
    for n_decided in (*range(1, 40), 100, 300):  # whatever the number of ties is
        n_excluded = 0.0
        for n_wins in range(n_decided // 2 + 1, n_decided + 1):
            low, _ = score_interval(Outcomes(n_wins, n_decided - n_wins, 7, of_tie=0.0, size=1.0), 1.0 - alpha)
            n_excluded += 2.0 * math.comb(n_decided, n_wins) / 2.0**n_decided if low > 0.0 else 0.0
        assert n_excluded <= alpha


def test_without_ties_the_interval_is_that_of_wilson_with_the_correction_for_continuity() -> None:
    # Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 4
    for n_wins, n, low, high in ((81, 263, 0.2535, 0.3682), (15, 148, 0.0598, 0.1644), (0, 20, 0.0, 0.2005)):
        found = score_interval(Outcomes(n_wins, n - n_wins, 0, of_tie=0.5, size=0.5), 0.95)
        assert found == pytest.approx((low, high), abs=6e-5)


def test_single_runs_with_wins_losses_and_ties_have_these_intervals() -> None:
    ours = np.array([[1.0] * 3 + [0.0] * 8 + [-1.0]])
    outcomes = {"of_tie": 0.0, "size": 1.0}
    expected = score_interval(Outcomes(3, 1, 8, **outcomes), 0.95)
    estimates = [difference_effects(ours, np.zeros((1, 12))), improvement_effects(2.0 * ours, ours)]
    difference, improvement = two_level_intervals(estimates)
    assert difference == pytest.approx(expected)
    assert improvement == pytest.approx([0.5 + end / 2.0 for end in expected])
    (improvement,) = two_level_intervals([improvement_effects(ours * np.linspace(1.0, 2.0, 12), ours * 0.0)])
    assert improvement == pytest.approx([0.5 + end / 2.0 for end in expected])


def test_differences_of_fewer_than_eight_episodes_may_have_one_size_by_chance() -> None:
    for results in ([1.0, -1.0, 1.0], [1.0, 0.0, 0.0, -1.0, 1.0, 1.0, 1.0]):
        ours = np.array([results])
        estimates = [difference_effects(ours, 0.0 * ours), improvement_effects(ours, 0.0 * ours)]
        difference, improvement = two_level_intervals(estimates)
        assert difference == pytest.approx(student_interval(estimates[0], 0.95))
        outcomes = estimates[1].outcomes
        assert outcomes is not None and improvement == score_interval(outcomes, 0.95)
    larger = {-1.0: 0.4, 1.0: 0.4, 9.0: 0.2}  # with mean 1.8
    covered = 0.0
    for results in product(larger, repeat=3):
        (interval,) = two_level_intervals([difference_effects(np.array([results]), np.zeros((1, 3)))])
        assert interval is not None
        if interval[0] <= 1.8 <= interval[1]:
            covered += math.prod(larger[result] for result in results)
    assert covered > 0.9


def test_the_mean_of_eight_and_more_results_of_two_kinds_lies_between_them() -> None:
    values = np.array([[10.0] * 9 + [4.0] * 3])
    (interval,) = two_level_intervals([mean_effects(values)])
    low, high = score_interval(Outcomes(9, 3, 0, of_tie=0.5, size=0.5), 0.95)
    assert interval == pytest.approx((4.0 + 6.0 * low, 4.0 + 6.0 * high))
    for fewer in (values[:, 6:], values[:, :9], np.concatenate([values, [[7.0]]], axis=1)):
        assert mean_effects(fewer).outcomes is None

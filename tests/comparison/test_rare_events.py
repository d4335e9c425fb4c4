"""Share of comparisons that name one of two equally good entries if successes are rare, by enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest

from maze_pl.comparison.analysis import Question, analyze
from maze_pl.comparison.effects import (
    Effects,
    Values,
    difference_effects,
    improvement_effects,
    mean_effects,
)
from maze_pl.comparison.entries import Entry, Player
from maze_pl.comparison.results import Difference
from maze_pl.comparison.two_level import student_interval, two_level_intervals

PROBABILITIES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5)


def successes(n_episodes: int, n_wins: int, n_losses: int) -> tuple[Values, Values]:
    """Results of two entries: episodes in which only the first one succeeds, and those of the second one."""
    ours, others = np.zeros((1, n_episodes)), np.zeros((1, n_episodes))
    ours[0, :n_wins] = 1.0
    others[0, n_wins : n_wins + n_losses] = 1.0
    return ours, others


def judged(ours: Values, others: Values) -> tuple[Difference, str | None]:
    """Return the difference of two entries, and the winner."""
    entries = [Entry(name, [Player(name, name)], is_baseline=name == "b") for name in ("a", "b")]
    _, differences, winner = analyze(entries, {"return": [ours, others]}, Question())
    return differences[0], winner


def rate_of_winners(n_episodes: int, probability: float, confidence: float) -> float:
    """Probability that Student's interval, which all intervals of differences cover, excludes 0.

    Both entries succeed with the same probability, independently of each other.
    """
    differs = 2.0 * probability * (1.0 - probability)
    rate = 0.0
    for n_decided in range(1, n_episodes + 1):
        p_decided = binomial(n_episodes, n_decided, differs)
        if p_decided > 1e-9:
            fewest = fewest_wins(n_episodes, n_decided, confidence)
            tail = sum(binomial(n_decided, n_wins, 0.5) for n_wins in range(fewest, n_decided + 1))
            rate += 2.0 * p_decided * tail
    return rate


def fewest_wins(n_episodes: int, n_decided: int, confidence: float) -> int:
    """Smallest number of wins among the decided episodes with which the interval excludes 0."""
    low, high = n_decided // 2, n_decided + 1
    while high - low > 1:
        n_wins = (low + high) // 2
        effects = difference_effects(*successes(n_episodes, n_wins, n_decided - n_wins))
        if excludes_0(effects, confidence):
            high = n_wins
        else:
            low = n_wins
    return high


def excludes_0(effects: Effects, confidence: float) -> bool:
    return effects.variance == 0.0 or student_interval(effects, confidence)[0] > 0.0


def binomial(n: int, k: int, probability: float) -> float:
    logarithm = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(logarithm + k * math.log(probability) + (n - k) * math.log1p(-probability))


@pytest.mark.parametrize("n_others", [1, 4])
@pytest.mark.parametrize("n_episodes", [8, 20, 100])
def test_equally_good_entries_rarely_have_a_winner(n_episodes: int, n_others: int) -> None:
    promised = 0.05 / n_others
    for probability in PROBABILITIES:
        assert rate_of_winners(n_episodes, probability, 1.0 - promised) <= promised


def test_equally_good_entries_rarely_have_a_winner_after_many_episodes() -> None:
    for probability in (0.005, 0.02):
        assert 0.02 < rate_of_winners(1000, probability, 0.95) <= 0.05


@pytest.mark.parametrize(("n_episodes", "n_wins", "n_losses"), [(20, 3, 0), (100, 2, 0), (100, 5, 0)])
def test_few_rare_successes_are_undecided(n_episodes: int, n_wins: int, n_losses: int) -> None:
    difference, winner = judged(*successes(n_episodes, n_wins, n_losses))
    assert winner is None
    assert difference.interval is not None and difference.interval[0] < 0.0 < difference.interval[1]
    assert difference.probability_interval is not None and difference.probability_interval[0] < 0.5
    assert difference.episodes_needed is not None and difference.episodes_needed > n_episodes


@pytest.mark.parametrize(("n_episodes", "fewest"), [(20, 9), (100, 10)])
def test_the_winner_agrees_with_the_interval(n_episodes: int, fewest: int) -> None:
    for n_wins in (1, 8, 9, 10, 11):
        results = successes(n_episodes, n_wins, 2)
        difference, winner = judged(*results)
        low, high = student_interval(difference_effects(*results), 0.95)
        assert difference.interval is not None
        assert difference.interval[0] <= low and high <= difference.interval[1]
        assert (difference.interval[0] > 0.0) == (winner == "a") == (n_wins >= fewest)


@pytest.mark.parametrize(("n_episodes", "n_wins", "n_losses"), [(10, 5, 0), (10, 6, 4), (5, 4, 0), (8, 4, 0)])
def test_what_few_episodes_leave_undecided_needs_more_of_them(n_episodes: int, n_wins: int, n_losses: int) -> None:
    difference, winner = judged(*successes(n_episodes, n_wins, n_losses))
    assert winner is None
    assert difference.episodes_needed is not None and difference.episodes_needed > n_episodes


def test_six_successes_in_100_episodes_against_none_win() -> None:
    assert judged(*successes(100, 6, 0))[1] == "a"


@pytest.mark.parametrize("n_runs", [1, 2])
def test_fewer_than_six_equal_differences_name_no_winner(n_runs: int) -> None:
    for n_episodes in (4 // n_runs, 5 // n_runs, 6 // n_runs):
        difference, winner = judged(np.full((n_runs, n_episodes), 0.3), np.zeros((n_runs, n_episodes)))
        if n_runs * n_episodes < 6:
            assert winner is None
            assert (difference.interval, difference.episodes_needed) == (pytest.approx((0.0, 0.6)), 6 // n_runs)
        else:
            assert (winner, difference.interval) == ("a", pytest.approx((0.3, 0.3)))


def test_equal_differences_from_more_entries_must_be_more_frequent() -> None:
    entries = [Entry(name, [Player(name, name)], is_baseline=name == "b") for name in "abcde"]
    for n_episodes, winner in ((7, None), (8, "a")):
        results = [np.full((1, n_episodes), value) for value in (3.0, 2.0, 1.0, 1.0, 0.0)]
        assert analyze(entries, {"return": results}, Question())[2] == winner


def test_the_probability_of_improvement_rarely_tells_equal_entries_apart() -> None:
    for n_episodes in (*range(2, 31), 100):
        rate = 0.0
        for n_wins in range(n_episodes // 2, n_episodes + 1):
            ours = np.where(np.arange(n_episodes) < n_wins, 1.0, -1.0) * np.linspace(1.0, 2.0, n_episodes)
            effects = improvement_effects(ours[None], np.zeros((1, n_episodes)))
            if student_interval(effects, 0.95)[0] > 0.5:
                rate += 2.0 * binomial(n_episodes, n_wins, 0.5)
        assert rate <= (0.0 if n_episodes < 5 else 0.071)


def test_two_wins_of_two_do_not_tell_that_an_entry_is_better() -> None:
    for n_runs in (1, 2):
        difference, _ = judged(np.array([[0.1, 3.0]] * n_runs), np.zeros((n_runs, 2)))
        assert difference.probability_of_improvement == 1.0
        assert difference.probability_interval == (0.0, 1.0)


def share_that_excludes_0(differences: list[Effects]) -> float:
    """Share of the differences whose interval excludes 0."""
    n_excluded = 0
    for interval in two_level_intervals(differences, n_resamples=500):
        assert interval is not None
        n_excluded += not interval[0] <= 0.0 <= interval[1]
    return n_excluded / len(differences)


@pytest.mark.parametrize("cost", [0.0, 0.02])
@pytest.mark.parametrize(("n_runs", "n_others", "n_episodes"), [(1, 1, 100), (10, 10, 20), (1, 10, 20)])
def test_rare_successes_with_small_costs_rarely_tell_equal_entries_apart(
    n_runs: int, n_others: int, n_episodes: int, cost: float
) -> None:
    generator = np.random.default_rng(0)
    differences = []
    for _ in range(300):
        tables = []
        for n in (n_runs, n_others):
            is_success = generator.random((n, n_episodes)) < 0.02
            tables.append(is_success - cost * generator.random((n, n_episodes)))
        differences.append(difference_effects(*tables))
    assert share_that_excludes_0(differences) <= 0.05


def test_heavy_tails_rarely_tell_equal_policies_apart() -> None:
    generator = np.random.default_rng(0)
    differences = [difference_effects(*generator.lognormal(-0.5, 1.0, (2, 1, 20))) for _ in range(300)]
    assert share_that_excludes_0(differences) <= 0.06


def test_one_more_win_of_each_entry_counts_where_few_episodes_decide() -> None:
    difference = difference_effects(*successes(10, 3, 1))
    assert difference.added_variance == pytest.approx(2.0 / 90)  # sizes of 1
    assert improvement_effects(*successes(10, 3, 1)).added_variance == pytest.approx(2.0 * 0.25 / 90)
    ours, others = successes(10, 3, 1)
    runs = difference_effects(ours, np.repeat(others, 2, axis=0))
    assert runs.added_variance == pytest.approx((1.0 + 0.25) / 90)
    with_costs = difference_effects(ours - np.linspace(0.01, 0.02, 10), others)
    assert with_costs.added_variance == pytest.approx(2.0 / 90, rel=0.05)
    wins_and_losses = difference_effects(np.array([[1.0, -1.0, 1.0, 1.0]]), np.zeros((1, 4)))
    assert wins_and_losses.added_variance == pytest.approx(2.0 / 12)


def test_intervals_of_continuous_results_of_several_runs_and_of_means_stay_those_of_the_bootstrap() -> None:
    results = np.random.default_rng(0).normal(0.0, 1.0, (2, 10, 20))
    assert difference_effects(*results).added_variance is None
    assert improvement_effects(*results).added_variance is None
    assert difference_effects(*results[:, :1]).added_variance == 0.0  # of two single runs
    assert mean_effects(successes(10, 3, 1)[0]).added_variance is None

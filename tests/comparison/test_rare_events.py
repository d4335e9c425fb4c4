"""Share of comparisons that name one of two equally good entries if successes are rare, by enumeration."""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations, product

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
from maze_pl.comparison.sequential import episodes_needed
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
    """Probability that the interval of the difference excludes 0.

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


@cache
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
    (interval,) = two_level_intervals([effects], confidence)
    return interval is not None and interval[0] > 0.0


def binomial(n: int, k: int, probability: float) -> float:
    logarithm = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(logarithm + k * math.log(probability) + (n - k) * math.log1p(-probability))


def share_that_excludes(value: float, estimates: list[Effects]) -> float:
    """Share of the estimates whose interval does not contain a value."""
    n_excluded = 0
    for interval in two_level_intervals(estimates, n_resamples=500):
        assert interval is not None
        n_excluded += not interval[0] <= value <= interval[1]
    return n_excluded / len(estimates)


@pytest.mark.parametrize("n_others", [1, 4])
@pytest.mark.parametrize("n_episodes", [3, 8, 20, 100])
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


@pytest.mark.parametrize("n_episodes", [20, 100])
def test_the_winner_agrees_with_the_intervals(n_episodes: int) -> None:
    for n_wins in (1, 8, 9, 10, 11):
        difference, winner = judged(*successes(n_episodes, n_wins, 2))
        assert difference.interval is not None and difference.probability_interval is not None
        assert difference.probability_interval == pytest.approx([0.5 + end / 2.0 for end in difference.interval])
        assert (difference.interval[0] > 0.0) == (winner == "a") == (n_wins >= 10)


def test_the_interval_covers_that_of_student_where_differences_are_of_several_sizes() -> None:
    ours, others = successes(20, 9, 2)
    ours += np.linspace(0.0, 0.01, 20)
    difference = difference_effects(ours, others)
    (interval,) = two_level_intervals([difference])
    low, high = student_interval(difference, 0.95)
    assert interval is not None and interval[0] <= low and high <= interval[1]


@pytest.mark.parametrize(("n_episodes", "n_wins", "n_losses"), [(10, 5, 0), (10, 6, 4), (5, 4, 0), (8, 4, 0)])
def test_what_few_episodes_leave_undecided_needs_more_of_them(n_episodes: int, n_wins: int, n_losses: int) -> None:
    difference, winner = judged(*successes(n_episodes, n_wins, n_losses))
    assert winner is None
    assert difference.episodes_needed is not None and difference.episodes_needed > n_episodes


def test_six_successes_in_100_episodes_against_none_win() -> None:
    assert judged(*successes(100, 6, 0))[1] == "a"


def test_fewer_than_six_equal_differences_name_no_winner() -> None:
    for n_episodes in (4, 5):
        difference, winner = judged(np.full((1, n_episodes), 0.3), np.zeros((1, n_episodes)))
        assert winner is None
        assert (difference.interval, difference.episodes_needed) == (pytest.approx((0.0, 0.6)), 6)
    difference, winner = judged(np.full((1, 6), 0.3), np.zeros((1, 6)))
    assert (winner, difference.interval) == ("a", pytest.approx((0.3, 0.3)))


@pytest.mark.parametrize("n_episodes", [3, 20])
@pytest.mark.parametrize(("n_runs", "n_others"), [(2, 2), (3, 2), (1, 4), (3, 3), (5, 1), (4, 4)])
def test_equal_differences_of_runs_are_decided_by_six_runs_and_six_episodes(
    n_runs: int, n_others: int, n_episodes: int
) -> None:
    difference = difference_effects(np.full((n_runs, n_episodes), 0.3), np.zeros((n_others, n_episodes)))
    is_decided = n_runs + n_others >= 6 and n_episodes >= 6
    assert two_level_intervals([difference]) == [pytest.approx((0.3, 0.3) if is_decided else (0.0, 0.6))]
    assert episodes_needed(difference) == (6 if n_runs + n_others >= 6 else None)


@pytest.mark.parametrize("n_runs", [2, 3])
def test_runs_that_succeed_or_fail_as_a_whole_rarely_name_a_winner(n_runs: int) -> None:
    n_winners = 0
    for is_success in product((0.0, 1.0), repeat=2 * n_runs):
        runs = np.repeat(np.array(is_success)[:, None], 20, axis=1)
        (interval,) = two_level_intervals([difference_effects(runs[:n_runs], runs[n_runs:])])
        assert interval is not None
        n_winners += not interval[0] <= 0.0 <= interval[1]
    assert n_winners / 4**n_runs <= 0.05


def test_equal_differences_from_more_entries_must_be_more_frequent() -> None:
    entries = [Entry(name, [Player(name, name)], is_baseline=name == "b") for name in "abcde"]
    for n_episodes, winner in ((7, None), (8, "a")):
        results = [np.full((1, n_episodes), value) for value in (3.0, 2.0, 1.0, 1.0, 0.0)]
        assert analyze(entries, {"return": results}, Question())[2] == winner


@pytest.mark.parametrize(("n_runs", "n_others"), [(2, 2), (3, 3), (2, 5), (1, 3)])
def test_the_probability_of_improvement_rarely_tells_equal_configurations_apart(n_runs: int, n_others: int) -> None:
    generator = np.random.default_rng(0)
    for deviation in (0.0, 1.0):  # of runs, relative to that of episodes
        improvements = []
        for _ in range(300):
            tables = []
            for n in (n_runs, n_others):
                of_runs = generator.normal(0.0, deviation, (n, 1)) if n > 1 else 0.0
                tables.append(of_runs + generator.normal(0.0, 1.0, (n, 20)))
            improvements.append(improvement_effects(*tables))
        assert share_that_excludes(0.5, improvements) <= 0.05


@pytest.mark.parametrize(("n_runs", "n_others"), [(2, 2), (3, 3), (2, 5), (4, 4)])
def test_no_order_of_few_runs_tells_equal_configurations_apart_too_often(n_runs: int, n_others: int) -> None:
    improvements = []
    for places in combinations(range(n_runs + n_others), n_runs):  # all orders are equally likely
        others = sorted(set(range(n_runs + n_others)) - set(places))
        tables = [np.repeat(np.array(runs, dtype=float)[:, None], 20, axis=1) for runs in (places, others)]
        improvements.append(improvement_effects(*tables))
    assert share_that_excludes(0.5, improvements) <= 0.05


def test_no_order_of_few_runs_and_a_policy_tells_them_apart_too_often() -> None:
    for n_runs, most in ((2, 0.0), (3, 0.0), (5, 2.0 / 32.0), (7, 0.05)):
        improvements = []
        for are_better in product((-1.0, 1.0), repeat=n_runs):
            runs = np.repeat(np.array(are_better)[:, None], 20, axis=1)
            improvements.append(improvement_effects(runs, np.zeros((1, 20))))
        assert share_that_excludes(0.5, improvements) <= most


def test_one_more_run_that_always_wins_counts_by_hand() -> None:
    episodes = np.arange(20.0)
    ours, others = episodes + np.array([[100.0], [200.0]]), episodes + np.array([[0.0], [1.0], [2.0]])
    runs = improvement_effects(ours, others).runs
    assert [part.excess for part in runs] == pytest.approx([0.25 / 4, 0.25 / 9])
    (part,) = improvement_effects(ours[:1], others).runs
    assert part.excess == pytest.approx(2 * 0.25 / 9)
    noise = np.random.default_rng(0).normal(size=(2, 3, 2000))  # episodes decide
    assert sum(part.excess for part in improvement_effects(*noise).runs) < 1e-3
    ties = np.repeat(ours[:1], 2, axis=0)
    assert not any(part.excess for part in improvement_effects(ties, ties).runs)


def test_two_wins_of_two_do_not_tell_that_an_entry_is_better() -> None:
    for n_runs in (1, 2):
        difference, _ = judged(np.array([[0.1, 3.0]] * n_runs), np.zeros((n_runs, 2)))
        assert difference.probability_of_improvement == 1.0
        assert difference.probability_interval is not None
        assert difference.probability_interval[0] < 0.5 < difference.probability_interval[1] == 1.0


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
    assert share_that_excludes(0.0, differences) <= 0.05


def test_heavy_tails_rarely_tell_equal_policies_apart() -> None:
    generator = np.random.default_rng(0)
    differences = [difference_effects(*generator.lognormal(-0.5, 1.0, (2, 1, 20))) for _ in range(300)]
    assert share_that_excludes(0.0, differences) <= 0.06


def test_one_more_win_of_each_entry_counts_where_few_episodes_decide() -> None:
    difference = difference_effects(*successes(10, 3, 1))
    assert difference.added_variance == pytest.approx(2.0 / 90)  # sizes of 1
    ours, others = successes(10, 3, 1)
    runs = difference_effects(ours, np.repeat(others, 2, axis=0))
    assert runs.added_variance == pytest.approx((1.0 + 0.25) / 90)
    with_costs = difference_effects(ours - np.linspace(0.01, 0.02, 10), others)
    assert with_costs.added_variance == pytest.approx(2.0 / 90, rel=0.05)
    of_runs = improvement_effects(ours, np.repeat(others, 2, axis=0))
    assert of_runs.added_variance == pytest.approx((1.0 + 0.25) * 0.25 / 90)


def test_intervals_of_continuous_results_of_several_runs_and_of_means_stay_those_of_the_bootstrap() -> None:
    results = np.random.default_rng(0).normal(0.0, 1.0, (2, 10, 20))
    assert difference_effects(*results).added_variance is None
    assert improvement_effects(*results).added_variance is None
    assert difference_effects(*results[:, :1]).added_variance == 0.0  # of two single runs
    assert mean_effects(successes(10, 3, 1)[0]).added_variance is None

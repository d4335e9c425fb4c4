"""Intervals of estimates: numbers computed by hand, explicit resamples, and edge cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from maze_pl.comparison.analysis import Question, analyze
from maze_pl.comparison.effects import difference_effects, improvement_effects, iqm_effects, mean_effects
from maze_pl.comparison.entries import Entry, Player
from maze_pl.comparison.two_level import degrees_of_freedom, two_level_intervals
from maze_pl.runs.intervals import t_interval


def test_few_episodes_of_one_run_have_the_interval_of_student() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    (interval,) = two_level_intervals([mean_effects(np.array([values]))])
    assert interval == pytest.approx(t_interval(values))


def test_single_episodes_of_several_runs_have_the_interval_of_student() -> None:
    values = [3.0, 1.0, 7.0, 4.0]
    (interval,) = two_level_intervals([mean_effects(np.array([values]).T)])
    assert interval == pytest.approx(t_interval(values))


def test_degrees_of_freedom_by_hand() -> None:
    effects = mean_effects(np.array([[0.0, 2.0], [6.0, 4.0]]))
    assert degrees_of_freedom(effects) == 1  # 3^2 / (4^2 / 1 + 1^2 / 1) is below 1
    assert degrees_of_freedom(mean_effects(np.array([[1.0, 4.0, 2.0, 9.0]]))) == 3


def test_the_bootstrap_agrees_with_explicit_resamples() -> None:
    generator = np.random.default_rng(0)
    values = generator.exponential(1.0, 30)
    mean, error = values.mean(), values.std(ddof=1) / math.sqrt(30)
    resamples = generator.choice(values, (20_000, 30))
    ratios = np.sort((resamples.mean(axis=1) - mean) / (resamples.std(axis=1, ddof=1) / math.sqrt(30)))
    (interval,) = two_level_intervals([mean_effects(values[None])])
    assert interval is not None
    assert interval[0] == pytest.approx(mean - ratios[19_500] * error, abs=0.06 * error)
    assert interval[1] == pytest.approx(mean - ratios[500] * error, abs=0.12 * error)
    assert interval[1] - mean > mean - interval[0]  # as the distribution is skewed


@pytest.mark.parametrize("n_runs", [2, 3, 4, 5, 10])
@pytest.mark.parametrize("n_episodes", [5, 8, 20, 100])
def test_a_single_success_does_not_show_that_runs_differ(n_runs: int, n_episodes: int) -> None:
    values = np.zeros((n_runs, n_episodes))
    values[-1, 3] = 1.0  # B and W are the same, but for rounding
    effects = mean_effects(values)
    assert effects.runs[0].excess == 0.0
    assert degrees_of_freedom(effects) == n_episodes - 1


def test_intervals_do_not_depend_on_the_order_of_two_entries_with_rare_successes() -> None:
    ours, others = np.zeros((3, 8)), np.zeros((2, 8))
    ours[2, 3] = others[0, 7] = 1.0
    (low, high), mirrored = two_level_intervals([improvement_effects(ours, others), improvement_effects(others, ours)])
    assert mirrored == pytest.approx((1.0 - high, 1.0 - low))
    assert 0.3 < low < high < 0.7


def test_runs_that_differ_widen_the_interval() -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(0.0, 1.0, (10, 50))
    alike, different = two_level_intervals([mean_effects(values), mean_effects(values + np.arange(10.0)[:, None])])
    assert alike is not None and different is not None
    half = 2.262 * math.sqrt(np.arange(10.0).var(ddof=1) / 10)
    assert (different[1] - different[0]) / 2 == pytest.approx(half, rel=0.1)
    assert (alike[1] - alike[0]) < 0.2 * half


def test_a_shift_of_the_results_shifts_the_interval() -> None:
    values = np.random.default_rng(1).exponential(1.0, (10, 20))
    first, second = two_level_intervals([mean_effects(values), mean_effects(3.0 * values - 7.0)])
    assert first is not None
    assert second == pytest.approx((3.0 * first[0] - 7.0, 3.0 * first[1] - 7.0))


def test_results_without_variation_have_intervals_of_width_0() -> None:
    constant = np.full((2, 9), 500.0)
    estimates = [
        mean_effects(constant),
        iqm_effects(constant),
        difference_effects(constant, constant[:1]),
        improvement_effects(constant, constant),
    ]
    assert two_level_intervals(estimates) == [(500.0, 500.0), (500.0, 500.0), (0.0, 0.0), (0.5, 0.5)]


@pytest.mark.parametrize("baselines", ["a", "b", "ab"])
@pytest.mark.parametrize("lower_is_better", [False, True])
def test_the_winner_of_several_runs_agrees_with_the_table(baselines: str, lower_is_better: bool) -> None:
    generator = np.random.default_rng(0)
    ours, others = generator.exponential(1.0, (2, 8, 10))
    question = Question(lower_is_better=lower_is_better)
    entries = [Entry(name, [Player(name, name)] * 8, is_baseline=name in baselines) for name in "ab"]
    low, high = analyze(entries, {"return": [ours, others]}, question)[1][0].interval or (0.0, 0.0)
    for end in (low, high):
        for margin in (-1e-6, 1e-6):  # of an interval that ends at 0
            shift = end + margin if baselines != "a" else -end - margin
            _, differences, winner = analyze(entries, {"return": [ours - shift, others]}, question)
            interval = differences[0].interval
            assert interval is not None
            assert (winner is None) == (interval[0] <= 0.0 <= interval[1])


@pytest.mark.parametrize(
    "values", [np.array([[3.0]]), np.array([[3.0, np.nan]]), np.full((1, 3), np.nan), np.full((3, 1), np.nan)]
)
def test_too_few_values_have_no_interval(values: np.ndarray) -> None:
    assert two_level_intervals([mean_effects(values), iqm_effects(values)]) == [None, None]


@pytest.mark.parametrize("n_episodes", [5, 20, 100])
def test_few_episodes_with_a_value_have_the_interval_of_student_for_these(n_episodes: int) -> None:
    values = np.full((1, n_episodes), np.nan)
    values[0, [0, 2, 3]] = [1.0, 4.0, 9.0]
    baseline = np.full((1, n_episodes), np.nan)
    baseline[0, [0, 1, 2]] = [3.0, 5.0, 7.0]
    difference = difference_effects(values, baseline)
    of_mean, of_difference = two_level_intervals([mean_effects(values), difference])
    assert of_mean == pytest.approx(t_interval([1.0, 4.0, 9.0]))
    assert of_difference == pytest.approx(t_interval([-2.0, -3.0]))
    assert [degrees_of_freedom(effects) for effects in (mean_effects(values), difference)] == [2, 1]


def test_the_bootstrap_draws_from_episodes_with_a_value() -> None:
    generator = np.random.default_rng(4)
    present = [generator.exponential(1.0, (1, n)) for n in (8, 9, 30)]
    estimates = []
    for values in present:
        table = np.full((1, 50), np.nan)
        table[:, generator.permutation(50)[: values.size]] = values
        estimates.append(mean_effects(table))
    intervals = two_level_intervals(estimates)
    for values, interval in zip(present, intervals, strict=True):
        alone = two_level_intervals([mean_effects(values)])[0]
        assert interval is not None and alone is not None
        # Resamples are those of the same number of episodes, in another order.
        assert interval == pytest.approx(alone, abs=0.1 * (alone[1] - alone[0]))


@pytest.mark.parametrize("n_runs", [3, 10])
def test_a_rare_kpi_that_is_the_same_in_all_runs_has_a_table(n_runs: int) -> None:
    generator = np.random.default_rng(0)
    entries = [Entry("a", [Player("a", "a")] * n_runs), Entry("b", [Player("b", "b")], is_baseline=True)]
    returns = [generator.normal(size=(n, 4)) for n in (n_runs, 1)]
    ours = np.full((n_runs, 4), np.nan)
    ours[0, 0] = ours[1, 1] = 1.0
    difference = analyze(entries, {"return": returns, "kpi/x": [ours, np.zeros((1, 4))]}, Question())[1][1]
    assert (difference.difference, difference.interval, difference.n_shared) == (1.0, (0.0, 2.0), 2)
    assert difference.needs_more_runs  # of two runs with values


def test_differences_of_runs_that_cancel_or_vary_by_rounding_are_taken_for_constant() -> None:
    cancelling = difference_effects(np.array([[1.5, 2.0], [2.0, 1.5]]), np.zeros((1, 2)))
    rounded = difference_effects(np.array([[1000.3 + 1.5e-9, 1000.3]]), np.full((1, 2), 1000.0))
    low, high = two_level_intervals([cancelling, rounded])
    assert low == pytest.approx((0.0, 3.5))
    assert high == pytest.approx((0.0, 0.6))


def test_one_of_several_runs_with_values_does_not_tell_how_runs_differ() -> None:
    values = np.full((3, 10), np.nan)
    values[1] = np.arange(10.0)
    estimates = [mean_effects(values), iqm_effects(values), difference_effects(np.zeros((1, 10)), values)]
    assert two_level_intervals(estimates) == [None, None, None]
    values[2] = np.arange(10.0) + 1.0
    assert None not in two_level_intervals([mean_effects(values), difference_effects(np.zeros((1, 10)), values)])


def test_a_single_episode_does_not_tell_one_policy_from_several_runs() -> None:
    runs, policy = np.array([[1.0], [2.0], [3.0]]), np.array([[0.0]])
    assert two_level_intervals([difference_effects(runs, policy)]) == [None]
    (interval,) = two_level_intervals([difference_effects(runs, runs[::-1] + 5.0)])
    assert interval is not None and interval[1] < 0.0


def test_a_rare_event_has_a_finite_interval() -> None:
    values = np.zeros((1, 20))
    values[0, 3] = 1.0
    (interval,) = two_level_intervals([mean_effects(values)])
    assert interval is not None
    assert -0.2 < interval[0] <= 0.05 <= interval[1] < 1.0


def test_the_same_data_gives_the_same_interval_whatever_else_is_estimated() -> None:
    generator = np.random.default_rng(2)
    effects = [mean_effects(generator.exponential(1.0, (8, 30))) for _ in range(70)]
    together = two_level_intervals(effects)
    assert two_level_intervals([effects[66]])[0] == pytest.approx(together[66])


def test_many_estimates_of_many_entries_are_resampled_together() -> None:
    results = np.random.default_rng(3).exponential(1.0, (20, 2, 10, 100))  # entries, return and a KPI, runs, episodes
    estimates = []
    for tables in results:
        for values, baseline in zip(tables, results[0], strict=True):
            estimates += [mean_effects(values), iqm_effects(values)]
            estimates += [difference_effects(values, baseline), improvement_effects(values, baseline)]
    intervals = two_level_intervals(estimates, n_resamples=2000)
    assert len(intervals) == 160 and None not in intervals

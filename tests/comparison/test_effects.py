"""Estimates and their variances: numbers computed by hand, and slow references."""

from __future__ import annotations

import statistics
from itertools import product

import numpy as np
import pytest

from maze_pl.comparison.effects import difference_effects, improvement_effects, iqm_effects, mean_effects
from maze_pl.runs.intervals import interquartile_mean

NAN = float("nan")


def test_the_mean_of_one_run_has_the_variance_of_independent_episodes() -> None:
    effects = mean_effects(np.array([[1.0, 2.0, 6.0]]))
    assert effects.estimate == 3.0
    assert effects.episodes == pytest.approx([-2.0, -1.0, 3.0])
    assert effects.variance == pytest.approx(7.0 / 3.0)  # s^2 = (4 + 1 + 9) / 2
    assert not effects.runs


def test_the_variance_of_several_runs_by_hand() -> None:
    effects = mean_effects(np.array([[0.0, 2.0], [6.0, 4.0]]))
    assert effects.estimate == 3.0
    # Means of episodes are 3 and 3; those of runs 1 and 5; the interaction is -1, 1, 1, -1.
    assert effects.variance_of_episodes == 0.0
    (part,) = effects.runs
    assert (part.n_runs, part.between, part.within) == (2, pytest.approx(4.0), pytest.approx(1.0))
    assert effects.variance == pytest.approx(3.0)


def test_runs_that_differ_no_more_than_episodes_add_no_variance() -> None:
    effects = mean_effects(np.array([[1.0, 5.0, 3.0], [5.0, 1.0, 3.0]]))
    assert effects.runs[0].excess == 0.0


def test_the_variance_is_on_average_that_of_all_possible_means() -> None:
    means, of_episodes, of_runs = [], [], []
    for signs in product((-1.0, 1.0), repeat=11):
        runs, episodes, noise = np.split(np.array(signs), [2, 5])
        effects = mean_effects(2.0 * runs[:, None] + episodes + noise.reshape(2, 3))
        (part,) = effects.runs
        means.append(effects.estimate)
        of_episodes.append(effects.variance_of_episodes)
        of_runs.append(part.between - part.within)
    assert statistics.fmean(of_episodes) == pytest.approx(1.0 / 3.0 + 1.0 / 6.0)
    assert statistics.fmean(of_runs) == pytest.approx(4.0 / 2.0)
    assert statistics.pvariance(means) == pytest.approx(4.0 / 2.0 + 1.0 / 3.0 + 1.0 / 6.0)


@pytest.mark.parametrize("n", [1, 3, 4, 9, 40])
def test_the_interquartile_mean_is_that_of_the_definition(n: int) -> None:
    values = np.random.default_rng(n).lognormal(size=n)
    assert iqm_effects(values[None]).estimate == pytest.approx(interquartile_mean(values.tolist()))


def test_the_influence_of_a_value_on_the_interquartile_mean_is_its_slope() -> None:
    values = np.array([[1.0, 2.0, 4.0, 5.0, 7.0, 30.0, 100.0, -50.0]])
    effects = iqm_effects(values)
    assert effects.estimate == 4.5
    # Kept are 2, 4, 5 and 7; the others count as 2 or 7, whose mean is 4.5, and half of the values is kept.
    assert effects.episodes == pytest.approx(np.array([-2.5, -2.5, -0.5, 0.5, 2.5, 2.5, 2.5, -2.5]) / 0.5)


def test_the_variance_of_an_interquartile_mean_agrees_with_a_slow_bootstrap() -> None:
    generator = np.random.default_rng(2)
    values = generator.exponential(size=200)
    resampled = [interquartile_mean(generator.choice(values, 200).tolist()) for _ in range(3000)]
    assert iqm_effects(values[None]).variance == pytest.approx(statistics.variance(resampled), rel=0.12)


def test_differences_are_paired_by_episodes() -> None:
    episodes = np.array([[10.0, 200.0, 3000.0, 40.0]])
    effects = difference_effects(np.array([[11.0, 203.0, 3002.0, 42.0]]), episodes)
    assert effects.estimate == 2.0
    assert effects.variance == pytest.approx((2.0 / 3.0) / 4.0)


def test_equal_constants_differ_by_nothing_in_spite_of_rounding() -> None:
    effects = difference_effects(np.full((3, 7), 0.1), np.full((1, 7), 0.1) + 1e-17)
    assert (effects.estimate, effects.variance) == (0.0, 0.0)


def slow_improvement(ours: np.ndarray, others: np.ndarray) -> float:
    """Probability of improvement by its definition, one comparison at a time."""
    total = 0.0
    for episode in range(ours.shape[1]):
        for run, other in product(range(len(ours)), range(len(others))):
            left, right = ours[run, episode], others[other, episode]
            total += 1.0 if left > right else 0.5 if left == right else 0.0
    return total / (ours.shape[1] * len(ours) * len(others))


@pytest.mark.parametrize(("n_runs", "n_others"), [(1, 1), (4, 1), (1, 3), (3, 5)])
def test_the_probability_of_improvement_is_that_of_the_definition(n_runs: int, n_others: int) -> None:
    generator = np.random.default_rng(n_runs)
    ours, others = generator.integers(0, 4, (n_runs, 12)) * 1.0, generator.integers(0, 4, (n_others, 12)) * 1.0
    effects = improvement_effects(ours, others)
    assert effects.estimate == pytest.approx(slow_improvement(ours, others))
    assert effects.episodes.mean() == pytest.approx(0.0, abs=1e-12)


def test_ties_have_probability_one_half() -> None:
    effects = improvement_effects(np.full((1, 5), 500.0), np.full((2, 5), 500.0))
    assert (effects.estimate, effects.variance) == (0.5, 0.0)


@pytest.mark.parametrize("n_runs", [1, 3])
def test_sums_of_the_same_rewards_in_another_order_are_ties(n_runs: int) -> None:
    ours, others = np.full((n_runs, 12), 0.1 + 0.2), np.full((1, 12), 0.3)
    ours[:, 6:] = sum([0.1] * 100_000)
    others[:, 6:] = 10_000.0
    for values, baseline in ((ours, others), (others, ours)):
        assert improvement_effects(values, baseline).estimate == 0.5
        assert difference_effects(values, baseline).estimate == 0.0
    ours[:, 0] = 0.1 + 0.2 - 0.3  # 6e-17, not 0, among results of another size
    others[:, 0] = 0.0
    ours[:, 1] += 1e-4
    assert improvement_effects(ours, others).estimate == pytest.approx(0.5 + 0.5 / 12)
    difference = difference_effects(ours, others)
    assert difference.estimate == pytest.approx(1e-4 / 12)
    assert difference.variance > 0.0


def test_missing_values_are_left_out() -> None:
    values = np.array([[1.0, NAN, 3.0, NAN]])
    effects = mean_effects(values)
    assert (effects.estimate, effects.n_values) == (2.0, 2)
    assert effects.episodes == pytest.approx([-1.0, 1.0])
    assert (effects.n_episodes, effects.variance) == (4, pytest.approx(statistics.variance([1.0, 3.0]) / 2))
    assert iqm_effects(values).estimate == 2.0
    assert improvement_effects(values, np.zeros((1, 4))).estimate == 1.0
    assert np.isnan(mean_effects(np.full((2, 3), NAN)).estimate)
    assert np.isnan(iqm_effects(np.full((2, 3), NAN)).estimate)
    assert mean_effects(np.full((2, 3), NAN)).n_values == 0


def test_runs_and_episodes_without_values_do_not_change_a_variance() -> None:
    generator = np.random.default_rng(1)
    present = generator.normal(size=(3, 6))
    present[0, 2] = NAN
    values = np.full((5, 20), NAN)
    values[np.ix_([0, 2, 3], [1, 4, 5, 11, 18, 19])] = present
    baseline = generator.normal(size=(2, 20))
    of_present = baseline[:, [1, 4, 5, 11, 18, 19]]
    for found, expected in (
        (mean_effects(values), mean_effects(present)),
        (iqm_effects(values), iqm_effects(present)),
        (difference_effects(values, baseline), difference_effects(present, of_present)),
        (difference_effects(baseline, values), difference_effects(of_present, present)),
        (improvement_effects(values, baseline), improvement_effects(present, of_present)),
    ):
        assert found.estimate == pytest.approx(expected.estimate)
        assert found.episodes == pytest.approx(expected.episodes)
        assert found.runs == expected.runs
        assert (found.n_values, found.n_episodes, found.lacks_runs) == (6, 20, False)


def slow_difference(ours: np.ndarray, others: np.ndarray) -> tuple[float, int]:
    """Mean difference over pairs of results of one episode, and number of episodes that have any."""
    pairs, episodes = [], set()
    for episode in range(ours.shape[1]):
        for run, other in product(range(len(ours)), range(len(others))):
            difference = ours[run, episode] - others[other, episode]
            if not np.isnan(difference):
                pairs.append(difference)
                episodes.add(episode)
    return statistics.fmean(pairs), len(episodes)


@pytest.mark.parametrize(("n_runs", "n_others"), [(1, 1), (4, 1), (1, 3), (3, 5)])
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_differences_are_those_of_the_episodes_that_both_have(n_runs: int, n_others: int, missing: float) -> None:
    generator = np.random.default_rng(n_runs)
    episodes = generator.normal(0.0, 10.0, (1, 30))
    tables = []
    for n in (n_runs, n_others):
        table = episodes + generator.normal(0.0, 1.0, (n, 30))
        table[generator.random((n, 30)) < missing] = NAN
        tables.append(table)
    effects = difference_effects(*tables)
    expected, n_shared = slow_difference(*tables)
    assert (effects.estimate, effects.n_values) == (pytest.approx(expected), n_shared)
    assert effects.episodes.mean() == pytest.approx(0.0, abs=1e-12)
    mirrored = difference_effects(tables[1], tables[0])
    assert (mirrored.estimate, mirrored.variance) == (pytest.approx(-expected), pytest.approx(effects.variance))
    if not missing:
        assert effects.estimate == pytest.approx(tables[0].mean() - tables[1].mean())
        own, other = (mean_effects(table) for table in tables)
        assert effects.episodes == pytest.approx(own.episodes - other.episodes)
        assert [part.excess for part in effects.runs] == pytest.approx(
            [part.excess for part in (*own.runs, *other.runs)]
        )


@pytest.mark.parametrize("shared", [(1, 3), (0, 2, 5), (0, 1, 3, 4, 5)])
def test_the_variance_of_a_difference_with_missing_results_is_on_average_that_of_all_possible_ones(
    shared: tuple[int, ...],
) -> None:
    estimates, variances = [], []
    for signs in product((-1.0, 1.0), repeat=6):
        others = np.array([[3.0, -20.0, 50.0, 7.0, 0.0, 11.0]])  # which all entries have in common
        ours = others + np.array([signs])
        for episode in set(range(6)) - set(shared):
            (ours if episode % 2 else others)[0, episode] = NAN
        effects = difference_effects(ours, others)
        estimates.append(effects.estimate)
        variances.append(effects.variance)
    assert statistics.fmean(estimates) == pytest.approx(0.0, abs=1e-12)
    assert statistics.fmean(variances) == pytest.approx(statistics.pvariance(estimates))


def test_one_shared_episode_counts_as_one_value() -> None:
    ours, others = np.array([[1.0, 2.0, NAN, 4.0]]), np.array([[NAN, 1.0, 2.0, NAN]])
    for effects in (difference_effects(ours, others), improvement_effects(ours, others)):
        assert (effects.estimate, effects.n_values) == (1.0, 1)
    nothing = difference_effects(ours, np.full((1, 4), NAN))
    assert np.isnan(nothing.estimate) and nothing.n_values == 0

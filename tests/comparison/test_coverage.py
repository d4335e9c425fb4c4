"""Coverage of intervals by simulation: 2,000 experiments of 10 runs with 20 episodes of skewed distributions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from maze_pl.comparison.analysis import Question, analyze
from maze_pl.comparison.effects import (
    FEWEST_UNITS,
    Effects,
    Values,
    difference_effects,
    improvement_effects,
    iqm_effects,
    mean_effects,
)
from maze_pl.comparison.entries import Entry, Player
from maze_pl.comparison.sequential import confidence_sequence
from maze_pl.comparison.two_level import two_level_intervals

N_EXPERIMENTS = 2000
Draw = Callable[[np.random.Generator, int, int], Values]


def exponential(generator: np.random.Generator, n_runs: int, n_episodes: int) -> Values:
    return generator.exponential(1.0, (n_runs, n_episodes))


def log_normal(generator: np.random.Generator, n_runs: int, n_episodes: int) -> Values:
    return generator.lognormal(-0.5, 1.0, (n_runs, n_episodes))


def with_runs(generator: np.random.Generator, n_runs: int, n_episodes: int) -> Values:
    return exponential(generator, n_runs, n_episodes) + generator.normal(0.0, 0.5, (n_runs, 1))


def with_runs_and_episodes(generator: np.random.Generator, n_runs: int, n_episodes: int) -> Values:
    of_episodes = generator.exponential(0.5, (1, n_episodes)) - 0.5
    return with_runs(generator, n_runs, n_episodes) + of_episodes


def covered(estimates: list[Effects], truth: float, n_resamples: int = 2000) -> float:
    """Share of the intervals that contain the true value."""
    hits = 0
    for interval in two_level_intervals(estimates, n_resamples=n_resamples):
        assert interval is not None
        hits += interval[0] <= truth <= interval[1]
    return hits / len(estimates)


@pytest.mark.slow
@pytest.mark.parametrize("draw", [exponential, log_normal, with_runs, with_runs_and_episodes])
def test_intervals_of_ten_runs_with_skewed_episodes_cover_95_percent(draw: Draw) -> None:
    generator = np.random.default_rng(1)
    tables = [draw(generator, 10, 20) for _ in range(N_EXPERIMENTS)]
    iqm = iqm_effects(np.concatenate(tables)).estimate  # of the population: 400,000 values
    assert covered([mean_effects(table) for table in tables], 1.0) == pytest.approx(0.95, abs=0.015)
    assert covered([iqm_effects(table) for table in tables], iqm) == pytest.approx(0.95, abs=0.015)


@pytest.mark.slow
def test_paired_differences_and_probabilities_of_improvement_cover_95_percent() -> None:
    generator = np.random.default_rng(2)
    differences, improvements = [], []
    for _ in range(N_EXPERIMENTS):
        of_episodes = generator.exponential(1.0, (1, 20))
        better = with_runs(generator, 10, 20) + of_episodes + 0.3
        baseline = exponential(generator, 10, 20) + of_episodes
        differences.append(difference_effects(better, baseline))
        improvements.append(improvement_effects(exponential(generator, 10, 20), exponential(generator, 10, 20)))
    assert covered(differences, 0.3) == pytest.approx(0.95, abs=0.015)
    assert covered(improvements, 0.5) == pytest.approx(0.95, abs=0.015)


def test_intervals_of_few_runs_cover_at_least_95_percent() -> None:
    generator = np.random.default_rng(3)
    estimates = [
        mean_effects(generator.normal(0.0, 1.0, (4, 20)) + generator.normal(0.0, 1.0, (4, 1))) for _ in range(1000)
    ]
    assert 0.94 <= covered(estimates, 0.0) <= 0.985  # degrees of freedom are rounded down


def test_intervals_of_one_policy_cover_about_95_percent() -> None:
    generator = np.random.default_rng(4)
    estimates = [mean_effects(exponential(generator, 1, 50)) for _ in range(1000)]
    assert covered(estimates, 1.0) == pytest.approx(0.95, abs=0.02)


def in_some_episodes(values: Values, generator: np.random.Generator, n_values: int) -> Values:
    """Values [1, n_values] in some of 100 episodes."""
    table = np.full((1, 100), np.nan)
    table[:, generator.permutation(100)[:n_values]] = values
    return table


@pytest.mark.parametrize("n_values", [2, 3, 5])
def test_intervals_of_few_episodes_with_a_value_cover_95_percent(n_values: int) -> None:
    generator = np.random.default_rng(6)
    estimates = []
    for _ in range(2000):
        values = generator.normal(0.0, 1.0, (1, n_values))
        estimates.append(mean_effects(in_some_episodes(values, generator, n_values)))
    assert covered(estimates, 0.0) == pytest.approx(0.95, abs=0.015)


def test_differences_of_entries_with_values_in_other_episodes_cover_95_percent() -> None:
    generator = np.random.default_rng(7)
    differences = []
    for _ in range(2000):
        tables = [in_some_episodes(generator.normal(0.0, 1.0, (1, 25)), generator, 25) for _ in range(2)]
        shared = difference_effects(*tables)
        if 2 <= shared.n_values < FEWEST_UNITS:
            differences.append(shared)
    assert len(differences) > 1000
    assert covered(differences, 0.0) == pytest.approx(0.95, abs=0.015)


def test_equal_entries_rarely_have_a_winner_by_a_kpi_that_few_episodes_have() -> None:
    generator = np.random.default_rng(9)
    entries = [Entry(name, [Player(name, name)], is_baseline=name == "b") for name in ("a", "b")]
    tables = []
    for _ in range(1000):
        values = np.full((2, 1, 100), np.nan)
        values[:, 0, generator.permutation(100)[:3]] = generator.normal(0.0, 1.0, (2, 3))
        tables.append(list(values))
    differences = [difference_effects(*values) for values in tables]
    assert covered(differences, 0.0) == pytest.approx(0.95, abs=0.02)
    winners = set()
    for values, interval in zip(tables[:60], two_level_intervals(differences[:60]), strict=True):
        assert interval is not None
        better = "a" if interval[0] > 0.0 else "b" if interval[1] < 0.0 else None
        assert analyze(entries, {"kpi/delay": values}, Question("kpi/delay"))[2] == better
        winners.add(better)
    assert winners == {"a", "b", None}


@pytest.mark.slow
def test_intervals_of_ten_and_more_episodes_with_a_skewed_value_cover_about_95_percent() -> None:
    generator = np.random.default_rng(8)
    for n_values in (10, 20, 40):
        estimates = []
        for _ in range(N_EXPERIMENTS):
            estimates.append(mean_effects(in_some_episodes(exponential(generator, 1, n_values), generator, n_values)))
        assert covered(estimates, 1.0) == pytest.approx(0.95, abs=0.025)


@pytest.mark.slow
def test_a_confidence_sequence_contains_the_mean_at_all_times_at_once() -> None:
    generator = np.random.default_rng(5)
    n_missed = n_missed_by_intervals_of_one_look = 0
    for _ in range(400):
        values = exponential(generator, 1, 400)
        always = fixed = True
        for n in range(20, 401, 20):
            effects = mean_effects(values[:, :n])
            interval = confidence_sequence(effects, 100)
            assert interval is not None
            always &= interval[0] <= 1.0 <= interval[1]
            fixed &= abs(effects.estimate - 1.0) <= 1.96 * math.sqrt(effects.variance)
        n_missed += not always
        n_missed_by_intervals_of_one_look += not fixed
    assert n_missed / 400 <= 0.06
    assert n_missed_by_intervals_of_one_look / 400 > 0.15  # so that the rule is needed

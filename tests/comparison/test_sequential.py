"""Confidence sequences and power calculations: numbers computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from maze_pl.comparison.effects import difference_effects, mean_effects
from maze_pl.comparison.sequential import confidence_sequence, episodes_needed
from maze_pl.comparison.two_level import student_error, two_level_intervals
from maze_pl.runs.intervals import t_quantile


def test_the_confidence_sequence_by_hand() -> None:
    values = np.array([[1.0, 2.0, 3.0, 4.0]])
    # rho^2 = (5.99146 + log 6.99146) / 100 = 0.0793616;  4 rho^2 + 1 = 1.317446
    half = 1.2909944 * math.sqrt(2 * 1.317446 / (16 * 0.0793616) * math.log(math.sqrt(1.317446) / 0.05))
    interval = confidence_sequence(mean_effects(values), 100)
    assert interval == (pytest.approx(2.5 - half, rel=1e-5), pytest.approx(2.5 + half, rel=1e-5))


def test_the_confidence_sequence_narrows_and_is_wider_than_an_interval_of_one_look() -> None:
    values = np.random.default_rng(0).normal(size=(1, 4000))
    widths = []
    for n in (50, 100, 1000, 4000):
        effects = mean_effects(values[:, :n])
        interval = confidence_sequence(effects, 100)
        assert interval is not None
        widths.append(interval[1] - interval[0])
        assert widths[-1] > 2 * 1.96 * math.sqrt(effects.variance)
    assert widths == sorted(widths, reverse=True)


def test_one_value_has_no_confidence_sequence() -> None:
    assert confidence_sequence(mean_effects(np.array([[1.0]])), 100) is None
    assert confidence_sequence(mean_effects(np.array([[np.nan, 1.0]])), 100) is None


def test_a_confidence_sequence_counts_episodes_with_a_value() -> None:
    values = np.array([[1.0, 2.0, 3.0, 4.0]])
    sparse = np.full((1, 50), np.nan)
    sparse[0, [3, 8, 20, 49]] = values
    expected = confidence_sequence(mean_effects(values), 100)
    assert confidence_sequence(mean_effects(sparse), 100) == pytest.approx(expected)


def test_more_episodes_are_needed_where_few_have_a_value() -> None:
    ours = np.array([[1.0, -1.0, 1.0, 3.0]])
    sparse = np.full((1, 12), np.nan)
    sparse[0, 2::3] = ours
    assert episodes_needed(difference_effects(sparse, np.zeros((1, 12)))) == 69  # 3 * 23


def test_the_number_of_episodes_by_hand() -> None:
    ours = np.array([[1.0, -1.0, 1.0, 3.0]])  # differences with mean 1 and variance 8 / 3
    effects = difference_effects(ours, np.zeros((1, 4)))
    # (2.0739 + 0.8416)^2 * 8 / 3 = 22.67 with Student's quantile for n = 23, and 22.76 for n = 22
    assert episodes_needed(effects) == 23


def test_the_number_of_episodes_counts_one_more_win_of_each_entry() -> None:
    ours = np.array([[1.0, 1.0, 1.0, 1.0, 0.0]])  # differences with mean 0.8 and variance 0.2
    # (2.3646 + 0.8416) sqrt(0.2 / 8 + 2 / 56) = 0.790 for n = 8, and 0.908 for n = 7
    assert episodes_needed(difference_effects(ours, np.zeros((1, 5)))) == 8


def test_the_number_of_episodes_with_few_runs_has_the_quantile_of_student() -> None:
    of_runs = np.array([[1.0], [2.0], [3.0]])  # mean 2; the variance of the mean is 1 / 3
    of_episodes = np.tile([0.5, -0.5], 10)
    # t = 4.303 for 2 degrees of freedom: (4.303 + 0.842) sqrt(1 / 3) = 2.97, which 1.960 would make 1.62
    assert episodes_needed(difference_effects(of_runs + of_episodes, np.zeros((1, 20)))) is None
    assert episodes_needed(difference_effects(of_runs + of_episodes + 1.0, np.zeros((1, 20)))) is not None


def test_the_number_of_episodes_has_the_power_that_it_is_made_for() -> None:
    generator = np.random.default_rng(1)
    needed = episodes_needed(difference_effects(generator.normal(0.2, 1.0, (1, 100_000)), np.zeros((1, 100_000))))
    assert needed is not None
    means = generator.normal(0.2, 1.0, (4000, needed)).mean(axis=1)
    assert (means > 1.96 / math.sqrt(needed)).mean() == pytest.approx(0.8, abs=0.03)


def test_the_number_of_episodes_is_the_smallest_one_also_if_larger_ones_do_not_suffice() -> None:
    ours = np.array([[3.0, -2.0, 2.0, 1.0], [2.0, 1.0, 3.0, 1.0]])
    difference = difference_effects(ours, np.array([[-1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]]))
    suffices = {}
    for n in (46, 47, 116, 117, 10_000):
        quantile, error = student_error(difference, 0.95, n)
        suffices[n] = (quantile + 0.8416) * error <= difference.estimate
    assert suffices == {46: False, 47: True, 116: True, 117: False, 10_000: False}
    assert episodes_needed(difference) == 47


def test_many_runs_that_differ_by_the_same_in_one_episode_need_more_episodes() -> None:
    difference = difference_effects(np.ones((10, 1)), np.zeros((10, 1)))
    assert two_level_intervals([difference]) == [(0.0, 2.0)]
    assert episodes_needed(difference) == 6
    assert episodes_needed(difference_effects(np.ones((2, 1)), np.zeros((2, 1)))) is None  # of 4 runs
    assert episodes_needed(difference_effects(np.ones((1, 1)), np.zeros((1, 1)))) is None


def test_each_quantile_of_student_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    degrees = []

    def noted(confidence: float, n: int) -> float:
        degrees.append(n)
        return t_quantile(confidence, n)

    monkeypatch.setattr("maze_pl.comparison.two_level.t_quantile", noted)
    ours = np.array([[1.0, -1.0, 1.0, 3.0]])
    episodes_needed(difference_effects(ours, np.zeros((1, 4))), confidence=0.9512)  # of no other test
    assert max(degrees) == 1000
    assert len(degrees) == len(set(degrees))


def test_no_number_of_episodes_replaces_runs() -> None:
    runs = np.random.default_rng(2).normal(0.0, 0.1, (3, 50)) + np.array([[0.0], [5.0], [-4.0]])
    assert episodes_needed(difference_effects(runs, np.zeros((1, 50)))) is None


def test_entries_without_difference_are_never_told_apart() -> None:
    same = np.array([[1.0, 2.0, 5.0]])
    assert episodes_needed(difference_effects(same, same)) is None
    assert episodes_needed(difference_effects(same[:, :1], same[:, 1:2])) is None

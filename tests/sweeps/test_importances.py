"""Importances of searched options: what decides is told from what does not, also by few trials."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from maze_pl.sweeps.importances import FEWEST_TRIALS, importances_of
from maze_pl.sweeps.search_space import Choice, Parameter, Range

RATE = Range("model.lr", 1e-4, 3e-2, is_int=False, log=True)
GAMMA = Range("model.gamma", 0.0, 1.0, is_int=False)
LAYERS = Choice("layers", ([64], [64, 64], None))


@pytest.mark.parametrize("n_trials", [FEWEST_TRIALS, 20, 80])
def test_the_only_option_that_matters_is_found_by_any_number_of_trials(n_trials: int) -> None:
    clip = Choice("clip", (0.5, 0.9))
    trials = [
        {"clip": chosen, "model.lr": rate}
        for chosen, rate in product(clip.values, np.geomspace(1e-4, 1e-2, n_trials // 2))
    ]
    of_repetitions = []
    for repetition in range(10):
        noise = np.random.default_rng(repetition).normal(0.0, 0.01, n_trials)
        values = [trial["clip"] + part for trial, part in zip(trials, noise, strict=True)]
        of_repetitions.append(importances_of([RATE, clip], trials, values)["clip"])
    assert np.mean(of_repetitions) > 0.9


def sampled(n_trials: int, value: Callable[[float, float, Any], float], low: float = 0.0) -> dict[str, float]:
    """Mean importances in trials with random values; gamma is between `low` and 1."""
    total = {"model.lr": 0.0, "model.gamma": 0.0, "layers": 0.0}
    for repetition in range(10):
        generator = np.random.default_rng(repetition)
        trials = []
        for _ in range(n_trials):
            layers = LAYERS.values[generator.integers(3)]
            rate = float(np.exp(generator.uniform(np.log(1e-4), np.log(3e-2))))
            trials.append({"model.lr": rate, "model.gamma": generator.uniform(low, 1.0), "layers": layers})
        values = [value(*trial.values()) + generator.normal(0.0, 0.02) for trial in trials]
        for option, share in importances_of([RATE, GAMMA, LAYERS], trials, values).items():
            total[option] += share / 10
    return total


def test_an_optimum_inside_of_a_range_and_single_good_choices_count() -> None:
    assert sampled(20, lambda _, gamma, __: -((gamma - 0.5) ** 2))["model.gamma"] > 0.55
    assert sampled(20, lambda *chosen: float(chosen[2] is None))["layers"] > 0.55  # the other two are equal
    assert sampled(20, lambda rate, *_: np.log10(rate))["model.lr"] > 0.85


def test_larger_effects_have_larger_importances_whatever_the_size_of_failures() -> None:
    shares = sampled(60, lambda rate, gamma, _: 2.0 * gamma + 0.4 * np.log10(rate))
    assert shares["model.gamma"] > 2.0 * shares["model.lr"] > 10.0 * shares["layers"]
    broken = sampled(60, lambda rate, gamma, _: -1e9 if rate > 2e-2 else gamma)
    assert broken["model.gamma"] > 0.5 and broken["layers"] < 0.05


def test_options_of_some_trials_count_for_these() -> None:
    momentum = Range("momentum", 0.0, 1.0, is_int=False)
    generator = np.random.default_rng(0)
    trials: list[dict[str, Any]] = []
    for number in range(60):
        trials.append({"layers": LAYERS.values[number % 3]})
        if number % 3 == 0:
            trials[-1]["momentum"] = generator.uniform()
    values = [10.0 * (trial["layers"] is None) + trial.get("momentum", 0.5) for trial in trials]
    shares = importances_of([LAYERS, momentum], trials, values)
    assert shares["layers"] > 2.0 * shares["momentum"] > 0.1


@pytest.mark.parametrize("parameter", [Choice("a", tuple(range(12))), RATE, Choice("b", ("same", "other"))])
def test_nothing_is_claimed_without_differences(parameter: Parameter) -> None:
    chosen = {"a": range(12), "b": ["same"] * 12, "model.lr": [1e-3] * 12}[parameter.option]
    trials = [{parameter.option: value} for value in chosen]
    assert importances_of([parameter], trials, list(range(12))) == {parameter.option: 0.0}
    trials = [{"model.lr": rate} for rate in np.geomspace(1e-4, 1e-2, 12)]
    assert importances_of([RATE], trials, [1.0] * 12) == {"model.lr": 0.0}
    assert importances_of([RATE], trials[:1], [1.0]) == {}


def mean_difference(values: Any, groups: Any) -> float:
    """Mean over trials of the mean difference from the others of the same group, if there are any."""
    means = []
    for trial, group in enumerate(groups):
        others = [abs(values[trial] - values[other]) for other, same in enumerate(groups) if same == group]
        if len(others) > 1:
            means.append(sum(others) / (len(others) - 1))  # the trial itself adds 0
    return float(np.mean(means))


def test_importances_of_choices_are_the_documented_ratio() -> None:
    generator = np.random.default_rng(0)
    chosen = [*generator.integers(5, size=40).tolist(), 5]  # the last choice occurs once
    ranks = 1.0 + np.argsort(np.argsort(np.array(chosen) + generator.normal(size=41)))
    together = mean_difference(ranks, [0] * 41)
    expected = together - mean_difference(ranks, chosen)
    expected /= together - mean_difference(np.sort(ranks), sorted(chosen))
    trials = [{"a": number} for number in chosen]
    assert importances_of([Choice("a", tuple(range(6)))], trials, ranks.tolist()) == pytest.approx({"a": expected})
    assert 0.2 < expected < 0.9


def test_many_trials_need_little_memory() -> None:
    trials = [{"clip": number % 2} for number in range(1000)]
    tracemalloc.start()
    try:
        shares = importances_of([Choice("clip", (0, 1))], trials, [trial["clip"] for trial in trials])
        assert tracemalloc.get_traced_memory()[1] < 2 << 20, "not one number for each pair of trials"
    finally:
        tracemalloc.stop()
    assert shares == {"clip": 1.0}


@pytest.mark.parametrize("n_trials", [FEWEST_TRIALS, 30, 100])
def test_few_options_without_effect_have_an_importance(n_trials: int) -> None:
    shares: list[float] = []
    for repetition in range(30):
        generator = np.random.default_rng(repetition)
        trials = []
        for _ in range(n_trials):
            rate, gamma = generator.uniform(1e-4, 3e-2), generator.uniform()
            trials.append({"model.lr": rate, "model.gamma": gamma, "layers": LAYERS.values[generator.integers(3)]})
        shares += importances_of([RATE, GAMMA, LAYERS], trials, generator.normal(size=n_trials)).values()
    assert len(shares) == 90
    assert np.mean(np.array(shares) > 0.0) < 0.15


def test_the_part_that_no_option_explains_is_not_shared_out() -> None:
    clip = Choice("clip", (0.0, 1.0))
    generator = np.random.default_rng(0)
    trials = [{"clip": clip.values[number % 2], "model.gamma": generator.uniform()} for number in range(200)]
    values = [trial["clip"] + generator.normal() for trial in trials]  # 20% of the variance is due to clip
    shares = importances_of([GAMMA, clip], trials, values)
    assert list(shares) == ["clip", "model.gamma"] and shares["model.gamma"] == 0.0
    assert shares["clip"] == pytest.approx(0.2, abs=0.08)

"""Drift: shares and indices computed by hand, and what a deployment reports."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from maze_pl import AgentDeployment
from maze_pl.agents import DummyCartPolePolicy
from maze_pl.core.observation_sample import ObservationSample
from maze_pl.deployment.drift import DriftMonitor, bin_edges, population_stability_index
from maze_pl.envs import GymMazeEnv


def sample_of(values: np.ndarray) -> ObservationSample:
    sample = ObservationSample()
    sample.add(0, {"observation": values})
    return sample


def test_stability_index_computed_by_hand() -> None:
    # (0.4 - 0.5) ln(0.4 / 0.5) + (0.6 - 0.5) ln(0.6 / 0.5) = 0.022314 + 0.018232
    index = population_stability_index(np.array([0.5, 0.5]), np.array([0.4, 0.6]))
    assert float(index) == pytest.approx(0.0405465, abs=1e-7)
    # (0.1 - 0.2) ln 0.5 + 0 + (0.4 - 0.3) ln(4 / 3) = 0.0693147 + 0.0287682
    index = population_stability_index(np.array([0.2, 0.5, 0.3]), np.array([0.1, 0.5, 0.4]))
    assert float(index) == pytest.approx(0.0980829, abs=1e-7)


def test_stability_index_of_equal_and_of_disjoint_distributions() -> None:
    shares = np.array([[0.1, 0.9], [1.0, 0.0]])
    np.testing.assert_array_equal(population_stability_index(shares, shares), [0, 0])
    # twice (1 - 0.0001) ln(1 / 0.0001)
    disjoint = population_stability_index(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert float(disjoint) == pytest.approx(2 * 0.9999 * np.log(10_000))


def test_bins_are_deciles_each_once() -> None:
    np.testing.assert_array_equal(bin_edges(np.arange(1.0, 101.0)), [10, 20, 30, 40, 50, 60, 70, 80, 90])
    np.testing.assert_array_equal(bin_edges(np.array([0.0] * 7 + [1.0] * 3)), [0, 1])
    lowest, following = bin_edges(np.full(5, 2.0))
    assert lowest == 2.0 < following


def test_shares_outside_of_the_range_computed_by_hand() -> None:
    values = np.arange(0, 1001, dtype=np.float64)[:, np.newaxis] / 1000  # the quantiles are 0.001 and 0.999
    monitor = DriftMonitor(sample_of(values))
    for value in (0.0005, 0.0015, 0.5, 0.9985, 0.9995):
        monitor.add(0, {"observation": np.array([[value]], np.float32)})
    (drift,) = monitor.report(restart=True)
    assert (drift.n_observations, drift.outside) == (5, 0.4)
    (drift,) = monitor.report(restart=False)
    assert (drift.n_observations, drift.outside, drift.stability) == (0, 0.0, 0.0)


@pytest.mark.parametrize("n", [255, 256, 700])
def test_the_same_distribution_is_no_drift_and_another_one_is(n: int) -> None:
    generator = np.random.default_rng(0)
    sample = ObservationSample()
    for _ in range(100):
        sample.add(0, {"observation": generator.normal(size=(64, 3))})
    same, other = DriftMonitor(sample), DriftMonitor(sample)
    for values in generator.normal(size=(n, 3)):
        same.add(0, {"observation": values[np.newaxis]})
        other.add(0, {"observation": (values + np.array([0, 4, 0]))[np.newaxis]})
    (drift,) = same.report(restart=False)
    assert drift.n_observations == n
    assert drift.outside < 0.01 and drift.stability < 0.1
    (drift,) = other.report(restart=False)
    assert drift.element == 1 and drift.stability > 1
    assert 0.2 < drift.outside < 0.34, "nearly all of one number in three"


def test_a_constant_that_changes_is_drift() -> None:
    monitor = DriftMonitor(sample_of(np.full((100, 1), 3.0)))
    for value in (3.0, 3.0, 2.0, 4.0):
        monitor.add(0, {"observation": np.array([[value]])})
    (drift,) = monitor.report(restart=False)
    assert drift.outside == 0.5 and drift.stability > 0.25


@pytest.mark.parametrize(
    "values",
    [
        np.arange(1, 9, dtype=np.float64)[:, np.newaxis] / 10,
        np.full((8, 1), 0.3),
        np.full((8, 1), 1_700_000_001, np.int64),
        1_700_000_001 + np.arange(8, dtype=np.int64)[:, np.newaxis] * 300,
    ],
    ids=["tenths", "constant", "time", "times"],
)
def test_numbers_that_float32_rounds_are_no_drift(values: np.ndarray) -> None:
    monitor = DriftMonitor(sample_of(np.tile(values, (100, 1))))
    for row in np.tile(values, (50, 1)):
        monitor.add(0, {"observation": row[np.newaxis]})
    (drift,) = monitor.report(restart=True)
    assert (drift.n_observations, drift.outside, drift.stability) == (400, 0.0, 0.0)
    for row in np.tile(values, (50, 1)):
        monitor.add(0, {"observation": row[np.newaxis] + 2 * row[np.newaxis]})
    (drift,) = monitor.report(restart=False)
    highest = max(map(float, values.astype(np.float32).ravel()))
    outside = [3 * float(number) > highest for number in values.ravel()]
    assert drift.outside == sum(outside) / len(outside)
    assert drift.stability > 1


def test_a_deployment_reports_the_drift_of_what_the_policy_sees() -> None:
    known = sample_of(np.random.default_rng(0).uniform(-1, 1, (500, 4)))
    make_env = partial(GymMazeEnv, "CartPole-v1")
    with AgentDeployment(DummyCartPolePolicy, make_env, training_observations=known) as deployment:
        for place in range(10):
            deployment.act(np.array([0, 0, 0, 2.0 if place < 3 else 0.5], np.float32))
        (drift,) = deployment.drift(restart=True)
        assert (drift.step_key, drift.name, drift.n_observations) == (0, "observation", 10)
        assert drift.outside == pytest.approx(3 / 40)
        assert deployment.drift()[0].n_observations == 0


def test_without_a_sample_there_is_nothing_to_compare_with() -> None:
    with (
        AgentDeployment(DummyCartPolePolicy, partial(GymMazeEnv, "CartPole-v1")) as deployment,
        pytest.raises(
            ValueError,
            match=r"there is no sample of the observations of training: use .*from_run of a run that keeps one, or",
        ),
    ):
        deployment.drift()


@pytest.mark.parametrize("sample", [ObservationSample(), ObservationSample.of([])])
def test_an_empty_sample_is_no_sample(sample: ObservationSample) -> None:
    with (
        AgentDeployment(
            DummyCartPolePolicy, partial(GymMazeEnv, "CartPole-v1"), training_observations=sample
        ) as deployment,
        pytest.raises(ValueError, match=r"there is no sample of the observations of training"),
    ):
        deployment.act(np.zeros(4, np.float32))
        deployment.drift()


@pytest.mark.parametrize("n_elements", [3, 5, 12])
def test_a_sample_of_observations_of_another_size_is_refused_when_it_is_asked_for(n_elements: int) -> None:
    sample = sample_of(np.zeros((10, n_elements)))
    make_env = partial(GymMazeEnv, "CartPole-v1")
    with AgentDeployment(DummyCartPolePolicy, make_env, training_observations=sample) as deployment:
        assert deployment.act(np.zeros(4, np.float32)) in (0, 1)
        with pytest.raises(
            ValueError, match="'observation' of sub-step 0 has 4 numbers, which does not fit the sample"
        ):
            deployment.drift()

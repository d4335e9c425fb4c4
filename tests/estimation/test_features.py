"""Features of recorded actions and of those that a policy would take."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces

from maze_pl.core.spec import StepSpec
from maze_pl.estimation.features import action_features, observation_features, standardised_boxes
from maze_pl.estimation.recorded_acts import Situations

STEP = StepSpec(
    spaces.Dict(place=spaces.Box(0, 1, (1,), np.float32)),
    spaces.Dict(mode=spaces.Discrete(2), power=spaces.Box(0, 1e6, (2,), np.float32)),
)


def test_continuous_actions_are_standardised_and_options_are_not() -> None:
    power = np.array([[1000.0, 5.0], [3000.0, 9.0], [2000.0, 7.0]], np.float32)
    taken = action_features(STEP, {"mode": np.array([0, 1, 1]), "power": power})
    of_policy = torch.tensor([[[1.0, 0.0, 2000.0, 9.0]]])
    found, candidates = standardised_boxes(STEP, taken, of_policy)
    np.testing.assert_array_equal(found[:, :2].numpy(), [[1, 0], [0, 1], [0, 1]])
    np.testing.assert_allclose(found[:, 2:].numpy().mean(0), 0.0, atol=1e-6)
    np.testing.assert_allclose(found[:, 2:].numpy().std(0), 1.0, rtol=1e-6)
    np.testing.assert_allclose(candidates[0, 0].numpy(), [1.0, 0.0, 0.0, 1.5**0.5], rtol=1e-6)


def test_a_policy_far_from_recorded_actions_has_features_of_moderate_size() -> None:
    taken = action_features(STEP, {"mode": np.zeros(4, np.int64), "power": np.full((4, 2), 500.0, np.float32)})
    found, candidates = standardised_boxes(STEP, taken, torch.tensor([[[1.0, 0.0, 700.0, 500.0]]]))
    assert not found[:, 2:].any()
    np.testing.assert_allclose(candidates[0, 0].numpy(), [1.0, 0.0, 10.0, 0.0], rtol=1e-6)


def test_numbers_far_from_0_keep_their_differences() -> None:
    """Times since 1970, as observations and as actions, and a constant of which the last bit changes."""
    step = StepSpec(
        spaces.Dict(time=spaces.Box(0, 1e12, (1,), np.float64), place=spaces.Box(0, 1, (1,), np.float32)),
        spaces.Dict(start=spaces.Box(0, 1e12, (1,), np.float64)),
        n_agents=2,
    )
    times = 1.7e9 + np.array([[0.0], [20.0]])
    place = np.nextafter(np.full((2, 1), 0.1, np.float32), np.array([[0.0], [1.0]], np.float32))
    situations = Situations({"time": times, "place": place}, np.array([0, 1]), {"start": times})
    features = observation_features(step, situations)
    assert features.dtype == torch.float32
    np.testing.assert_allclose(features, [[-1, 0, 1, -1], [1, 0, -1, 1]], atol=1e-6)
    taken = action_features(step, situations.action)
    found, candidates = standardised_boxes(step, taken, torch.from_numpy(taken[:, np.newaxis] + 10.0))
    np.testing.assert_allclose(found, [[-1.0], [1.0]])
    np.testing.assert_allclose(candidates, [[[0.0]], [[2.0]]])
    unknown, candidates = standardised_boxes(step, taken[:0], torch.from_numpy(taken[:, np.newaxis]))
    assert unknown.dtype == candidates.dtype == torch.float32

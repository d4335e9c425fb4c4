"""Estimates for policies whose actions are clipped to the bounds of a box."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.agents import TorchPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.estimation import estimate
from maze_pl.estimation.cloning import cloned_policy
from maze_pl.estimation.fitted_q import FittedQ, FittedQOptions
from maze_pl.estimation.probabilities import log_probs
from maze_pl.estimation.recorded_acts import read_acts
from maze_pl.perception import AutomaticModelComposer
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.rollout import rollout

BOX = spaces.Box(np.float32([-1.0, -np.inf]), np.float32([1.0, 0.3]))
BEHAVIOUR = [0.5, 0.0]
TARGET = [-0.5, -0.2]


class TwoArms(gymnasium.Env[Any, Any]):
    """One act of two numbers, whose sum is the reward."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = BOX

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), float(action.sum()), True, False, {}


def make() -> GymMazeEnv:
    return GymMazeEnv(TwoArms())


def policy_of(mean: list[float]) -> TorchPolicy:
    """Normal actions with a standard deviation of 1."""
    policy = AutomaticModelComposer().compose(Spec.of(make())).policy
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
        biases = [parameter for name, parameter in policy.named_parameters() if name.endswith("bias")]
        biases[-1][:2] = torch.tensor(mean)
    return policy.eval()


def recorded(policy: TorchPolicy, n_episodes: int) -> list[SpacesTrajectoryRecord]:
    played = rollout(make, policy, episodes=n_episodes, n_envs=500, seed=2)
    return [one.spaces for one in played if one.spaces is not None]


@pytest.fixture(scope="module")
def records() -> list[SpacesTrajectoryRecord]:
    return recorded(policy_of(BEHAVIOUR), 1500)


def slow_log_probs(records: list[SpacesTrajectoryRecord], mean: list[float]) -> list[float]:
    found = []
    for record in records:
        total = 0.0
        for n, value in enumerate(record.action[0]["action"][0].tolist()):
            normal = NormalDist(mean[n], 1.0)
            if value <= float(BOX.low[n]):
                total += np.log(normal.cdf(value))
            elif value >= float(BOX.high[n]):
                total += np.log(1.0 - normal.cdf(value))
            else:
                total += np.log(normal.pdf(value))
        found.append(total)
    return found


def value_of(mean: list[float]) -> float:
    """Expected sum of the clipped numbers, from a fine grid of quantiles."""
    quantiles = (np.arange(20_000) + 0.5) / 20_000
    deviations = np.array([NormalDist().inv_cdf(one) for one in quantiles])
    both = np.clip(deviations[:, np.newaxis] + mean, BOX.low, BOX.high)
    return float(both.mean(0).sum())


def test_recorded_actions_on_a_bound_have_the_probability_of_all_that_is_clipped(records: Any) -> None:
    acts = read_acts(records[:300], Spec.of(make()))
    action = acts.situations[0].action["action"]
    assert (action == BOX.high).all(1).any() and (action[:, 0] == -1.0).any() and np.isfinite(action).all()
    found = log_probs(policy_of(TARGET), acts, "it")
    np.testing.assert_allclose(found, slow_log_probs(records[:300], TARGET), atol=1e-4)


def test_weighted_estimates_of_clipped_policies_are_right(records: Any) -> None:
    options: Any = {"estimators": ["importance_sampling", "weighted_importance_sampling"], "gamma": 1.0}
    found = estimate(policy_of(TARGET), records, policy_of(BEHAVIOUR), **options)
    expected = value_of(TARGET)
    for one in found.estimates:
        assert one.interval is not None and one.interval[0] < expected < one.interval[1]
        assert one.value == pytest.approx(expected, abs=0.1)


def test_fitted_values_are_those_of_actions_that_the_environment_receives(records: Any) -> None:
    acts = read_acts(records, Spec.of(make()))
    options = FittedQOptions(n_updates=150, hidden_units=32, lr=1e-2, n_samples=16)
    values = FittedQ(acts, policy_of(TARGET), 1.0, 0, options=options).fit(np.ones(len(records)), 0)
    assert values.before.mean() == pytest.approx(value_of(TARGET), abs=0.08)
    sure = FittedQ(acts, policy_of([9.0, 9.0]), 1.0, 0, deterministic=True, options=options)
    assert sure.fit(np.ones(len(records)), 0).before.mean() == pytest.approx(1.3, abs=0.08)


@pytest.mark.slow
def test_a_clone_of_a_clipped_policy_has_its_probabilities(records: Any) -> None:
    acts = read_acts(records, Spec.of(make()))
    clone = log_probs(cloned_policy(acts, 0), acts, "clone")
    assert abs(np.mean(clone) - np.mean(slow_log_probs(records, BEHAVIOUR))) < 0.02
    found = estimate(policy_of(TARGET), records, estimators=["weighted_importance_sampling"], gamma=1.0)
    assert found["weighted_importance_sampling"].value == pytest.approx(value_of(TARGET), abs=0.1)

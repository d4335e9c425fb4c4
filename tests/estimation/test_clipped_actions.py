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
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import DeterministicProbabilityDistribution
from maze_pl.envs import GymMazeEnv
from maze_pl.estimation import estimate
from maze_pl.estimation.cloning import clone_of
from maze_pl.estimation.fitted_q import FittedQ, FittedQOptions
from maze_pl.estimation.probabilities import log_probs
from maze_pl.estimation.recorded_acts import read_acts
from maze_pl.perception import (
    AutomaticModelComposer,
    CustomModelComposer,
    FlattenConcatPolicyNet,
    ProbabilisticPolicyComposer,
)
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
    clone = log_probs(clone_of(acts, 0).policy, acts, "clone")
    assert abs(np.mean(clone) - np.mean(slow_log_probs(records, BEHAVIOUR))) < 0.02
    found = estimate(policy_of(TARGET), records, estimators=["weighted_importance_sampling"], gamma=1.0)
    assert found["weighted_importance_sampling"].value == pytest.approx(value_of(TARGET), abs=0.1)


BOUNDED = spaces.Dict(action=spaces.Box(np.float32([0.0, -2.0]), np.float32([4.0, 2.0])))
SPEC = Spec({0: StepSpec(spaces.Dict(place=spaces.Box(-1.0, 1.0, (1,))), BOUNDED)})


def records_of(actions: list[list[float]]) -> list[SpacesTrajectoryRecord]:
    """Episodes of one act each."""
    records = []
    for number, action in enumerate(actions):
        row = (0, 0, 0, 1.0, False, {"place": [0.5]}, {"action": action})
        end: Any = {"terminated": True, "truncated": False, "last_env_time": 1}
        end |= {"last_actor": None, "last_observation": {}}
        records.append(SpacesTrajectoryRecord.of_acts(f"episode {number}", SPEC, [row], **end))
    return records


def test_random_actions_have_the_probability_of_rounding_on_a_bound() -> None:
    acts = read_acts(records_of([[1.0, 0.5], [1.0, 2.0], [1.0, -2.0], [4.0, 2.0], [0.0, 0.5]]), SPEC)
    found = log_probs(RandomPolicy({0: BOUNDED}), acts, "random")
    half_step = np.log(2.0**-23 / 2.0)  # below 2.0, as far as floats of 24 digits
    inside = -np.log(4.0)
    expected = [2 * inside, inside + half_step - np.log(4.0), inside + half_step - np.log(4.0)]
    expected.append(np.log(2.0**-22 / 2.0) + half_step - 2.0 * np.log(4.0))
    np.testing.assert_allclose(found[:4], expected)
    assert -120.0 < found[4] < -100.0, "practically never, as floats next to 0 are dense"


def deterministic_policy() -> TorchPolicy:
    """Actions without noise, as of TD3 without exploration and of cloned deterministic policies."""
    config = [{"action_space": spaces.Box, "distribution": DeterministicProbabilityDistribution}]
    policy = ProbabilisticPolicyComposer([FlattenConcatPolicyNet])
    return CustomModelComposer(policy, None, config).compose(SPEC).policy.eval()


@pytest.mark.parametrize("scale", [None, 0.0])
def test_actions_without_noise_have_no_probabilities(scale: float | None) -> None:
    policy = deterministic_policy()
    if scale is not None:
        policy.set_exploration(scale)
    records = records_of([[1.0, 0.5], [3.0, 1.0]])
    message = r"acts without noise in head 'action' of sub-step 0.*no probabilities.*ask for fitted_q only"
    with pytest.raises(ValueError, match=message):
        estimate(policy, records, "random", estimators=["per_decision"], gamma=1.0)
    with pytest.raises(ValueError, match=message):
        log_probs(policy, read_acts(records, SPEC), "behaviour")
    options = FittedQOptions(n_updates=5, batch_size=4, hidden_units=4)
    found = estimate(policy, records, estimators=["fitted_q"], gamma=1.0, n_fits=2, fitted_q=options)
    assert np.isfinite(found["fitted_q"].value)
    policy.set_exploration(0.1)
    assert np.isfinite(log_probs(policy, read_acts(records, SPEC), "explorer")).all()


def test_networks_that_return_nan_are_refused() -> None:
    policy = AutomaticModelComposer().compose(SPEC).policy
    with torch.no_grad():
        next(policy.parameters()).fill_(np.nan)
    with pytest.raises(ValueError, match="2 recorded acts have no finite probability under it: check its weights"):
        log_probs(policy, read_acts(records_of([[1.0, 0.5], [3.0, 1.0]]), SPEC), "it")

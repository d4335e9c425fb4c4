"""Weights whose mean over the episodes is not 1 are doubted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.estimation import WeightedEpisodes, estimate
from maze_pl.estimation.doubts import doubts_of_weights
from maze_pl.runs.rollout import rollout
from tests.search.problems import table_env


def doubts_of(weights: Any, size: float = 50.0) -> list[str]:
    """Doubts of episodes of one act with these weights."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.array(weights, np.float64))[:, np.newaxis]
    ones = np.ones_like(log_weights)
    return doubts_of_weights(WeightedEpisodes(ones, ones, log_weights), size)


def test_a_mean_weight_far_from_one_is_doubted() -> None:
    (high,) = doubts_of([1.2, 1.4, 1.3, 1.5] * 10)
    assert high.startswith("the mean weight of the episodes is 1.35, but should be 1 (standard error 0.02): the agent")
    (low,) = doubts_of([0.5, 0.6] * 10)
    assert "is 0.55, but" in low and "the episodes lack acts that the agent takes" in low
    assert not doubts_of([0.5, 0.6] * 10, size=5.0), "a small effective sample size explains it"
    for usual in ([1.0] * 20, [0.0, 2.0] * 10, [0.1] * 30 + [9.0], [1.01] * 20, [1.5] * 5):
        assert not doubts_of(usual)


@pytest.mark.parametrize(("largest", "shown"), [(1e300, "5.0e+299"), (np.inf, "inf"), (1e4, "5.0e+03")])
def test_a_mean_weight_that_chance_never_has_is_doubted_whatever_its_error(largest: float, shown: str) -> None:
    (doubt,) = doubts_of([1e-9] * 9 + [largest] * 9)
    assert doubt.startswith(f"the mean weight of the episodes is {shown}, but should be 1: the agent was trained on")
    (doubt,) = doubts_of([1e-9] * 19 + [20 * largest])
    assert "but should be 1: " in doubt


class Wrong:
    """Has other probabilities than random actions."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        raise NotImplementedError

    def probabilities(self, batch: PolicyBatch, temperature: float = 1.0) -> dict[str, Any]:
        allowed = batch.observation["allowed"] * np.array([1.0, 2.0, 4.0])
        return {"choice": allowed / allowed.sum(1, keepdims=True)}


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_behaviour_that_did_not_record_the_episodes_is_doubted(is_wrong: bool) -> None:
    spec = Spec.of(table_env())
    masks = {key: step.masks for key, step in spec.steps.items()}
    agent: Any = RandomPolicy({key: step.action_space for key, step in spec.steps.items()}, masks)
    agent.spec = spec
    played = [one.spaces for one in rollout(table_env, "random", episodes=100)]
    behaviour: Any = Wrong() if is_wrong else "random"
    found = estimate(agent, played, behaviour, estimators=["per_decision"], gamma=0.9)
    assert [warning.startswith("the mean weight of the") for warning in found.warnings] == [True] * is_wrong
    assert np.isnan(found.clone_log_prob)

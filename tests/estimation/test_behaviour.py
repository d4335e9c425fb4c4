"""Policies that recorded the episodes: with other sub-steps than the agent, and rules with known probabilities."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs import cutting_2d
from maze_pl.estimation import estimate
from maze_pl.estimation.probabilities import log_probs
from maze_pl.estimation.recorded_acts import RecordedActs, read_acts
from maze_pl.perception import AutomaticModelComposer
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.rollout import rollout


def flat() -> Any:
    return cutting_2d.masked_env_factory(20, (6, 6), cutting_2d.MixedPeriodicDemand(2, 6))


def structured() -> Any:
    return cutting_2d.masked_struct_env_factory(20, (6, 6), cutting_2d.MixedPeriodicDemand(2, 6))


def test_a_behaviour_with_other_acts_than_the_agent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = {}
    for name, make in (("flat", flat), ("structured", structured)):
        policy = AutomaticModelComposer().compose(Spec.of(make())).policy
        data = SimpleNamespace(make_env=make, rollout_options={"wrappers": []})
        agents[name] = (policy, policy.spec, data, 0.9)  # as runs are loaded
    monkeypatch.setattr(sys.modules["maze_pl.estimation.estimate"], "_loaded", lambda agent, *_: agents[agent])
    played = rollout(flat, "random", episodes=2, max_steps=3, record=("states",))
    episodes = [one.states for one in played]
    options: Any = {"estimators": ["per_decision"], "trust": True}
    with pytest.raises(ValueError, match=r"have 12 acts for structured and 6 for the agent: their environments divide"):
        estimate("flat", episodes, "structured", **options)
    found = estimate("structured", episodes, "structured", **options)
    assert found["per_decision"].value == pytest.approx(found.recorded.value)


class Biased:
    """A rule that prefers the first option and knows how likely its choices are."""

    def __init__(self, spaces: Any, shares: Any = None) -> None:
        self.spaces = spaces
        self.shares = shares

    def probabilities(self, batch: PolicyBatch, temperature: float = 1.0) -> dict[str, Any]:
        return {head: self._of(space, len(batch.agent_id)) for head, space in self.spaces.items()}

    def _of(self, space: Any, n: int) -> Any:
        if isinstance(space, MultiBinary):
            return np.full((n, *space.shape), 0.25)
        if isinstance(space, MultiDiscrete):
            return [np.tile(shares_of(int(size)), (n, 1)) for size in space.nvec]
        return np.tile(self.shares or shares_of(int(space.n)), (n, 1))

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        raise NotImplementedError


def shares_of(size: int) -> Any:
    """Probabilities of options, 0.7 of the first one."""
    return np.array([0.7, *[0.3 / (size - 1)] * (size - 1)])


def acts_of(head: Any, actions: list[Any]) -> RecordedActs:
    """Acts of one episode."""
    step = StepSpec(Dict(place=Box(-1, 1, (1,), np.float32)), Dict(choice=head), 1, 1)
    acts: list[Any] = []
    for n, action in enumerate(actions):
        acts.append((0, 0, n, 0.0, False, {"place": np.ones(1)}, {"choice": np.array(action)}))
    rest = {"terminated": True, "truncated": False, "last_env_time": len(acts)}
    rest |= {"last_actor": None, "last_observation": {}}
    record = SpacesTrajectoryRecord.of_acts("episode", Spec({0: step}), acts, **rest)
    return read_acts([record], record.spec)


@pytest.mark.parametrize(
    ("head", "actions", "expected"),
    [
        (Discrete(3, start=2), [2, 4, 2], [0.7, 0.15, 0.7]),
        (MultiDiscrete([2, 4]), [[0, 0], [1, 3]], [0.49, 0.03]),
        (MultiBinary(2), [[0, 1], [1, 1]], [0.1875, 0.0625]),
    ],
)
def test_a_rule_that_knows_its_probabilities_is_a_behaviour(head: Any, actions: Any, expected: Any) -> None:
    acts = acts_of(head, actions)
    found = log_probs(Biased(acts.spec.steps[0].action_space), acts, "rule")
    np.testing.assert_allclose(np.exp(found), expected)


def test_rules_without_usable_probabilities_are_named() -> None:
    acts = acts_of(Discrete(3), [0, 2])
    heads = acts.spec.steps[0].action_space
    message = (
        r"^rule has no probabilities of actions, since FirstChoice has no such method: define probabilities\(batch\)"
    )
    with pytest.raises(ValueError, match=message):
        log_probs(FirstChoice(), acts, "rule")
    with pytest.raises(ValueError, match=r"^rule has no probabilities of recorded actions: it needs the states of the"):
        log_probs(OnStates(), acts, "rule")
    with pytest.raises(ValueError, match=r"head 'choice' of sub-step 0 of shapes \[\(2, 2\)\]: expected those of 2"):
        log_probs(Biased(heads, [0.5, 0.5]), acts, "rule")
    with pytest.raises(ValueError, match=r"head 'choice' of sub-step 0 that are negative or do not add up to 1"):
        log_probs(Biased(heads, [0.5, 0.5, 0.5]), acts, "rule")
    with pytest.raises(ValueError, match=r"^rule gives no probabilities of head 'choice' of sub-step 0, Discrete"):
        log_probs(Biased({}), acts, "rule")


class FirstChoice:
    """Takes the first option."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"choice": np.zeros(len(batch.agent_id), np.int64)})


class OnStates(MazeStatePolicy):
    """Reads the states of the simulation."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"choice": np.array(self.states_of(batch))})

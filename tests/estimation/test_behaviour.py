"""Policies that recorded the episodes, with other sub-steps than the agent."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from maze_pl.core.spec import Spec
from maze_pl.envs import cutting_2d
from maze_pl.estimation import estimate
from maze_pl.perception import AutomaticModelComposer
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

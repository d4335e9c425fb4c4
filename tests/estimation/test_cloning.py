"""Policies that are learned from the acts of several agents."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.estimation.cloning import clone_of
from maze_pl.estimation.probabilities import log_probs
from maze_pl.estimation.recorded_acts import read_acts
from maze_pl.estimation.results import OffPolicyEstimate, OffPolicyEvaluation
from maze_pl.records.record_files import SpacesTrajectoryRecord

N_STEPS = 40
SHARES = 0.9, 0.2
"""Share of the acts in which each agent chooses 1."""


def episodes_of(n_agents: int) -> list[SpacesTrajectoryRecord]:
    """Episodes of two agents that always observe the same."""
    observation_space = spaces.Dict(place=spaces.Box(-1, 1, (1,), np.float32))
    step = StepSpec(observation_space, spaces.Dict(choice=spaces.Discrete(2)), n_agents, 2)
    generator = np.random.default_rng(0)
    records = []
    for number in range(30):
        acts = []
        for n in range(2 * N_STEPS):
            agent = n % 2
            choice = int(generator.random() < SHARES[agent])
            acts.append((0, agent, n // 2, 0.0, False, {"place": np.ones(1)}, {"choice": choice}))
        rest = {"terminated": True, "truncated": False, "last_env_time": N_STEPS}
        rest |= {"last_actor": None, "last_observation": {}}
        records.append(SpacesTrajectoryRecord.of_acts(f"episode {number}", Spec({0: step}), acts, **rest))
    return records


@pytest.mark.parametrize("n_agents", [2, -1])
def test_agents_are_told_apart_unless_their_number_changes(n_agents: int) -> None:
    records = episodes_of(n_agents)
    clone = clone_of(read_acts(records, records[0].spec), 0)
    agents = np.array([0, 1])
    batch = PolicyBatch(0, {"place": np.ones((2, 1), np.float32)}, agents)
    found = clone.policy.probabilities(batch)["choice"][:, 1]
    choices = np.array([record.action[0]["choice"].reshape(-1, 2) for record in records])
    frequencies = choices.mean((0, 1)) if n_agents == 2 else [choices.mean()] * 2
    np.testing.assert_allclose(found, frequencies, atol=0.1)
    means = np.array([SHARES if n_agents == 2 else [np.mean(SHARES)] * 2])
    entropy = -(means * np.log(means) + (1 - means) * np.log(1 - means)).mean()
    assert clone.held_out_log_prob == pytest.approx(-entropy, abs=0.1)


def test_the_result_shows_the_log_probability_of_held_out_acts() -> None:
    recorded = OffPolicyEstimate("recorded_episodes", 1.0, None)
    found = OffPolicyEvaluation("run", "clone", 1.0, 30, 9, recorded, 7.0, [], clone_log_prob=-0.41)
    assert "cloned, mean log-probability of held-out acts -0.410; effective sample size: 7.0 of 30" in found.text()
    assert '"clone_log_prob": -0.41' in found.to_json()


def test_cloning_has_progress_in_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr("maze_pl.system.progress._SECONDS_IN_LOGS", 0.0)
    monkeypatch.setattr("maze_pl.estimation.cloning._PATIENT_UPDATES", 20)
    records = episodes_of(2)[:5]
    clone_of(read_acts(records, records[0].spec), 0, progress=True)
    assert "cloning: 10 epochs" in log.getvalue() and "log-probability of held-out acts -0." in log.getvalue()


def test_few_acts_are_learned_past_a_plateau() -> None:
    """Mostly the offer with the largest product is chosen, which networks do not see in their first epochs."""
    observation_space = spaces.Dict(offers=spaces.Box(-1, 1, (4, 2), np.float32))
    step = StepSpec(observation_space, spaces.Dict(choice=spaces.Discrete(4)), 1, 1)
    generator = np.random.default_rng(2)
    records = []
    for number in range(20):
        acts = []
        for n in range(20):
            offers = generator.uniform(-1, 1, (4, 2)).astype(np.float32)
            choice = int(offers.prod(1).argmax()) if generator.random() < 0.8 else int(generator.integers(4))
            acts.append((0, 0, n, 0.0, False, {"offers": offers}, {"choice": choice}))
        rest = {"terminated": True, "truncated": False, "last_env_time": 20}
        rest |= {"last_actor": None, "last_observation": {}}
        records.append(SpacesTrajectoryRecord.of_acts(f"episode {number}", Spec({0: step}), acts, **rest))
    assert clone_of(read_acts(records, records[0].spec), 2).held_out_log_prob > np.log(1 / 4) + 0.1


def continuous_episodes(unit: float) -> list[SpacesTrajectoryRecord]:
    """Two agents, of which one follows what it sees, often up to a bound, and one does nearly nothing."""
    seen = spaces.Dict(place=spaces.Box(-np.inf, np.inf, (1,), np.float32), people=spaces.Box(0, 10**6, (1,), np.int32))
    step = StepSpec(seen, spaces.Dict(power=spaces.Box(0, unit, (1,), np.float32)), 2, 2)
    generator = np.random.default_rng(0)
    records = []
    for number in range(40):
        acts = []
        for n in range(8):
            place = generator.normal(size=1).astype(np.float32)
            mean, deviation = (0.5 + 0.4 * place[0], 0.1) if n % 2 else (0.25, 0.001)
            power = np.clip(generator.normal(mean, deviation, 1), 0, 1).astype(np.float32)
            observation = {"place": unit * place, "people": [int(generator.integers(9))]}
            acts.append((0, n % 2, n // 2, 0.0, False, observation, {"power": unit * power}))
        rest = {"terminated": True, "truncated": False, "last_env_time": 4}
        rest |= {"last_actor": None, "last_observation": {}}
        records.append(SpacesTrajectoryRecord.of_acts(f"episode {number}", Spec({0: step}), acts, **rest))
    return records


def test_probabilities_of_a_clone_are_those_of_the_actions_in_their_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maze_pl.estimation.cloning._PATIENT_UPDATES", 10)
    found = []
    for unit in (1.0, 4096.0):
        records = continuous_episodes(unit)
        acts = read_acts(records, records[0].spec)
        power = acts.situations[0].action["power"][:, 0]
        is_inside = (power > 0.0) & (power < unit)  # the others have probabilities, which have no unit
        assert 0.05 < 1.0 - is_inside.mean() < 0.3
        found.append(log_probs(clone_of(acts, 0).policy, acts, "clone") + np.log(unit) * is_inside)
    np.testing.assert_allclose(found[1], found[0], atol=1e-3)
    agents = np.concatenate([record.agent_id for record in records])
    assert found[0][agents == 0].mean() > 4.5  # 5.49 with a deviation of 0.001
    assert found[0][agents == 1].mean() > -0.5

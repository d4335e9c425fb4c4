"""Policies that recorded the episodes: with other sub-steps than the agent, and rules with known probabilities."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import nn

from maze_pl.bundle.bundle_files import bundle_bytes
from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs import cutting_2d
from maze_pl.estimation import estimate
from maze_pl.estimation.estimate import _Loaded
from maze_pl.estimation.fitted_q import FittedQOptions
from maze_pl.estimation.probabilities import log_probs
from maze_pl.estimation.recorded_acts import RecordedActs, read_acts
from maze_pl.modules import PPO
from maze_pl.perception import AutomaticModelComposer
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.bundle_policy import BundlePolicy
from maze_pl.runs.rollout import rollout
from tests.bundle.written_bundles import STEP, graph, write_bundle


def flat() -> Any:
    return cutting_2d.masked_env_factory(20, (6, 6), cutting_2d.MixedPeriodicDemand(2, 6))


def structured() -> Any:
    return cutting_2d.masked_struct_env_factory(20, (6, 6), cutting_2d.MixedPeriodicDemand(2, 6))


def test_a_behaviour_with_other_acts_than_the_agent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = {}
    for name, make in (("flat", flat), ("structured", structured)):
        policy = AutomaticModelComposer().compose(Spec.of(make())).policy
        data = SimpleNamespace(make_env=make, rollout_options={"wrappers": []})
        agents[name] = _Loaded(policy, policy.spec, 0.9, data)  # as runs are loaded
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
        r"^rule has no probabilities of actions, since FirstChoice has no such method: define probabilities\(batch, te"
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


class Hesitant(Biased):
    """Takes every second action at random, the others by another rule."""

    def __init__(self, policy: Any, spec: Spec) -> None:
        self.policy = policy
        self.spec = spec

    def probabilities(self, batch: PolicyBatch, temperature: float = 1.0) -> dict[str, Any]:
        found = self.policy.probabilities(batch, temperature)["choice"]
        return {"choice": 0.5 * found + 0.5 / found.shape[1]}


def records_of(actions: list[int], n: int = 2) -> list[SpacesTrajectoryRecord]:
    """Episodes of these actions, with a reward after each."""
    step = StepSpec(Dict(place=Box(-1, 1, (1,), np.float32)), Dict(choice=Discrete(n)), 1, 1)
    records = []
    for number, action in enumerate(actions):
        rest: dict[str, Any] = {"terminated": True, "truncated": False, "last_env_time": 1}
        rest |= {"last_actor": None, "last_observation": {}}
        acts = [(0, 0, 0, 1.0, False, {"place": np.full(1, number / len(actions))}, {"choice": action})]
        records.append(SpacesTrajectoryRecord.of_acts(f"episode {number}", Spec({0: step}), acts, **rest))
    return records


def test_a_rule_that_holds_another_policy_is_taken_as_it_is() -> None:
    records = records_of([0, 1])
    spec = records[0].spec
    inner = Biased(spec.steps[0].action_space)
    outer = Hesitant(inner, spec)
    options: Any = {"estimators": ["per_decision"], "gamma": 1.0}
    expected = np.mean([0.6 / 0.7, 0.4 / 0.3])
    assert estimate(outer, records, inner, **options)["per_decision"].value == pytest.approx(expected)
    inner.spec = spec  # type: ignore[attr-defined]
    expected = np.mean([0.7 / 0.6, 0.3 / 0.4])
    assert estimate(inner, records, outer, **options)["per_decision"].value == pytest.approx(expected)


def test_an_algorithm_stands_for_its_policy() -> None:
    records = records_of([0, 1])
    spec = records[0].spec
    algorithm = PPO(actor_critic=AutomaticModelComposer().compose(spec), gamma=0.5)
    for one, other in ((algorithm, algorithm.policy), (algorithm.policy, algorithm)):
        found = estimate(one, records, other, estimators=["per_decision"])
        assert found["per_decision"].value == pytest.approx(1.0)
        assert found.gamma == (0.5 if one is algorithm else 1.0)


class Network(nn.Module):
    """A rule with weights, which acts otherwise while it is trained."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.layers = nn.Sequential(nn.Linear(1, 2), nn.Dropout(0.9))
        self.sizes: list[int] = []

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        raise NotImplementedError

    def probabilities(self, batch: PolicyBatch, temperature: float = 1.0) -> dict[str, Any]:
        self.sizes.append(len(batch.agent_id))
        return {"choice": torch.softmax(self.layers(torch.as_tensor(batch.observation["place"])), -1)}


def test_networks_of_users_are_asked_in_evaluation_mode_and_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maze_pl.estimation.probabilities.BATCH_SIZE", 2)
    records = records_of([0, 1, 1, 0, 1])
    rule = Network(records[0].spec)
    found = log_probs(rule, read_acts(records, rule.spec), "rule")
    assert rule.sizes == [2, 2, 1] and rule.training
    places = torch.arange(5.0)[:, None] / 5
    expected = torch.log_softmax(rule.layers[0](places), -1)[range(5), [0, 1, 1, 0, 1]]
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-5)
    values = estimate(rule, records, estimators=["fitted_q"], n_fits=2, fitted_q=FittedQOptions(n_updates=2))
    assert np.isfinite(values["fitted_q"].value)


def acts_of_bundle() -> RecordedActs:
    """An act that the bundle of the tests gives the probability 0.25, if it has no memory."""
    observed = Dict(place=Box(-9, 9, (2,), np.float32), allowed=Box(0, 1, (3,), np.int8), kind=Discrete(4, start=1))
    spec = Spec({0: StepSpec(observed, Dict(turn=Discrete(3)), 1, 1)})
    observation = {"place": np.log([0.5, 0.25]), "allowed": np.ones(3, np.int8), "kind": 2}
    rest: dict[str, Any] = {"terminated": True, "truncated": False, "last_env_time": 1}
    rest |= {"last_actor": None, "last_observation": {}}
    record = SpacesTrajectoryRecord.of_acts("e", spec, [(0, 0, 0, 1.0, False, observation, {"turn": 2})], **rest)
    return read_acts([record], spec)


def bundle_without_memory(path: Path, wrappers: list[str]) -> BundlePolicy:
    """The bundle of the tests, which adds the place to itself in place of its memory."""
    model = onnx.load_from_string(graph())
    model.graph.node[0].input[1] = "observation/place"
    for values in (model.graph.input, model.graph.output):
        (memory,) = [value for value in values if "memory" in value.name]
        values.remove(memory)
    roles = [{"name": name, "is_included": True} for name in wrappers]
    manifest = {"steps": [{**STEP, "state": {}}], "wrappers": roles}
    path.write_bytes(bundle_bytes(manifest, {"graphs/0.onnx": model.SerializeToString()}))
    return BundlePolicy(path)


def test_bundles_have_probabilities_unless_they_need_more_than_the_recorded_observation(tmp_path: Path) -> None:
    acts = acts_of_bundle()
    found = log_probs(bundle_without_memory(tmp_path / "a.bundle", []), acts, "bundle")
    np.testing.assert_allclose(np.exp(found), 0.25, rtol=1e-5)
    with_wrapper = bundle_without_memory(tmp_path / "b.bundle", ["some.Wrapper", "some.Other (1 of 2)"])
    with pytest.raises(ValueError, match=r"^bundle has no .*: the bundle contains Wrapper and Other \(1 of 2\), after"):
        log_probs(with_wrapper, acts, "bundle")
    message = r"^bundle has a memory, as it is recurrent or stacks observations: only policies without memory can"
    with pytest.raises(ValueError, match=message):
        log_probs(BundlePolicy(write_bundle(tmp_path / "c.bundle")), acts, "bundle")

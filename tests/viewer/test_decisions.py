"""Distributions and values of an agent: computed afterwards, they are those with which it acted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.agents import StateCritic, TorchActorCritic, TorchPolicy
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import (
    BernoulliProbabilityDistribution,
    BetaProbabilityDistribution,
    DeterministicProbabilityDistribution,
    DiagonalGaussianProbabilityDistribution,
    EpsilonGreedyProbabilityDistribution,
    MultiCategoricalProbabilityDistribution,
    SquashedGaussianProbabilityDistribution,
)
from maze_pl.distributions.probability_distribution import ProbabilityDistribution
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import PPO
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.rollout import rollout
from maze_pl.viewer.arrays import decoded
from maze_pl.viewer.decisions import decisions_of
from maze_pl.viewer.densities import densities_of
from maze_pl.viewer.heads import heads_of
from tests.modules.recurrent_plays import PLAYS, Play


class Watched:
    """Acts as an agent does, and remembers the probabilities and values in each act."""

    def __init__(self, networks: TorchActorCritic) -> None:
        self.networks = networks
        self.probabilities_of_acts: list[dict[str, np.ndarray]] = []
        self.values: list[float] = []

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        self.probabilities_of_acts.append(self.networks.policy.probabilities(batch, options["temperature"]))
        inputs = {
            name: torch.from_numpy(array) for name, array in {**batch.observation, **(batch.policy_state or {})}.items()
        }
        with torch.inference_mode():
            value = self.networks.critic.value(batch.step_key, inputs, torch.from_numpy(batch.agent_id))
        self.values.append(float(value))
        return self.networks.policy.act(batch, **options)


@pytest.mark.parametrize("name", PLAYS)
def test_distributions_and_values_are_those_of_the_acts(name: str) -> None:
    play: Play = PLAYS[name]
    watched = Watched(play.actor_critic)
    max_agents = {key: step.n_slots for key, step in play.spec.steps.items() if step.n_agents < 0}
    options: Any = {"max_agents": max_agents, "temperature": 2.0, "n_envs": 1, "max_steps": 30}
    record = rollout(play.factories[0], watched, seed=1, **options)[0].spaces
    found = decisions_of(play.actor_critic, record, temperature=2.0)
    rows = dict.fromkeys(record.spec.step_keys, 0)
    assert len(record) == len(watched.probabilities_of_acts) > 2
    for act, index in enumerate(record.key_index):
        key = record.spec.step_keys[index]
        for head, probabilities in watched.probabilities_of_acts[act].items():
            np.testing.assert_allclose(found.heads[key][head].probabilities[rows[key]], probabilities[0], rtol=1e-4)
        rows[key] += 1
    known = np.isfinite(found.value)
    assert known[0]
    assert isinstance(play.actor_critic.critic, StateCritic)
    if play.actor_critic.critic.kind == "step":
        assert known.all()
    np.testing.assert_allclose(found.value[known], np.array(watched.values)[known], rtol=1e-4)


def test_episode_of_other_spaces_is_refused() -> None:
    agent = PPO(spec=Spec.of(GymMazeEnv("Acrobot-v1")))
    record = rollout(lambda: GymMazeEnv("CartPole-v1"), max_steps=3)[0].spaces
    with pytest.raises(ConfigurationError, match="the agent was trained with other spaces: observation 'observation'"):
        decisions_of(agent, record)


def test_heuristic_has_no_distributions() -> None:
    record = rollout(lambda: GymMazeEnv("CartPole-v1"), max_steps=3)[0].spaces
    assert decisions_of(object(), record) is None


class Halves:
    """A policy of a user that knows its probabilities."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"action": np.ones(len(batch.agent_id), np.int64)})

    def probabilities(self, batch: PolicyBatch, temperature: float = 1.0) -> dict[str, Any]:
        return {"action": np.tile([0.25, 0.75], (len(batch.agent_id), 1))}


def test_custom_policy_with_probabilities_is_asked() -> None:
    record = rollout(lambda: GymMazeEnv("CartPole-v1"), Halves(), max_steps=3)[0].spaces
    head = decisions_of(Halves(), record).heads[0]["action"]
    np.testing.assert_array_equal(head.probabilities, [[0.25, 0.75]] * 3)
    np.testing.assert_array_equal(head.most_likely, [1, 1, 1])


class Counting:
    """A policy of a user whose probabilities depend on the number of acts of the actor before, its state."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        count = self._count(batch)
        return PolicyStep({"action": count % 2}, policy_state={"count": count + 1})

    def probabilities(self, batch: PolicyBatch, temperature: float = 1.0) -> dict[str, Any]:
        second = self._count(batch) / 100
        return {"action": np.stack([1 - second, second], axis=1)}

    def _count(self, batch: PolicyBatch) -> Any:
        return np.zeros(len(batch.agent_id), np.int64) if batch.policy_state is None else batch.policy_state["count"]


def test_custom_policy_with_a_state_is_asked_act_after_act() -> None:
    record = rollout(lambda: GymMazeEnv("CartPole-v1"), Counting(), max_steps=5)[0].spaces
    assert record.action[0]["action"].tolist() == [0, 1, 0, 1, 0]
    agents = np.array([0, 1, 1, 0, 1])  # as if two agents had acted in turns
    for agent_id, counts in ((record.agent_id, [0, 1, 2, 3, 4]), (agents, [0, 0, 1, 1, 2])):
        record.agent_id = agent_id
        head = decisions_of(Counting(), record).heads[0]["action"]
        np.testing.assert_array_equal(head.probabilities[:, 1], np.array(counts) / 100)


# --------------------------------------------------------------------------------------------------------- densities

BOX = spaces.Box(-2.0, 2.0, (2,))
CONTINUOUS = [
    DiagonalGaussianProbabilityDistribution,
    SquashedGaussianProbabilityDistribution,
    BetaProbabilityDistribution,
]


@pytest.mark.parametrize("kind", CONTINUOUS)
def test_density_has_the_mass_of_samples(kind: type[ProbabilityDistribution]) -> None:
    logits = torch.tensor([[0.3, -0.2, -1.0, -0.5], [0.5, 0.0, -0.8, -2.0]])
    distribution = kind(logits, BOX)
    x, density = densities_of(distribution, 2)
    assert x.shape == density.shape == (2, 2, 33)
    np.testing.assert_allclose(np.trapezoid(density, x, axis=-1), 1.0, rtol=1e-4)
    samples = torch.stack([distribution.sample(torch.Generator().manual_seed(i)) for i in range(2000)]).numpy()
    for act, component in np.ndindex(2, 2):
        middle = x[act, component, 16]
        below = np.trapezoid(density[act, component, :17], x[act, component, :17])
        assert below == pytest.approx((samples[:, act, component] < middle).mean(), abs=0.06)


def test_density_of_a_gaussian_is_its_formula() -> None:
    distribution = DiagonalGaussianProbabilityDistribution(torch.tensor([[0.5, -1.0]]), spaces.Box(-9, 9, (1,)))
    x, density = densities_of(distribution, 1)
    std = np.exp(-1.0)
    expected = np.exp(-0.5 * ((x - 0.5) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(density, expected, atol=0.03)


def test_deterministic_actions_have_no_density() -> None:
    assert densities_of(DeterministicProbabilityDistribution(torch.zeros(3, 2), BOX), 3) == (None, None)


def test_very_long_episodes_have_coarser_densities_and_then_none() -> None:
    def points(n: int) -> int | None:
        x, _ = densities_of(DiagonalGaussianProbabilityDistribution(torch.zeros(n, 2), spaces.Box(-1, 1, (1,))), n)
        return None if x is None else x.shape[-1]

    assert [points(10), points(100_000), points(1_000_000)] == [33, 20, None]


# ------------------------------------------------------------------------------------------------------------- heads


def head_of(
    kind: type[ProbabilityDistribution], space: spaces.Space[Any], change: Callable[[TorchPolicy], Any] = id
) -> Any:
    """A head of three acts whose logits are all zero but the first, and the record of these acts."""
    mask = spaces.MultiBinary(spaces.flatdim(space)) if not isinstance(space, spaces.Box) else None
    masks = {} if mask is None else {"head": "mask"}
    seen = spaces.Dict({"x": spaces.Box(-1, 1, (1,)), **({} if mask is None else {"mask": mask})})
    spec = Spec({0: StepSpec(seen, spaces.Dict({"head": space}), masks=masks)})
    size = kind.required_logits_shape(space)[0]

    class Net(torch.nn.Module):
        def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"head": torch.eye(1, size).expand(len(inputs["x"]), size) * 2.0}

    path = f"{kind.__module__}.{kind.__qualname__}"
    policy = TorchPolicy([Net()], spec, [{"action_head": "head", "distribution": path}])
    change(policy)
    acts = []
    for act in range(3):
        observation = {"x": np.zeros(1, np.float32)}
        if mask is not None:
            observation["mask"] = np.array([1, *[act != 1] * (mask.n - 1)], np.int8)
        acts.append((0, 0, act, 0.0, False, observation, {"head": space.sample()}))
    end: Any = {"terminated": True, "truncated": False, "last_env_time": 3, "last_actor": None, "last_observation": {}}
    record = SpacesTrajectoryRecord.of_acts("id", spec, acts, **end)
    return heads_of(record, 0, decisions_of(policy, record))["head"], record


def test_independent_choices_have_their_sizes() -> None:
    head, record = head_of(MultiCategoricalProbabilityDistribution, spaces.MultiDiscrete([3, 2]))
    assert (head["kind"], head["sizes"]) == ("multi_categorical", [3, 2])
    probabilities = decoded(head["probabilities"])
    np.testing.assert_allclose([probabilities[:, :3].sum(1), probabilities[:, 3:].sum(1)], 1.0, rtol=1e-5)
    np.testing.assert_array_equal(decoded(head["action"]), record.action[0]["head"])
    assert decoded(head["most_likely"])[:, 0].tolist() == [0, 0, 0]


def test_bits_have_two_options_of_which_a_mask_leaves_one() -> None:
    head, record = head_of(BernoulliProbabilityDistribution, spaces.MultiBinary(2))
    assert (head["kind"], head["sizes"]) == ("bernoulli", [2, 2])
    assert decoded(head["allowed"]).tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]]
    probabilities = decoded(head["probabilities"])
    np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp(-2.0)), rtol=1e-5)
    assert probabilities[1, 2:].tolist() == [1.0, 0.0]
    np.testing.assert_array_equal(decoded(head["action"]), record.action[0]["head"])


def test_options_that_do_not_begin_at_zero_have_labels() -> None:
    kind = EpsilonGreedyProbabilityDistribution
    head, record = head_of(kind, spaces.Discrete(3, start=5), lambda policy: policy.set_exploration(0.3))
    assert head["labels"] == ["5", "6", "7"]
    np.testing.assert_array_equal(decoded(head["action"])[:, 0], record.action[0]["head"] - 5)
    assert decoded(head["most_likely"])[:, 0].tolist() == [0, 0, 0]
    np.testing.assert_allclose(decoded(head["probabilities"])[0], [0.8, 0.1, 0.1], rtol=1e-5)


@pytest.mark.parametrize(
    ("space", "labels"),
    [
        (spaces.MultiDiscrete([3, 2], start=[5, -1]), ["5", "6", "7", "-1", "0"]),
        (spaces.MultiDiscrete([2, 2], start=[0, 4]), ["0", "1", "4", "5"]),
        (spaces.MultiDiscrete([[2, 1], [1, 2]], start=[[1, 2], [3, 4]]), ["1", "2", "2", "3", "4", "5"]),
        (spaces.MultiDiscrete([3, 2]), None),
    ],
)
def test_each_of_several_choices_has_labels_from_its_start(
    space: spaces.MultiDiscrete, labels: list[str] | None
) -> None:
    spec = Spec({0: StepSpec(spaces.Dict({"x": spaces.Box(-1, 1, (1,))}), spaces.Dict({"head": space}))})
    space.seed(1)
    actions = [space.sample() for _ in range(5)]
    acts = [(0, 0, n, 0.0, False, {"x": np.zeros(1, np.float32)}, {"head": one}) for n, one in enumerate(actions)]
    end: Any = {"terminated": True, "truncated": False, "last_env_time": 5, "last_actor": None, "last_observation": {}}
    head = heads_of(SpacesTrajectoryRecord.of_acts("id", spec, acts, **end), 0, None)["head"]
    assert head["labels"] == labels
    names = labels or ["0", "1", "2", "0", "1"]
    ends = np.cumsum(head["sizes"])
    for row, action in zip(decoded(head["action"]), actions, strict=True):
        shown = [names[end - size + option] for option, end, size in zip(row, ends, head["sizes"], strict=True)]
        assert shown == [str(one) for one in action.ravel()]


def test_continuous_actions_have_bounds_and_densities() -> None:
    head, record = head_of(SquashedGaussianProbabilityDistribution, BOX)
    assert (head["kind"], head["low"], head["high"]) == ("continuous", [-2.0, -2.0], [2.0, 2.0])
    assert head["probabilities"] is None
    assert decoded(head["density"]).shape == (3, 2, 33)
    np.testing.assert_array_equal(decoded(head["action"]), record.action[0]["head"])

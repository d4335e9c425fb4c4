"""Actions that searches try for policies without probabilities: what a rule chooses comes first."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.runs.rollout import rollout
from maze_pl.search.policy_calls import PolicyCalls
from maze_pl.search.search_error import SearchError
from maze_pl.search.simulation import Simulation
from tests.search.policies import LastAllowed
from tests.search.problems import table_env


class Still(gymnasium.Env[Any, Any]):
    """Does nothing; its mask allows what it is told."""

    def __init__(self, action_space: spaces.Space[Any], allowed: list[int]) -> None:
        self.action_space = action_space
        self.observation_space = spaces.Dict(allowed=spaces.MultiBinary(len(allowed)))
        self.allowed = {"allowed": np.array(allowed, np.int8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.allowed, {}

    def step(self, action: Any) -> Any:
        return self.allowed, 0.0, False, False, {}


class Fixed:
    """A rule that always takes the same action."""

    def __init__(self, action: Any) -> None:
        self.action = np.array(action)

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"action": np.stack([self.action] * len(batch.agent_id))})


def candidates_of(
    action_space: spaces.Space[Any], allowed: list[int], rule: Any, min_ratio: float = 0.0
) -> list[tuple[Any, float]]:
    """Actions and probabilities in an environment with a mask."""
    env: Any = GymMazeEnv(Still(action_space, allowed))
    spec = Spec.of(env, masks={"action": "allowed"})
    policy = rule or RandomPolicy({0: spec.steps[0].action_space}, {0: {"action": "allowed"}})
    env.reset(seed=0)
    simulation = Simulation(env, spec)
    simulation.step({"action": action_space.sample()})
    (found,) = PolicyCalls(policy, spec, 1.0, 64, min_ratio).candidates([simulation])
    return [(action["action"], probability) for action, probability in found]


@pytest.mark.parametrize(
    ("space", "allowed", "action", "n_actions"),
    [
        (spaces.Discrete(4, start=5), [1, 1, 1, 0], 7, 3),
        (spaces.MultiDiscrete([2, 3]), [1, 1, 1, 1, 1], [1, 2], 6),
        (spaces.MultiBinary(3), [1, 1, 0], [0, 1, 0], 4),
    ],
)
def test_the_choice_of_a_rule_comes_first(space: Any, allowed: list[int], action: Any, n_actions: int) -> None:
    (first, probability), *others = candidates_of(space, allowed, Fixed(action))
    assert np.array_equal(first, action) and probability > 0.8
    assert len(others) == n_actions - 1, "the others are tried, but nothing that a mask forbids"
    assert probability + sum(rest for _, rest in others) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(4, start=5), 7.0),
        (spaces.Discrete(4, dtype=np.uint64), 3),
        (spaces.MultiDiscrete([2, 2]), [1.0, 0.0]),
        (spaces.MultiBinary(4), [0.0, 1.0, 1.0, 0.0]),
    ],
)
def test_a_rule_may_return_numbers_of_another_type_than_the_space(space: Any, action: Any) -> None:
    (first, probability), *_ = candidates_of(space, [1, 1, 1, 1], Fixed(action))
    assert np.array_equal(first, action) and probability > 0.8


def test_a_rule_has_no_probabilities_to_leave_actions_out_by() -> None:
    with pytest.raises(SearchError, match=r"Fixed is a rule, .* leave out min_ratio=0\.2"):
        candidates_of(spaces.Discrete(2), [1, 1], Fixed(1), min_ratio=0.2)
    assert len(candidates_of(spaces.Discrete(2), [1, 1], None, min_ratio=0.2)) == 2, "random actions are equally likely"


def test_a_choice_that_the_mask_forbids_is_not_tried() -> None:
    found = candidates_of(spaces.Discrete(3), [1, 1, 0], Fixed(2))
    assert found == [(0, pytest.approx(0.5)), (1, pytest.approx(0.5))]


def test_random_actions_are_equally_likely_also_where_a_mask_allows_nothing() -> None:
    for allowed, n_actions in (([1, 0, 1], 2), ([0, 0, 0], 3)):
        found = candidates_of(spaces.Discrete(3), allowed, None)
        assert [probability for _, probability in found] == pytest.approx([1 / n_actions] * n_actions)


@pytest.mark.parametrize("search", ["beam:1", "puct:4:max_actions=1", "lookahead:policy:max_actions=1"])
def test_a_search_that_tries_one_action_plays_as_the_rule(search: str) -> None:
    for seed in range(4):
        (plain,) = rollout(partial(table_env, seed), LastAllowed(), record=(), n_envs=1)
        (found,) = rollout(partial(table_env, seed), LastAllowed(), search=search, record=(), n_envs=1)
        assert found.summary.reward == plain.summary.reward


def test_a_beam_is_never_worse_than_its_rule_where_nothing_is_random() -> None:
    gains = []
    for seed in range(8):
        (plain,) = rollout(partial(table_env, seed), LastAllowed(), record=(), n_envs=1)
        (found,) = rollout(partial(table_env, seed), LastAllowed(), search="beam:3", record=(), n_envs=1)
        gains.append(found.summary.reward - plain.summary.reward)
    assert min(gains) >= 0.0 and max(gains) > 0.0

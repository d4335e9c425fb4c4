"""Times of flat array environments whose acts do not each complete one environment step."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.collect.collector import Collector
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import ArrayEnv, ArrayStep, ArrayVectorEnv, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv, RandomStreams
from maze_pl.envs.checker import compare_envs
from maze_pl.envs.checker.arrays import make_comparable
from maze_pl.envs.contract import EnvContractError

N = 3


class Strides(ArrayEnv):
    """An act completes as many environment steps as it says, and earns one for each; 12 end an episode.

    Args:
        methods: Those that return env_time.
    """

    observation_spaces_dict = {0: spaces.Dict({"time": spaces.Box(0, 20, (1,), np.float32)})}  # noqa: RUF012
    action_spaces_dict = {0: spaces.Dict({"stride": spaces.Discrete(4, start=1)})}  # noqa: RUF012

    def __init__(self, *methods: str) -> None:
        super().__init__()
        self.methods = methods

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.time = np.zeros(n_envs, np.int64)

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> ArrayStep:
        self.time[which] = 0
        return self._result("reset")

    def step(self, actions: Any, which: Any) -> ArrayStep:
        strides = actions[0]["stride"]
        self.time[which] += strides[which]
        result = self._result("step")
        result.reward = strides.astype(np.float64)
        result.truncated = self.time >= 12
        return result

    def _result(self, method: str) -> ArrayStep:
        observation = {0: {"time": self.time[:, np.newaxis].astype(np.float32)}}
        return ArrayStep(observation, env_time=self.time if method in self.methods else None)


class Leaps(ArrayEnv):
    """Three agents act in turn; the last act of round i takes i environment steps, but at most 3.

    Rewards are fractions whose sums depend on their order.
    """

    agent_counts_dict = {0: 3}  # noqa: RUF012
    observation_spaces_dict = {0: spaces.Dict({"drawn": spaces.Box(0, 1, (1,), np.float32)})}  # noqa: RUF012
    action_spaces_dict = {0: spaces.Dict({"more": spaces.Discrete(2)})}  # noqa: RUF012

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.random = RandomStreams(np.zeros(n_envs, np.int64))
        self.n_acts = np.zeros(n_envs, np.int64)
        self.time = np.zeros(n_envs, np.int64)
        self.drawn = np.zeros((n_envs, 1))

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> ArrayStep:
        self.random.seed(seeds, which)
        self.n_acts[which] = self.time[which] = 0
        self.drawn[which] = 0.0
        return self._result()

    def step(self, actions: Any, which: Any) -> ArrayStep:
        envs = self.numbers_of(which)
        self.drawn[envs, 0] = self.random.uniform(0, 1, which=envs)
        reward = np.zeros(self.n_envs)
        reward[envs] = self.drawn[envs, 0] + actions[0]["more"][envs]
        self.n_acts[envs] += 1
        n_rounds = self.n_acts[envs] // 3
        self.time[envs] += np.where(self.n_acts[envs] % 3 == 0, np.minimum(n_rounds, 3), 0)
        result = self._result()
        result.reward, result.truncated = reward, self.time >= 12
        return result

    def _result(self) -> ArrayStep:
        return ArrayStep({0: {"drawn": self.drawn}}, next_agent=self.n_acts % 3, env_time=self.time.copy())


def test_both_forms_add_rewards_in_the_same_order_where_an_act_takes_several_steps() -> None:
    make = partial(make_comparable, Leaps, [], None, N, 0)
    comparison = compare_envs(make, partial(make, as_singles=True), n_steps=600)
    assert comparison.difference is None, str(comparison)
    assert comparison.n_episodes > 30


def test_the_reward_of_an_act_that_takes_several_steps_counts_in_the_last_of_them() -> None:
    """Against sums of Python's numbers, in the order of environment steps."""
    vector = ArrayVectorEnv(Leaps, N)
    vector.reset()
    for _ in range(20):
        totals = np.zeros(N)
        for n_round in range(1, 6):
            parts = []
            for _ in range(3):
                vector.step()
                parts.append(vector.staging.reward.copy())
            if n_round == 1:  # takes one step
                totals += parts[0] + parts[1] + parts[2]
            else:
                totals = totals + (parts[0] + parts[1]) + parts[2]
        assert vector.staging.truncated.all()
        assert [summary.reward for summary in vector.drain_summaries()] == totals.tolist()


def _collected(make_env: Callable[[], ArrayEnv], n_rollouts: int = 3) -> tuple[Any, Any]:
    vector = ArrayVectorEnv(make_env, N, seed=1)
    collector = Collector(vector, 10, torch.Generator().manual_seed(2))
    policy = RandomPolicy({0: vector.spec.steps[0].action_space}, {0: {}})
    rollouts = [collector.collect(policy) for _ in range(n_rollouts)]
    rows = [torch.stack([part.rows.env_steps, part.rows.reward.long(), part.rows.filled.long()]) for part in rollouts]
    return rows, [(part.summaries.to_dict()) for part in rollouts]


def test_a_reset_without_a_time_means_zero() -> None:
    vector = ArrayVectorEnv(partial(Strides, "step"), N)
    vector.reset()
    strides = np.array([3, 1, 2])
    for count in range(1, 5):
        vector.staging.action[0]["stride"][...] = strides
        vector.step()
        assert vector.staging.env_steps.tolist() == [3, 1, 2]
        assert not vector.always_advances
        assert vector.staging.truncated.tolist() == [count == 4, False, False]
    (summary,) = vector.drain_summaries()
    assert (summary.env_steps, summary.reward) == (12, 12.0)
    vector.staging.action[0]["stride"][...] = strides
    vector.step()
    assert vector.staging.env_steps.tolist() == [3, 1, 2]


def test_a_reset_with_a_time_collects_the_same_as_one_without() -> None:
    rows, summaries = _collected(partial(Strides, "step"))
    expected_rows, expected_summaries = _collected(partial(Strides, "reset", "step"))
    for came, expected in zip(rows, expected_rows, strict=True):
        assert torch.equal(came, expected)
    assert str(summaries) == str(expected_summaries)
    assert any((part[0][part[2] > 0] != 1).any() for part in rows)


def test_acts_advance_by_one_from_the_first_step_on_if_steps_have_no_time() -> None:
    vector = ArrayVectorEnv(CartPoleArrayEnv, N)
    vector.reset()
    assert not vector.always_advances
    vector.step()
    assert vector.always_advances
    assert vector.staging.env_steps.tolist() == [1, 1, 1]
    vector.reset()
    assert vector.always_advances


@pytest.mark.parametrize("view", [False, True])
def test_steps_without_a_time_after_a_reset_with_one_are_refused(view: bool) -> None:
    message = "step of Strides returned no env_time, but reset did; return the number of complete environment steps"
    if view:
        env = ArrayMazeEnv(Strides("reset"))
        env.reset(seed=0)
        with pytest.raises(EnvContractError, match=message):
            env.step({"stride": 1})
        return
    vector = ArrayVectorEnv(partial(Strides, "reset"), N)
    vector.reset()
    with pytest.raises(EnvContractError, match=message):
        vector.step()


def test_a_time_in_some_steps_only_is_refused() -> None:
    vector = ArrayVectorEnv(Strides, N)
    vector.reset()
    vector.step()
    assert isinstance(vector.env, Strides)
    vector.env.methods = ("step",)
    with pytest.raises(EnvContractError, match="returned no env_time, but another step did"):
        vector.step()
    vector.env.methods = ("reset",)
    with pytest.raises(EnvContractError, match="returned no env_time, but reset did"):
        vector.reset()


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize(
    ("strides", "message"),
    [
        ((1, 0), "env_time of environment . of Strides did not advance in an act; with a single actor, each act"),
        ((1, -1), "env_time of environment . of Strides went back within an episode"),
    ],
)
def test_a_time_that_does_not_advance_is_refused_in_both_forms(
    strides: tuple[int, int], message: str, view: bool
) -> None:
    if view:
        env = ArrayMazeEnv(Strides("step"))
        env.reset(seed=0)
        env.step({"stride": strides[0]})
        with pytest.raises(EnvContractError, match=message):
            env.step({"stride": strides[1]})
        return
    vector = ArrayVectorEnv(partial(Strides, "step"), N)
    vector.reset()
    vector._bounds[0].clear()  # the stride is outside of the action space
    for stride in strides:
        vector.staging.action[0]["stride"][...] = [1, stride, 1]
        if stride == strides[0]:
            vector.step()
    with pytest.raises(EnvContractError, match=message.replace("environment .", "environment 1")):
        vector.step()


@pytest.mark.parametrize("view", [False, True])
def test_a_time_that_does_not_start_at_zero_is_refused_in_both_forms(view: bool) -> None:
    class Late(Strides):
        def reset(self, which: np.ndarray, seeds: np.ndarray) -> ArrayStep:
            self.time[which] = 7
            return self._result("reset")

    message = "reset of Late returned env_time 7 for environment 0; expected 0: it counts the environment steps"
    with pytest.raises(EnvContractError, match=message):
        if view:
            ArrayMazeEnv(Late("reset", "step")).reset(seed=0)
        else:
            ArrayVectorEnv(partial(Late, "reset", "step"), N).reset()

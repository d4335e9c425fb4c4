"""Rewards that wrappers of array environments change: statistics, single actors, and mistakes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.collect.collector import Collector
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import ArrayEnv, ArrayStep, ArrayVectorEnv, CartPoleArrayEnv, RewardWrapper, Wrapper
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays import ArrayWrapper, RewardArrayWrapper
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.checker import check_env
from maze_pl.envs.checker.same_as import compare_envs
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.wrappers import MazeEnvMonitoringWrapper, RewardScalingWrapper, TimeLimitWrapper

N = 3


class BonusArrayWrapper(ArrayWrapper):
    """Replaces the reward and an observation, as pages describe it."""

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        return self._moved(super().reset(which, seeds))

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = self._moved(super().step(actions, which))
        result.reward = result.reward + 10.0
        return result

    def _moved(self, result: ArrayStep) -> ArrayStep:
        result.observation = {0: {"observation": result.observation[0]["observation"] + np.float32(0.25)}}
        return result


class BonusWrapper(Wrapper):
    """The same for single episodes."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = self.env.reset(seed=seed, options=options)
        return {"observation": observation["observation"] + np.float32(0.25)}, info

    def step_in_parts(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = yield action
        moved = {"observation": observation["observation"] + np.float32(0.25)}
        return moved, reward + 10.0, terminated, truncated, info

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        return BonusArrayWrapper(env)


MONITOR = partial(MazeEnvMonitoringWrapper, observation_logging=True, action_logging=True, reward_logging=True)


@pytest.mark.parametrize(
    "wrappers",
    [
        [BonusWrapper],
        [BonusWrapper, BonusWrapper],
        [partial(RewardScalingWrapper, scale=0.5), BonusWrapper, partial(TimeLimitWrapper, max_episode_steps=9)],
        [BonusWrapper, MONITOR],
    ],
)
def test_statistics_of_both_forms_are_those_of_the_environment(wrappers: list[Any]) -> None:
    arrays = partial(ArrayVectorEnv, partial(make_wrapped_arrays, CartPoleArrayEnv, wrappers), N, seed=1)
    singles = partial(SequentialVectorEnv, [partial(make_wrapped, CartPoleArrayEnv, wrappers)] * N, seed=1)
    comparison = compare_envs(arrays, singles, n_steps=150)
    assert comparison.difference is None
    assert comparison.n_episodes > 0
    vector = arrays()
    vector.reset()
    for _ in range(40):
        vector.step()
    for summary in vector.drain_summaries():
        assert summary.reward == summary.env_steps  # 1 in each step


def test_single_episodes_of_a_wrapped_array_environment_have_the_same_statistics() -> None:
    make = partial(make_wrapped_arrays, CartPoleArrayEnv, [BonusWrapper, partial(RewardScalingWrapper, scale=0.5)])
    singles = partial(SequentialVectorEnv, [partial(make_wrapped, make)] * N, seed=1)
    assert compare_envs(partial(ArrayVectorEnv, make, N, seed=1), singles, n_steps=150).difference is None
    env = make_wrapped(make)
    env.reset(seed=1)
    reward = env.step({"action": 1})[1]
    other = copy.deepcopy(env)
    while not any(other.step({"action": 1})[2:4]):
        pass
    (summary,) = other.drain_episode_summaries()
    assert (reward, summary.reward) == (5.5, summary.env_steps)


class PairArrayEnv(ArrayEnv):
    """Two agents act in each environment step, and each has a reward for itself.

    Args:
        attributed: Whether rewards are attributed to the agents.
    """

    def __init__(self, attributed: bool = True) -> None:
        super().__init__()
        self.attributed = attributed

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"turn": spaces.Box(0.0, 9.0, (1,), np.float32)})}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"amount": spaces.Discrete(3)})}

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        return {0: 2}

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.turn = np.zeros(n_envs, np.int64)
        self.time = np.zeros(n_envs, np.int64)
        self.rewards = np.zeros((n_envs, 2))

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        self.turn[which] = self.time[which] = 0
        return self.result(np.zeros(self.n_envs))

    def step(self, actions: Any, which: Any) -> ArrayStep:
        amount = actions[0]["amount"].astype(np.float64)
        acting = self.numbers_of(which)
        self.rewards[acting, self.turn[acting]] = amount[acting]
        self.time[acting] += self.turn[acting]
        self.turn[acting] = 1 - self.turn[acting]
        return self.result(amount)

    def result(self, reward: Any) -> ArrayStep:
        return ArrayStep(
            {0: {"turn": self.turn[:, np.newaxis].astype(np.float32)}},
            reward,
            terminated=self.time >= 5,
            env_time=self.time.copy(),
            next_agent=self.turn.copy(),
            actor_rewards=self.rewards if self.attributed else None,
        )


class WrongPairs(PairArrayEnv):
    """Returns too few rewards, or does not advance environment time, or attributes rewards only now and then."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def result(self, reward: Any) -> ArrayStep:
        result = super().result(reward)
        if self.fault == "few":
            result.actor_rewards = self.rewards[:, :1]
        if self.fault == "no time":
            result.env_time = np.where(self.time >= 5, 1, 0)
        if self.fault == "sometimes" and self.time.max() > 2:
            result.actor_rewards = None
        return result


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("few", r"environment 0 has rewards of shape \(1,\) for 2 acts .*of an ArrayStep\); return one reward for"),
        ("no time", r"environment 0 has rewards of shape \(2,\) for 10 acts .*, and advance environment time after"),
        ("sometimes", r"environment 0 has no rewards of acts .* in a step, after some before; attribute"),
    ],
)
def test_wrong_rewards_of_actors_are_refused_in_words_of_array_environments(fault: str, message: str) -> None:
    vector = ArrayVectorEnv(partial(WrongPairs, fault), N)
    spaces_of_acts = {0: vector.spec.steps[0].action_space}
    with pytest.raises(ValueError, match=message):
        Collector(vector, 12, torch.Generator()).collect(RandomPolicy(spaces_of_acts, {0: {}}))


class LateArrayWrapper(ArrayWrapper):
    """Adds to rewards in the fourth environment step."""

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        result.reward = result.reward + (result.env_time == 3)
        return result


class DoubledArrayWrapper(RewardArrayWrapper):
    def rewards(self, rewards: Any) -> Any:
        return 2.0 * rewards


class ActorsArrayWrapper(LateArrayWrapper):
    """Adds to the rewards of the actors, too."""

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        result.actor_rewards = result.actor_rewards + 1.0
        return result


def play(env: Any, n_steps: int = 20) -> ArrayVectorEnv:
    vector = ArrayVectorEnv(lambda: env, N)
    vector.reset()
    for step in range(n_steps):
        vector.step(None if step % 3 else [1])
    vector.state_dict()
    return vector


@pytest.mark.parametrize("outer", [[], [DoubledArrayWrapper], [LateArrayWrapper, DoubledArrayWrapper]])
@pytest.mark.parametrize("inner", [[], [DoubledArrayWrapper], [ArrayWrapper, DoubledArrayWrapper]])
def test_a_wrapper_that_changes_rewards_of_the_team_only_is_named_once(inner: list[Any], outer: list[Any]) -> None:
    env: Any = PairArrayEnv()
    for wrapper in [*inner, LateArrayWrapper, *outer]:
        env = wrapper(env)
    fault = (
        "^LateArrayWrapper changes the reward, but not .* derive it from RewardArrayWrapper, or replace actor_rewards"
    )
    with pytest.warns(UserWarning, match=fault) as caught:
        play(env)
    assert len(caught) == 1


def test_the_doctor_finds_the_wrapper() -> None:
    report = check_env(lambda: DoubledArrayWrapper(LateArrayWrapper(PairArrayEnv())), n_steps=60)
    found = [line.explanation for line in report.lines if line.verdict == "error"]
    assert len(found) == 1
    assert found[0].startswith("LateArrayWrapper changes the reward")


@pytest.mark.parametrize(
    "make",
    [
        PairArrayEnv,
        lambda: ArrayWrapper(PairArrayEnv()),
        lambda: DoubledArrayWrapper(DoubledArrayWrapper(PairArrayEnv())),
        lambda: ActorsArrayWrapper(PairArrayEnv()),
        lambda: LateArrayWrapper(PairArrayEnv(attributed=False)),
    ],
)
def test_wrappers_that_change_both_rewards_or_none_are_not_named(make: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(make())


class Forms(RewardWrapper):
    """A wrapper whose array form is wrong.

    Args:
        env: The environment.
        form: Makes the array form.
    """

    def __init__(self, env: Any, form: Any) -> None:
        super().__init__(env)
        self.form = form

    def reward(self, reward: float) -> float:
        return reward

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        return self.form(env)  # type: ignore[no-any-return]


class MeanArrayWrapper(RewardArrayWrapper):
    def rewards(self, rewards: Any) -> Any:
        return rewards.mean()


class Unallocated(ArrayWrapper):
    def allocate(self, n_envs: int) -> None:
        self.count = np.zeros(n_envs)


@pytest.mark.parametrize("form", [lambda env: None, lambda env: 5, lambda env: MeanArrayWrapper])
def test_an_array_form_that_is_no_array_environment_is_refused(form: Any) -> None:
    with pytest.raises(TypeError, match=r"^array_form of Forms returned .*; return the ArrayWrapper around"):
        make_wrapped_arrays(CartPoleArrayEnv, [partial(Forms, form=form)])


def test_changed_rewards_of_another_shape_are_blamed_on_their_wrapper() -> None:
    message = r"^rewards of MeanArrayWrapper returned .* for rewards of shape \(3,\); return one number for each"
    with pytest.raises(EnvContractError, match=message):
        play(MeanArrayWrapper(CartPoleArrayEnv()), 1)


@pytest.mark.parametrize("wrap", [Unallocated, lambda env: ArrayWrapper(Unallocated(env))])
def test_allocations_must_call_those_of_their_base(wrap: Any) -> None:
    with pytest.raises(TypeError, match=r"^allocate of Unallocated does not set n_envs; call super\(\).allocate"):
        play(wrap(CartPoleArrayEnv()), 1)

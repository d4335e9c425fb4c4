"""Wrappers that change rewards, but not those of single actors, are found."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.envs import ActionWrapper, RewardWrapper, SequentialVectorEnv, Wrapper, check_env, wrappers_of
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.reward_watch import reward_watch
from maze_pl.envs.wrappers import RewardScalingWrapper, TimeLimitWrapper
from tests.envs.relay import make_relay_env


class Bonus(Wrapper):
    """Adds to the reward of the team only."""

    def step_in_parts(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = yield action
        return observation, reward + 1.0, terminated, truncated, info


class LateBonus(Wrapper):
    """Adds to the reward in one environment step only."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward + (self.get_env_time() == 5), terminated, truncated, info


class SteppedReward(RewardWrapper):
    """Adds to rewards in its steps only."""

    def reward(self, reward: float) -> float:
        return reward

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward + 1.0, terminated, truncated, info


class AnyReward(RewardWrapper):
    def reward(self, reward: float) -> float:
        return 2.0 * reward + 1.0


class AttributedBonus(Bonus):
    """Adds to the rewards of the actors, too."""

    def get_actor_rewards(self) -> Any:
        rewards = self.env.get_actor_rewards()
        return None if rewards is None else rewards + 1.0


class Unchanged(Wrapper):
    def step_in_parts(self, action: Any) -> Any:
        return (yield action)


class OtherAction(ActionWrapper):
    def action(self, action: Any) -> Any:
        return action


class Divided(Wrapper):
    """Divides the team's reward among the actors, whatever it consists of."""

    def step_in_parts(self, action: Any) -> Any:
        result = yield action
        self.last = result[1]
        return result

    def get_actor_rewards(self) -> Any:
        return np.full(3, self.last / 3)


SCALE = partial(RewardScalingWrapper, scale=0.5)
LIMIT = partial(TimeLimitWrapper, max_episode_steps=4)
FORGETFUL: dict[str, list[Callable[[Any], Any]]] = {
    "Bonus": [Bonus],
    "LateBonus": [Unchanged, LateBonus],
    "SteppedReward": [SCALE, SteppedReward, Bonus],
}
CAREFUL: dict[str, list[Callable[[Any], Any]]] = {
    "rewards": [AnyReward, SCALE],
    "attributed": [AttributedBonus, LIMIT],
    "unchanged": [Unchanged, OtherAction],
    "divided": [Bonus, Divided],
}


def make(wrappers: list[Callable[[Any], Any]], attributed: bool = True) -> Any:
    return make_wrapped(partial(make_relay_env, attributed=attributed), wrappers)


def rewards_of(wrappers: list[Callable[[Any], Any]], n_acts: int = 60) -> list[float]:
    """Rewards of the acts of a vector of two environments with wrappers."""
    vector = SequentialVectorEnv([partial(make, wrappers)] * 2)
    vector.reset()
    rewards: list[float] = []
    for _ in range(n_acts):
        vector.step()
        rewards += vector.staging.reward.tolist()
    return rewards


@pytest.mark.parametrize("name", FORGETFUL)
def test_training_warns_of_the_innermost_wrapper(name: str) -> None:
    fault = f"^{name} changes the reward, but not .* derive it from RewardWrapper, or override get_actor_rewards"
    with pytest.warns(UserWarning, match=fault) as caught:
        rewards_of(FORGETFUL[name])
    assert len(caught) == 1


@pytest.mark.parametrize("name", FORGETFUL)
def test_the_doctor_finds_the_innermost_wrapper(name: str) -> None:
    report = check_env(lambda: make(FORGETFUL[name]).env, n_steps=60)
    found = [line.explanation for line in report.lines if line.name == "rewards" and line.verdict == "error"]
    assert len(found) == 1
    assert found[0].startswith(f"{name} changes the reward")


@pytest.mark.parametrize("name", CAREFUL)
def test_nothing_is_found_if_actors_learn_of_the_change(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rewards_of(CAREFUL[name])
    assert "changes the reward" not in str(check_env(lambda: make(CAREFUL[name]).env, n_steps=60))


def test_nothing_is_found_for_rewards_of_the_team() -> None:
    env = make([Bonus], attributed=False)
    assert reward_watch(make([AnyReward])) is None
    vector = SequentialVectorEnv([lambda: env])
    vector.reset()
    for _ in range(30):
        vector.step()
    assert check_env(make([Bonus], attributed=False).env, n_steps=60).ok


def test_watched_steps_are_equal_and_leave_the_wrappers_as_they_are() -> None:
    watched, plain = (make([Bonus, SCALE, Unchanged, LIMIT, OtherAction]) for _ in range(2))
    layers = list(wrappers_of(watched))
    watch = reward_watch(watched)
    assert watch is not None
    for env in (watched, plain):
        env.reset(seed=3)
    for amount in range(9):
        one, other = (step({"amount": amount % 4}) for step in (watch.step, plain.step))
        np.testing.assert_equal(one, other)
        np.testing.assert_equal(watched.get_actor_rewards(), plain.get_actor_rewards())
        assert list(wrappers_of(watched)) == layers
    with pytest.raises(TypeError, match="not subscriptable"):
        watch.step(None)  # type: ignore[arg-type]
    assert list(wrappers_of(watched)) == layers
    copy.deepcopy(watched).step({"amount": 1})


def test_rewards_are_watched_for_a_limited_number_of_acts() -> None:
    watch = reward_watch(make([LateBonus]), n_acts=2)
    assert watch is not None
    watch._env.reset(seed=1)
    watch.step({"amount": 1})
    assert not watch.is_done
    watch.step({"amount": 1})
    assert watch.is_done

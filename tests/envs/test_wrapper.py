from __future__ import annotations

import copy
import pickle
from abc import ABC, abstractmethod
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import (
    ActionWrapper,
    GymMazeEnv,
    MazeEnv,
    ObservationWrapper,
    RewardWrapper,
    StructuredEnv,
    Wrapper,
    wrappers_of,
)
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import LogStatsWrapper, RewardClippingWrapper, RewardScalingWrapper, TimeLimitWrapper
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import make_heap_env


class OnlyTime(ObservationWrapper):
    @property
    def observation_spaces_dict(self) -> Any:
        return {0: spaces.Dict({"time": spaces.Box(-np.inf, np.inf, (1,), np.float32)})}

    def observation(self, observation: Any) -> Any:
        return {"time": observation["observation"][:1]}


class Negated(ActionWrapper):
    def action(self, action: Any) -> Any:
        return {"action": -action["action"]}

    def reverse_action(self, action: Any) -> Any:
        return {"action": -action["action"]}


class Shifted(RewardWrapper):
    def __init__(self, env: Any, by: float) -> None:
        super().__init__(env)
        self.by = by

    def reward(self, reward: float) -> float:
        return reward + self.by


class Mine(GymMazeEnv):
    special = "mine"
    _private = "hidden"

    def greet(self, name: str) -> str:
        return f"hello {name}"


def stack_of_five(env: Any) -> Any:
    env = RewardScalingWrapper.wrap(env, scale=2.0)
    env = RewardClippingWrapper.wrap(env, min_val=-1, max_val=1)
    env = TimeLimitWrapper.wrap(env, max_episode_steps=5)
    env = Shifted.wrap(env, by=1.0)
    return LogStatsWrapper.wrap(env)


def test_isinstance_sees_through_a_stack_of_five() -> None:
    env = stack_of_five(Mine("CartPole-v1"))
    seen = [Mine, GymMazeEnv, MazeEnv, RewardScalingWrapper, RewardClippingWrapper, TimeLimitWrapper, Shifted]
    seen += [LogStatsWrapper, RewardWrapper, Wrapper, StructuredEnv, gymnasium.Env]
    assert all(isinstance(env, cls) for cls in seen)
    assert not isinstance(env, OnlyTime)
    assert not isinstance(env.env, LogStatsWrapper)
    assert not isinstance(env, dict)
    assert not isinstance(5, MazeEnv)


class HasPrice:
    """A plain mixin."""

    price = 3


class HasColour(ABC):
    """An abstract base class of somebody else."""

    @abstractmethod
    def colour(self) -> str: ...


class Registered(ABC):
    """A class that others are registered with."""

    @abstractmethod
    def greet(self, name: str) -> str: ...


class Shop(Mine, HasPrice):
    """An environment with a plain mixin."""


class Painted(RewardWrapper, HasColour):
    """A wrapper with an abstract base class, which may not be derived from `Wrapper` first."""

    def reward(self, reward: float) -> float:
        return reward

    def colour(self) -> str:
        return "red"


Registered.register(Mine)


def test_isinstance_sees_mixins_and_abstract_base_classes_of_others_through_a_stack() -> None:
    env = stack_of_five(Painted.wrap(Shop("CartPole-v1")))
    for kind in (HasPrice, HasColour, Registered, Shop, Mine, Painted):
        assert isinstance(env, kind)
        assert not isinstance(stack_of_five(GymMazeEnv("CartPole-v1")), kind)
    assert isinstance(env, (int, HasPrice))
    assert not isinstance(env, int | str)
    assert not isinstance(env.unwrapped, (HasColour, Painted))


def test_what_isinstance_sees_changes_nothing_else() -> None:
    env = stack_of_five(Painted.wrap(Shop("CartPole-v1")))
    assert type(env) is LogStatsWrapper
    assert env.__class__.__name__ == "LogStatsWrapper"
    assert type(env.__class__(env.env)) is LogStatsWrapper
    env.reset(seed=3)
    for other in (copy.deepcopy(env), *(pickle.loads(pickle.dumps(env, protocol)) for protocol in range(6))):
        assert [type(one) for one in wrappers_of(other)] == [type(one) for one in wrappers_of(env)]
        assert isinstance(other, HasPrice)
        np.testing.assert_equal(other.step({"action": 1}), copy.deepcopy(env).step({"action": 1}))
    assert type(copy.copy(env)) is LogStatsWrapper


def test_environments_with_slots_are_seen_through_as_far_as_python_can() -> None:
    class Slotted(Mine, HasPrice):
        __slots__ = ("size",)

    env = stack_of_five(Slotted("CartPole-v1"))
    assert isinstance(env, Slotted)
    assert isinstance(env, MazeEnv)
    assert not isinstance(env, HasPrice)


def test_isinstance_does_not_see_through_wrappers_of_others() -> None:
    assert not isinstance(gymnasium.wrappers.TimeLimit(GymMazeEnv("CartPole-v1"), 5), MazeEnv)


def test_attributes_of_the_environment_are_found_through_a_stack() -> None:
    env = stack_of_five(Mine("CartPole-v1"))
    assert env.special == "mine"
    assert env.greet("you") == "hello you"
    assert env.max_episode_steps == 5
    assert env.core_env is env.unwrapped.core_env
    with pytest.raises(AttributeError, match="_private"):
        _ = env._private
    with pytest.raises(AttributeError, match="nowhere"):
        _ = env.nowhere


def test_wrappers_are_listed_from_the_outermost_inwards() -> None:
    names = [type(wrapper).__name__ for wrapper in wrappers_of(stack_of_five(GymMazeEnv("CartPole-v1")))]
    assert names == ["LogStatsWrapper", "Shifted", "TimeLimitWrapper", "RewardClippingWrapper", "RewardScalingWrapper"]
    assert list(wrappers_of(GymMazeEnv("CartPole-v1"))) == []


def test_a_half_made_wrapper_does_not_recurse() -> None:
    wrapper = Shifted.__new__(Shifted)
    with pytest.raises(AttributeError):
        _ = wrapper.anything
    restored = pickle.loads(pickle.dumps(Shifted.wrap(GymMazeEnv("CartPole-v1"), by=2.0)))
    assert restored.by == 2.0


def test_observation_wrapper_changes_step_reset_and_recorded_states() -> None:
    env = OnlyTime.wrap(GymMazeEnv(Scripted([1.0, 2.0])))
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(observation["time"], [0])
    observation, *_ = env.step(NOTHING)
    np.testing.assert_array_equal(observation["time"], [1])
    assert list(env.observation_space) == ["time"]
    observations, actions = env.get_observation_and_action_dicts(np.array([7.0, 70.0]), None, False)
    assert observations is not None
    np.testing.assert_array_equal(observations[0]["time"], [7])
    assert actions is None
    assert env.get_observation_and_action_dicts(None, None, False) == (None, None)


def test_action_wrapper_changes_actions_and_turns_recorded_ones_back() -> None:
    env = Negated.wrap(GymMazeEnv(Scripted([1.0, 2.0])))
    env.reset(seed=0)
    env.step({"action": np.array([0.5], np.float32)})
    np.testing.assert_array_equal(env.get_maze_action(), [-0.5])
    _, actions = env.get_observation_and_action_dicts(None, env.get_maze_action(), False)
    assert actions is not None
    np.testing.assert_array_equal(actions[0]["action"], [0.5])
    assert env.get_observation_and_action_dicts(None, None, False) == (None, None)


def test_action_wrapper_without_an_inverse_says_so() -> None:
    class OneWay(ActionWrapper):
        def action(self, action: Any) -> Any:
            return action

    env = OneWay.wrap(GymMazeEnv("CartPole-v1"))
    with pytest.raises(TypeError, match="reverse_action"):
        env.get_observation_and_action_dicts(None, 1, False)


def test_reward_wrapper_changes_actor_rewards_too_but_not_what_is_logged() -> None:
    env = LogStatsWrapper.wrap(Shifted.wrap(make_heap_env(), by=10.0))
    env.reset(seed=0)
    rewards = [env.step({"amount": amount})[1] for amount in (2, 1, 2, 3)]
    assert rewards == [10.0, 9.0, 10.0, 9.0]
    np.testing.assert_array_equal(env.get_actor_rewards(), [10.0, 9.0, 10.0, 9.0])
    env.close_episode()
    assert env.drain_episode_summaries()[0].reward == -2.0


def test_an_inner_wrapper_that_gives_an_actor_no_finite_reward_is_named() -> None:
    class Dividing(RewardWrapper):
        divisor = 1.0

        def reward(self, reward: float) -> float:
            return float(np.divide(reward, self.divisor))

    env = Shifted.wrap(Dividing.wrap(make_heap_env()), by=1.0)
    env.reset(seed=0)
    for amount in (2, 1):
        env.step({"amount": amount})
    env.env.divisor = float("nan")
    with pytest.raises(EnvContractError, match=r"^Dividing turned the reward \S+ into nan; rewards must be finite"):
        env.get_actor_rewards()


def test_rewards_that_are_not_attributed_stay_so() -> None:
    assert Shifted.wrap(GymMazeEnv("CartPole-v1"), by=1.0).get_actor_rewards() is None


def test_bare_gymnasium_environments_are_refused() -> None:
    with pytest.raises(TypeError, match="in GymMazeEnv first"):
        TimeLimitWrapper.wrap(gymnasium.make("CartPole-v1"), max_episode_steps=3)


def test_interface_of_gymnasium_is_passed_on() -> None:
    env = stack_of_five(GymMazeEnv("CartPole-v1"))
    env.reset(seed=5)
    assert env.spec.id == "CartPole-v1"
    assert env.np_random is env.unwrapped.np_random
    assert env.np_random_seed == 5
    assert env.render_mode is None
    assert "rgb_array" in env.metadata["render_modes"]
    assert env.get_episode_id() == env.context.episode_id
    generator = np.random.default_rng(0)
    env.np_random = generator
    assert env.unwrapped.np_random is generator
    with env:
        pass


def test_rendering_reaches_the_environment() -> None:
    class Drawn(Scripted):
        def render(self) -> Any:
            return "picture"

    assert stack_of_five(GymMazeEnv(Drawn([1.0]))).render() == "picture"


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_reward_wrapper_that_gives_no_finite_number_is_named(value: float) -> None:
    class Overflowing(RewardWrapper):
        def reward(self, reward: float) -> float:
            return value

    env = TimeLimitWrapper.wrap(Overflowing.wrap(GymMazeEnv("CartPole-v1")), max_episode_steps=5)
    env.reset(seed=0)
    with pytest.raises(EnvContractError, match=f"Overflowing turned the reward 1.0 into {value}"):
        env.step({"action": 0})

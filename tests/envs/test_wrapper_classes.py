"""Mistakes in wrappers are refused with messages that name the wrapper and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.deployment.stack_steps import require_in_step
from maze_pl.envs import ActionWrapper, GymMazeEnv, ObservationWrapper, RewardWrapper, SequentialVectorEnv, Wrapper
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.contract import EnvContractError


def make_cartpole() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")


def play(*wrappers: Callable[[Any], Any]) -> SequentialVectorEnv:
    """Reset an environment with wrappers, and step it twice."""
    vector = SequentialVectorEnv([lambda: make_wrapped(make_cartpole, wrappers)])
    vector.reset()
    vector.step()
    vector.step()
    return vector


class Bonus:
    """A mixin with the steps of a wrapper."""

    def step_in_parts(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = yield action
        return observation, reward + 2.0, terminated, truncated, info


class Mixed(Bonus, Wrapper):
    """A wrapper that has its steps in parts from a mixin."""


class Negated(ActionWrapper):
    def action(self, action: Any) -> Any:
        return {"action": 1 - action["action"]}


def test_steps_in_parts_of_a_mixin_are_used() -> None:
    assert play(Mixed).staging.reward.tolist() == [3.0]
    assert play(Mixed, Mixed, Negated).staging.reward.tolist() == [5.0]
    require_in_step(Mixed(make_cartpole()))


def test_steps_that_a_later_class_overrides_are_used_instead_of_parts() -> None:
    class Silent:
        def step(self, action: Any) -> Any:
            return self.env.step(action)  # type: ignore[attr-defined]

    class Later(Silent, Mixed):
        """Overrides `step` of a class that has both."""

    assert play(Later).staging.reward.tolist() == [1.0]
    with pytest.raises(TypeError, match="Silent cannot be kept in step, as it overrides step"):
        require_in_step(Later(make_cartpole()))


def test_a_class_of_two_bases_needs_steps_for_both() -> None:
    class Doubled(RewardWrapper):
        def reward(self, reward: float) -> float:
            return 2 * reward

    class Halved(ObservationWrapper):
        def observation(self, observation: Any) -> Any:
            return {name: values / 2 for name, values in observation.items()}

    fault = "Both derives from RewardWrapper and ObservationWrapper, but its step is that of RewardWrapper"
    with pytest.raises(TypeError, match=f"{fault} and leaves out what the others change; write one wrapper for each"):
        type("Both", (Doubled, Halved), {})

    class Both(Doubled, Halved):
        def step_in_parts(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = yield action
            return self.observation(observation), self.reward(reward), terminated, truncated, info

    class Derived(Both):
        """Takes the steps over."""

    one, other = play(), play(Derived)
    assert other.staging.reward.tolist() == [2.0]
    np.testing.assert_equal(other.staging.observation[0]["observation"], one.staging.observation[0]["observation"] / 2)


def test_a_reset_without_its_keywords_is_refused() -> None:
    def reset(self: Any) -> Any:
        return self.env.reset()

    with pytest.raises(
        TypeError, match=r"reset of Old does not accept seed and options .* define it as reset\(self, \*"
    ):
        type("Old", (Wrapper,), {"reset": reset})


class NoYield(Wrapper):
    def step_in_parts(self, action: Any) -> Any:
        return self.env.step(action)


class YieldsResult(Wrapper):
    def step_in_parts(self, action: Any) -> Any:
        return (yield self.env.step(action))


class YieldsNothing(Wrapper):
    def step_in_parts(self, action: Any) -> Any:
        return (yield)


class NoAction(ActionWrapper):
    def action(self, action: Any) -> Any:
        """Forget the return."""


class BareAction(ActionWrapper):
    def action(self, action: Any) -> Any:
        return action["action"]


class OnlyObservation(Wrapper):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.env.reset(seed=seed, options=options)[0]


class FourValues(Wrapper):
    def step_in_parts(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = yield action
        return observation, reward, terminated or truncated, info


class NoReward(RewardWrapper):
    def reward(self, reward: float) -> Any:
        """Forget the return."""


class Raises(ActionWrapper):
    def action(self, action: Any) -> Any:
        raise AttributeError("a fault of the user")


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (NoYield, "step_in_parts of NoYield returned a tuple of 5 values, as it does not yield; write `yield action`"),
        (YieldsResult, "step_in_parts of YieldsResult yielded a tuple of 5 values; .* instead of `yield self.env.step"),
        (YieldsNothing, "step_in_parts of YieldsNothing yielded None; expected an action, a dict from head to value"),
        (NoAction, "action of NoAction returned None; expected an action, a dict from head to value"),
        (BareAction, "action of BareAction returned .* expected an action, a dict from head to value"),
        (OnlyObservation, "reset of CartPole-v1 or of OnlyObservation around it returned a dict with"),
        (FourValues, "step of CartPole-v1 or of FourValues around it returned a tuple of 4 values"),
        (NoReward, "step of CartPole-v1 or of NoReward around it returned None as reward"),
    ],
)
@pytest.mark.parametrize("further", [[], [Mixed], [Negated, Mixed]])
def test_wrong_results_are_blamed_on_their_wrapper(wrapper: Any, message: str, further: list[Any]) -> None:
    if wrapper in (OnlyObservation, FourValues, NoReward) and further:
        return  # others around it fail first, or are named, too
    with pytest.raises(EnvContractError, match=f"environment 0: {message}"):
        play(wrapper, *further)


def test_errors_in_a_users_code_stay_as_they_are() -> None:
    with pytest.raises(AttributeError, match="a fault of the user"):
        play(Raises, Mixed)


def test_a_constructor_must_call_that_of_its_base() -> None:
    class Forgetful(RewardWrapper):
        def __init__(self, env: Any) -> None:
            self.factor = 2

        def reward(self, reward: float) -> float:
            return self.factor * reward

    with pytest.raises(
        AttributeError, match=r"'Forgetful' object has no attribute 'env'; .* super\(\).__init__\(env\)"
    ):
        play(Forgetful)


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_spaces_of_the_next_actor_cannot_be_set(name: str) -> None:
    class Setting(Wrapper):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            setattr(self, name, spaces.Dict({"a": spaces.Discrete(2)}))

    with pytest.raises(AttributeError, match=f"Setting cannot set {name}, which .* override {name}s_dict"):
        play(Setting)
    assert getattr(Wrapper(make_cartpole()), name) == getattr(make_cartpole(), name)


@pytest.mark.parametrize("name", ["observation_spaces_dict", "action_spaces_dict"])
def test_spaces_are_given_by_step_key(name: str) -> None:
    space = spaces.Dict({"a": spaces.Discrete(2)})
    flat = type("Flat", (Wrapper,), {name: property(lambda self: space)})
    with pytest.raises(TypeError, match=rf"{name} of Flat returned the space .* from step key to space, such as \{{0:"):
        play(flat)

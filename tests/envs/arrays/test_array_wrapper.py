"""Wrappers leave the results alone that the innermost environment returns, and which it may return again."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import ArrayEnv, ArrayStep, ArrayVectorEnv, CartPoleArrayEnv
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays import ArrayMazeEnv, ArrayWrapper, TimeLimitArrayWrapper
from maze_pl.envs.arrays.return_normalization_array_wrapper import ReturnNormalizationArrayWrapper
from maze_pl.envs.checker.same_as import compare_envs
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import (
    MazeEnvMonitoringWrapper,
    ObservationStackWrapper,
    ReturnNormalizationRewardWrapper,
    RewardClippingWrapper,
    RewardScalingWrapper,
    TimeLimitWrapper,
)

N = 3
STACK = [{"observation": "place", "stack_steps": 2, "keep_original": False, "tag": None}]
WRAPPERS: dict[str, list[Callable[[Any], Any]]] = {
    "limit": [partial(TimeLimitWrapper, max_episode_steps=3)],
    "scale": [partial(RewardScalingWrapper, scale=0.5)],
    "clip": [partial(RewardClippingWrapper, min_val=-1.0, max_val=2.0)],
    "returns": [ReturnNormalizationRewardWrapper],
    "stack": [partial(ObservationStackWrapper, stack_config=STACK)],
    "monitor": [
        partial(MazeEnvMonitoringWrapper, observation_logging=True, action_logging=True, reward_logging=True),
    ],
}
WRAPPERS["all"] = [wrapper for stack in WRAPPERS.values() for wrapper in stack]


@dataclass(slots=True)
class Annotated(ArrayStep):
    """Result with an attribute that only wrappers of the same authors read."""

    note: str = ""


class Fresh(ArrayEnv):
    """Walk in which both actions lead forwards, with a new result in each step."""

    @property
    def observation_spaces_dict(self) -> dict[int, spaces.Dict]:
        return {0: spaces.Dict({"place": spaces.Box(-9.0, 9.0, (1,), np.float32)})}

    @property
    def action_spaces_dict(self) -> dict[int, spaces.Dict]:
        return {0: spaces.Dict({"stride": spaces.Discrete(2)})}

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.place = np.zeros((n_envs, 1), np.float32)
        self.reward = np.zeros(n_envs)
        self.truncated = np.zeros(n_envs, np.bool_)
        self.n_steps = np.zeros(n_envs, np.int64)

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        self.place[which] = 0.0
        self.n_steps[which] = 0
        return self.result()

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.n_steps[which] += 1
        self.reward[which] = self.n_steps[which] + actions[0]["stride"][which]
        self.place[which, 0] += 1 + actions[0]["stride"][which]
        self.truncated[which] = self.n_steps[which] >= 4
        return self.result()

    def result(self) -> ArrayStep:
        return ArrayStep({0: {"place": self.place}}, self.reward, truncated=self.truncated)


class Reused(Fresh):
    """The same walk, which returns one result, with arrays that change, in all steps."""

    kind: type[ArrayStep] = ArrayStep

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.only = self.kind({0: {"place": self.place}}, self.reward, truncated=self.truncated)

    def result(self) -> ArrayStep:
        return self.only


class Extended(Reused):
    kind = Annotated


@pytest.mark.parametrize("wrappers", WRAPPERS)
@pytest.mark.parametrize("make_env", [Reused, Extended])
def test_an_environment_may_return_the_same_result_in_each_step(make_env: Any, wrappers: str) -> None:
    one, other = (
        partial(ArrayVectorEnv, partial(make_wrapped_arrays, make, WRAPPERS[wrappers]), N, seed=1)
        for make in (make_env, Fresh)
    )
    comparison = compare_envs(one, other, n_steps=40)
    assert comparison.difference is None
    assert comparison.n_episodes > N


def test_wrappers_of_users_may_change_results() -> None:
    class Doubling(ArrayWrapper):
        def step(self, actions: Any, which: Any) -> ArrayStep:
            result = super().step(actions, which)
            result.reward = 2 * result.reward
            result.truncated = result.truncated | (self.unwrapped.n_steps >= 2)  # type: ignore[attr-defined]
            return result

    vector = ArrayVectorEnv(lambda: Doubling(Doubling(Reused())), 1)
    vector.reset()
    rewards, truncated = [], []
    for _ in range(5):
        vector.step()
        rewards.append(float(vector.staging.reward[0]))
        truncated.append(bool(vector.staging.truncated[0]))
    assert rewards == [4.0, 8.0, 4.0, 8.0, 4.0]
    assert truncated == [False, True, False, True, False]


@pytest.mark.parametrize("kind", [ArrayStep, Annotated])
def test_copies_have_every_attribute(kind: type[ArrayStep]) -> None:
    values: dict[str, Any] = {field.name: object() for field in fields(kind)}

    class Returning(Fresh):
        def result(self) -> ArrayStep:
            return result

    result = kind(**values)
    env = ArrayWrapper(Returning())
    env.allocate(1)
    outcomes = [env.reset(np.zeros(1, np.int64), np.zeros(1, np.int64))]
    outcomes.append(env.step({0: {"stride": np.zeros(1, np.int64)}}, slice(None)))
    for outcome in outcomes:
        assert outcome is not result
        assert type(outcome) is kind
        assert {field.name: getattr(outcome, field.name) for field in fields(kind)} == values


class ReturnsNothing(CartPoleArrayEnv):
    """Returns nothing from `reset` or `step`."""

    def __init__(self, method: str) -> None:
        super().__init__()
        setattr(self, method, lambda *arguments: None)


@pytest.mark.parametrize("wrap", [lambda env: TimeLimitArrayWrapper(env, 5), ReturnNormalizationArrayWrapper])
@pytest.mark.parametrize("method", ["reset", "step"])
def test_results_that_are_none_are_named_within_wrappers_too(wrap: Any, method: str) -> None:
    env: Any = ArrayMazeEnv(wrap(ReturnsNothing(method)))
    with pytest.raises(EnvContractError, match=f"{method} of .* returned None; return an ArrayStep"):
        env.reset(seed=1)
        env.step({"action": 1})

"""Wrong results of array environments are refused with the same messages whatever wrappers are around them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.envs import ArrayStep, ArrayVectorEnv, CartPoleArrayEnv, SequentialVectorEnv
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays.array_maze_env import ArrayMazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.checker.same_as import compare_envs
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import (
    MazeEnvMonitoringWrapper,
    ObservationStackWrapper,
    ResidualActionWrapper,
    ReturnNormalizationRewardWrapper,
    RewardClippingWrapper,
    RewardScalingWrapper,
    TimeLimitWrapper,
)
from maze_pl.events.topics import StatisticsError
from tests.envs.arrays.yard import YardArrayEnv, make_yard

N = 4
STACK = [{"observation": "observation", "stack_steps": 2, "keep_original": True, "tag": "stack"}]
WRAPPERS: dict[str, list[Callable[[Any], Any]]] = {
    "none": [],
    "limit": [partial(TimeLimitWrapper, max_episode_steps=9)],
    "scale": [partial(RewardScalingWrapper, scale=0.5)],
    "returns": [ReturnNormalizationRewardWrapper],
    "stack": [partial(ObservationStackWrapper, stack_config=STACK)],
    "monitor": [
        partial(MazeEnvMonitoringWrapper, observation_logging=True, action_logging=True, reward_logging=True),
    ],
}
WRAPPERS["all"] = [wrapper for stack in WRAPPERS.values() for wrapper in stack]


class Wrong(CartPoleArrayEnv):
    """Gives a wrong result in its second step.

    Args:
        change: Returns the wrong result for the right one.
    """

    def __init__(self, change: Callable[[ArrayStep], Any]) -> None:
        super().__init__()
        self.change = change
        self.count = 0

    def step(self, actions: Any, which: Any) -> Any:
        result = super().step(actions, which)
        self.count += 1
        return self.change(result) if self.count == 2 else result


def _with(**fields: Any) -> Callable[[ArrayStep], ArrayStep]:
    def changed(result: ArrayStep) -> ArrayStep:
        for name, value in fields.items():
            setattr(result, name, value)
        return result

    return changed


@pytest.mark.parametrize("wrappers", WRAPPERS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda result: (result.observation, result.reward), "step of Wrong returned a tuple of 2 values; return an"),
        (_with(truncated=np.array([True])), r"truncated of Wrong .* shape \(1,\) .* booleans of shape \(4,\)"),
        (_with(truncated=True), r"truncated of Wrong .* shape \(\) .* booleans of shape \(4,\)"),
        (_with(truncated=np.zeros((N, 1), np.bool_)), r"truncated of Wrong .* shape \(4, 1\)"),
        (_with(terminated=np.zeros(N, np.int64)), "terminated of Wrong .* type int64; expected booleans"),
        (_with(env_time=np.ones(N)), "env_time of Wrong .* type float64; expected integers"),
        (_with(reward=np.ones(N).astype(object)), "reward of Wrong .* type object; expected numbers"),
        (_with(next_agent=np.zeros(N)), "next_agent of Wrong .* type float64; expected integers"),
    ],
)
def test_names_the_environment_whatever_wrappers_there_are(
    change: Callable[[ArrayStep], Any], message: str, wrappers: str
) -> None:
    vector = ArrayVectorEnv(partial(make_wrapped_arrays, partial(Wrong, change), WRAPPERS[wrappers]), N)
    vector.reset()
    vector.step()
    with pytest.raises(EnvContractError, match=message):
        vector.step()


@pytest.mark.parametrize("wrappers", WRAPPERS)
def test_names_the_environment_whose_reset_returns_something_else(wrappers: str) -> None:
    class Unfinished(CartPoleArrayEnv):
        def reset(self, which: Any, seeds: Any) -> Any:
            result = super().reset(which, seeds)
            return result if self.n_envs == 1 else result.observation

    vector = ArrayVectorEnv(partial(make_wrapped_arrays, Unfinished, WRAPPERS[wrappers]), N)
    with pytest.raises(EnvContractError, match=r"reset of Unfinished returned .*; return an ArrayStep"):
        vector.reset()


def test_kpis_that_are_not_a_dict_are_refused() -> None:
    class Without(YardArrayEnv):
        def kpis(self, which: Any) -> Any:
            return None

    vector = ArrayVectorEnv(Without, N)
    vector.reset()
    message = "kpis of Without returned None; return a dict from name to numbers"
    with pytest.raises(StatisticsError, match=message):
        for _ in range(30):
            vector.step()


class YardRule:
    """A rule for both sub-steps of the yard."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        n_actors = len(batch.agent_id)
        if batch.step_key == "plan":
            return PolicyStep({"plan": np.zeros(n_actors, np.int64)})
        effort = np.tanh(batch.observation["load"] * 0.3 + batch.agent_id[:, np.newaxis] * 0.1)
        return PolicyStep({"effort": effort.astype(np.float32)})


def test_corrections_of_one_of_several_sub_steps_equal_those_of_single_episodes() -> None:
    wrappers = [partial(ResidualActionWrapper, corrections={"effort": 0.3}, policy=YardRule())]
    comparison = compare_envs(
        partial(ArrayVectorEnv, partial(make_wrapped_arrays, YardArrayEnv, wrappers), N),
        partial(SequentialVectorEnv, [partial(make_wrapped, make_yard, wrappers)] * N),
        n_steps=400,
    )
    assert comparison.difference is None
    assert comparison.n_episodes > N


def test_all_heads_reach_the_environment_while_none_is_at_the_corrected_sub_step() -> None:
    heads: list[list[str]] = []

    class Noting(YardArrayEnv):
        def step(self, actions: Any, which: Any) -> ArrayStep:
            heads.append([head for key in actions for head in actions[key]])
            return super().step(actions, which)

    wrappers = [partial(ResidualActionWrapper, corrections={"effort": 0.3}, policy=YardRule())]
    vector = ArrayVectorEnv(partial(make_wrapped_arrays, Noting, wrappers), N)
    vector.reset()
    heads.clear()
    for _ in range(3):
        vector.step()
    assert heads == [["plan", "effort"]] * 3


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_agent_that_does_not_exist_is_refused(wrapped: bool) -> None:
    class Crowded(YardArrayEnv):
        def _result(self) -> ArrayStep:
            result = super()._result()
            result.next_agent = np.array([0, 0, 9, 0])
            return result

    stack_config = [{"observation": "load", "stack_steps": 2, "keep_original": True, "tag": "stack"}]
    stack = partial(ObservationStackWrapper, stack_config=stack_config)
    vector = ArrayVectorEnv(partial(make_wrapped_arrays, Crowded, [stack] if wrapped else []), N)
    with pytest.raises(EnvContractError, match="next_agent of environment 2 of Crowded is 9; expected ids 0 to 0 in"):
        vector.reset()


CLIPPING = partial(RewardClippingWrapper, min_val=-1.0, max_val=1.0)
CHANGES_OF_REWARDS: dict[str, list[Callable[[Any], Any]]] = {
    "clip": [CLIPPING],
    "clip returns": [ReturnNormalizationRewardWrapper, CLIPPING],
    "stack clip limit": [*WRAPPERS["stack"], CLIPPING, *WRAPPERS["limit"]],
}


@pytest.mark.parametrize("wrappers", CHANGES_OF_REWARDS)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_reward_that_is_not_finite_is_refused_before_a_wrapper_clips_it(value: float, wrappers: str) -> None:
    reward = np.ones(N)
    reward[2] = value
    make_env = partial(make_wrapped_arrays, partial(Wrong, _with(reward=reward)), CHANGES_OF_REWARDS[wrappers])
    vector = ArrayVectorEnv(make_env, N, first_env_index=100)
    vector.reset()
    vector.step()
    message = f"step of Wrong returned the reward {value} for environment 102, which is not finite"
    with pytest.raises(EnvContractError, match=message):
        vector.step()


def test_rewards_of_environments_that_do_not_act_may_be_anything() -> None:
    reward = np.array([1.0, 1.0, np.inf, 1.0])
    vector = ArrayVectorEnv(partial(make_wrapped_arrays, partial(Wrong, _with(reward=reward)), [CLIPPING]), N)
    vector.reset()
    vector.step()
    vector.step([0, 1, 3])


class InfiniteYard(YardArrayEnv):
    """Gives some rewards of acts in environment 1 another value, at the end of its first environment step.

    Args:
        value: The value.
        places: The acts of the environment step.
    """

    def __init__(self, value: float, places: list[int]) -> None:
        super().__init__()
        self.value = value
        self.places = places

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        rewards = np.concatenate([result.actor_rewards, np.zeros((self.n_envs, 2))], axis=1)
        rewards[min(1, self.n_envs - 1), self.places] = self.value
        result.actor_rewards = rewards
        return result


def play_yard(vector: Any) -> None:
    """Play an environment step without end of the episode."""
    vector.reset()
    for step in vector.staging.action.values():
        for head in step.values():
            head.fill(0)
    for _ in range(3):
        vector.step()


@pytest.mark.parametrize("wrappers", ["clip", "clip returns"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_rewards_of_single_actors_that_are_not_finite_are_refused_before_a_wrapper_clips_them(
    value: float, wrappers: str
) -> None:
    stack = CHANGES_OF_REWARDS[wrappers]
    message = f"step of InfiniteYard returned actor_rewards with the value {value} for environment 51, which is not"
    vector = ArrayVectorEnv(
        partial(make_wrapped_arrays, partial(InfiniteYard, value, [1]), stack), N, first_env_index=50
    )
    with pytest.raises(EnvContractError, match=message):
        play_yard(vector)


def test_entries_of_acts_that_did_not_happen_are_not_read() -> None:
    make_env = partial(make_wrapped_arrays, partial(InfiniteYard, np.inf, [3, 4]), [CLIPPING])
    play_yard(ArrayVectorEnv(make_env, N))


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_single_episodes_of_arrays_refuse_what_array_wrappers_would_clip(value: float) -> None:
    make_array = partial(make_wrapped_arrays, partial(Wrong, _with(reward=np.array([value]))), [CLIPPING])
    env = ArrayMazeEnv(make_array())
    env.reset(seed=0)
    env.step({"action": 0})
    with pytest.raises(EnvContractError, match=f"step of Wrong returned the reward {value} for environment 0, which"):
        env.step({"action": 0})


def test_single_episodes_of_arrays_refuse_rewards_of_actors_that_array_wrappers_would_clip() -> None:
    env = ArrayMazeEnv(make_wrapped_arrays(partial(InfiniteYard, np.inf, [2]), [CLIPPING]))
    env.reset(seed=0)
    env.step({"plan": 0})
    for _ in range(2):
        env.step({"effort": np.zeros(2, np.float32)})
    with pytest.raises(EnvContractError, match="returned actor_rewards with the value inf for environment 0, which"):
        env.get_actor_rewards()


@pytest.mark.parametrize("stack", ["stack", "monitor"])
def test_wrappers_of_observations_name_the_environment_by_its_number_across_workers(stack: str) -> None:
    class Large(CartPoleArrayEnv):
        observation_spaces_dict = {0: spaces.Dict({"observation": spaces.Box(0, 127, (2,), np.int8)})}  # noqa: RUF012

        n_acts = 0

        def step(self, actions: Any, which: Any) -> ArrayStep:
            self.n_acts += 1
            return self._seen(super().step(actions, which), 300 if self.n_acts > 3 else 1)

        def reset(self, which: Any, seeds: Any) -> ArrayStep:
            return self._seen(super().reset(which, seeds), 1)

        def _seen(self, result: ArrayStep, value: int) -> ArrayStep:
            observation = np.ones((self.n_envs, 2), np.int64)
            observation[self.n_envs - 1] = value
            result.observation = {0: {"observation": observation}}
            return result

    vector = ArrayVectorEnv(partial(make_wrapped_arrays, Large, WRAPPERS[stack]), N, first_env_index=100)
    vector.reset()
    for _ in range(3):  # more than are checked in full
        vector.step()
    with pytest.raises(EnvContractError, match="of environment 103 of Large has the value 300, which its type int8"):
        vector.step()


def test_wrappers_of_observations_name_next_actors_by_their_numbers_across_workers() -> None:
    class Crowded(YardArrayEnv):
        def _result(self) -> ArrayStep:
            result = super()._result()
            result.next_agent = np.array([0, 0, 9, 0])
            return result

    stack_config = [{"observation": "load", "stack_steps": 2, "keep_original": True, "tag": "stack"}]
    stack = partial(ObservationStackWrapper, stack_config=stack_config)
    vector = ArrayVectorEnv(partial(make_wrapped_arrays, Crowded, [stack]), N, first_env_index=8)
    with pytest.raises(EnvContractError, match="next_agent of environment 10 of Crowded is 9; expected ids 0 to 0 in"):
        vector.reset()

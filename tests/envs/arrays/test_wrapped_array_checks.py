"""Wrong results of array environments are refused with the same messages whatever wrappers are around them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.envs import ArrayStep, ArrayVectorEnv, CartPoleArrayEnv, SequentialVectorEnv
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.checker.same_as import compare_envs
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import (
    MazeEnvMonitoringWrapper,
    ObservationStackWrapper,
    ResidualActionWrapper,
    ReturnNormalizationRewardWrapper,
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

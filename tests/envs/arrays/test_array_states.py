"""Saved states of array environments: options stay those of the run, and wrappers may be added or removed."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.envs import (
    ArrayEnv,
    ArrayStep,
    ArrayVectorEnv,
    CartPoleArrayEnv,
    GymMazeEnv,
    PendulumArrayEnv,
    SequentialVectorEnv,
)
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.wrappers import (
    MazeEnvMonitoringWrapper,
    ReturnNormalizationRewardWrapper,
    RewardScalingWrapper,
    TimeLimitWrapper,
)

N = 3
LIMIT = partial(TimeLimitWrapper, max_episode_steps=6)
LONG = partial(TimeLimitWrapper, max_episode_steps=9)
SCALE = partial(RewardScalingWrapper, scale=0.5)
MONITOR = partial(MazeEnvMonitoringWrapper, observation_logging=True, action_logging=True, reward_logging=True)
RETURNS = partial(ReturnNormalizationRewardWrapper, gamma=0.9)


class Gain(CartPoleArrayEnv):
    """Multiplies rewards by an option, and counts acts in an array that replaces one of the constructor."""

    def __init__(self, gain: list[float]) -> None:
        super().__init__()
        self.gain = np.array(gain)
        self.count = np.zeros(1)

    def allocate(self, n_envs: int) -> None:
        self.count = np.zeros(n_envs)
        super().allocate(n_envs)  # last, to show that the order does not matter

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.count[which] += 1
        result = super().step(actions, which)
        result.reward = result.reward * self.gain[0]
        return result


def _vector(make_env: Callable[[], ArrayEnv], *wrappers: Any) -> ArrayVectorEnv:
    return ArrayVectorEnv(partial(make_wrapped_arrays, make_env, list(wrappers)), N, seed=4)


def _played(vector: ArrayVectorEnv, n_steps: int = 4) -> ArrayVectorEnv:
    vector.reset()
    for _ in range(n_steps):
        vector.step()
    return vector


def _ends(vector: ArrayVectorEnv) -> int:
    """Play until the first truncation, and return the number of steps."""
    for count in range(1, 20):
        vector.step()
        if vector.staging.truncated.any():
            return count
    raise AssertionError("no episode was truncated")


def test_options_are_not_restored_but_arrays_that_allocate_makes_are() -> None:
    state = _played(_vector(partial(Gain, [1.0]))).state_dict()
    assert "gain" not in state["array_env"]
    resumed = _vector(partial(Gain, [3.0, 3.0]))
    resumed.load_state_dict(copy.deepcopy(state))
    resumed.step()
    assert resumed.staging.reward.tolist() == [3.0] * N
    assert isinstance(resumed.env, Gain)
    assert resumed.env.count.tolist() == [5.0] * N


def test_states_of_earlier_versions_that_hold_options_are_read() -> None:
    state = _played(_vector(partial(Gain, [1.0]))).state_dict()
    state["array_env"]["gain"] = np.array([1.0])
    del state["array_wrappers"]  # these versions had none
    resumed = _vector(partial(Gain, [3.0]))
    resumed.load_state_dict(state)
    resumed.step()
    assert resumed.staging.reward.tolist() == [3.0] * N
    assert isinstance(resumed.env, Gain)
    assert resumed.env.count.tolist() == [5.0] * N


@pytest.mark.parametrize(
    ("before", "after", "remaining"),
    [
        ([LIMIT], [LIMIT, SCALE, MONITOR], 2),
        ([SCALE, LIMIT, MONITOR], [LIMIT], 2),
        ([LIMIT, MONITOR], [MONITOR, LIMIT], 2),
        ([LIMIT, LONG], [LIMIT], 2),
        ([LIMIT, SCALE], [LIMIT, LONG], 2),
        ([], [LIMIT], 6),
        ([RETURNS], [RETURNS, LIMIT], 6),
    ],
)
def test_wrappers_may_be_added_and_removed(before: Any, after: Any, remaining: int) -> None:
    whole = _played(_vector(PendulumArrayEnv, *before))
    resumed = _vector(PendulumArrayEnv, *after)
    assert resumed.load_state_dict(copy.deepcopy(whole.state_dict())) == []
    assert resumed.shared_states() == whole.shared_states()
    assert _ends(resumed) == remaining


def test_states_are_named_by_class_and_number() -> None:
    state = _played(_vector(PendulumArrayEnv, LIMIT, SCALE, LONG)).state_dict()
    names = ["TimeLimitArrayWrapper 2", "RewardScalingArrayWrapper", "TimeLimitArrayWrapper"]
    assert list(state["array_wrappers"]) == names
    assert "angle" in state["array_env"]


def _nested(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state in the form of earlier versions."""
    nested = copy.deepcopy(state)
    for own in reversed(list(nested.pop("array_wrappers").values())):
        nested["array_env"] = {"env": nested["array_env"], **own}
    return nested


def test_nested_states_of_earlier_versions_are_read() -> None:
    wrappers = [LIMIT, RETURNS, MONITOR]
    whole = _played(_vector(PendulumArrayEnv, *wrappers))
    (name,) = whole.shared_states()[0]
    whole.load_shared_states({name: {"base": [4, -1.0, 2.0], "delta": [6, -1.5, 3.0]}})
    state = _nested(whole.state_dict())
    resumed = _vector(PendulumArrayEnv, *wrappers)
    resumed.load_state_dict(state)
    assert resumed.shared_states() == whole.shared_states()
    for _ in range(9):
        for vector in (whole, resumed):
            vector.step()
        assert np.array_equal(whole.staging.reward, resumed.staging.reward)
        assert np.array_equal(whole.staging.truncated, resumed.staging.truncated)
    other = _vector(PendulumArrayEnv, LIMIT)
    message = r"holds 3 wrappers without their names, but now there are \['TimeLimitArrayWrapper'\]; resume this run"
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(state)


def test_single_environments_refuse_the_state_of_arrays() -> None:
    state = _played(_vector(CartPoleArrayEnv)).state_dict()
    vector = SequentialVectorEnv([partial(GymMazeEnv, "CartPole-v1")] * N)
    with pytest.raises(ValueError, match="holds the state of an array environment, not acts of single environments"):
        vector.load_state_dict(state)


def test_maze_states_are_copies() -> None:
    class Walk(CartPoleArrayEnv):
        def allocate(self, n_envs: int) -> None:
            super().allocate(n_envs)
            self.place = np.zeros((n_envs, 2))
            self.tensor = torch.zeros(n_envs, 2)

    env = Walk()
    env.allocate(N)
    state = env.maze_state(1)
    env.place += 1.0
    env.tensor += 1.0
    env.position += 1.0
    assert state["place"].tolist() == [0.0, 0.0]
    assert state["tensor"].tolist() == [0.0, 0.0]
    assert state["position"] == 0.0
    assert env.maze_state(1)["place"].tolist() == [1.0, 1.0]


class Named(PendulumArrayEnv):
    """Has an array whose name is that under which wrappers keep the state of their environment."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.env = np.zeros(n_envs)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.env[which] += 1
        return super().step(actions, which)


@pytest.mark.parametrize("wrappers", [[], [SCALE]])
def test_an_array_with_the_name_env_is_saved(wrappers: Any) -> None:
    whole = _played(_vector(Named, *wrappers))
    resumed = _vector(Named, *wrappers)
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    assert resumed.env.unwrapped.env.tolist() == [4.0] * N

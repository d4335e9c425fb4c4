"""A flat environment with two decisions in each step plays as the flat one does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import GymMazeEnv, StructuredEnv, TwoDecisionsWrapper, check_env


class SideAndSpeed(TwoDecisionsWrapper):
    """MountainCar's engine: first the side (left, none, right), then whether it is used at all."""

    def __init__(self, maze_env: StructuredEnv) -> None:
        super().__init__(maze_env)
        whole = maze_env.observation_spaces_dict[0]
        speed = spaces.Dict({"speed": spaces.Box(-1, 1, (1,), np.float32), "side": spaces.Discrete(3)})
        self._observation_spaces = {0: whole, 1: speed}
        self._action_spaces = {
            0: spaces.Dict({"side": spaces.Discrete(3)}),
            1: spaces.Dict({"is_used": spaces.Discrete(2)}),
        }

    def first_observation(self, flat: Any) -> Any:
        return flat

    def second_observation(self, flat: Any, first: Any) -> Any:
        return {"speed": flat["observation"][1:].copy(), "side": np.array(first["side"])}

    def joined_action(self, first: Any, second: Any) -> Any:
        return {"action": int(first["side"]) if second["is_used"] else 1}

    def split_action(self, flat: Any) -> Any:
        return {"side": flat["action"]}, {"is_used": 1}


def make_env() -> SideAndSpeed:
    return SideAndSpeed.wrap(GymMazeEnv("MountainCar-v0"))


def test_an_episode_is_that_of_the_flat_environment() -> None:
    env, flat = make_env(), GymMazeEnv("MountainCar-v0")
    generator = np.random.default_rng(0)
    observation, _ = env.reset(seed=3)
    expected, _ = flat.reset(seed=3)
    for time in range(50):
        assert env.actor_id() == ActorID(0, 0) and env.get_env_time() == time
        np.testing.assert_array_equal(observation["observation"], expected["observation"])
        side, is_used = (int(number) for number in generator.integers((3, 2)))
        seen, reward, *_ = env.step({"side": side})
        assert env.actor_id() == ActorID(1, 0) and reward == 0
        assert seen["side"] == side and seen["speed"] == expected["observation"][1]
        observation, reward, terminated, truncated, _ = env.step({"is_used": is_used})
        expected, wanted, *ends, _ = flat.step({"action": side if is_used else 1})
        assert [reward, terminated, truncated] == [wanted, *ends]
        np.testing.assert_array_equal(env.get_actor_rewards(), [wanted / 2, wanted / 2])


def test_a_first_decision_in_an_array_that_is_used_again_is_kept() -> None:
    env = make_env()
    env.reset(seed=0)
    buffer = np.array([2])
    env.step({"side": buffer[0:1].reshape(())})
    buffer[0] = 0
    assert env.first_decision is not None and env.first_decision["side"] == 2
    env.reset(seed=0)
    assert env.first_decision is None


def test_recorded_states_and_actions_are_converted_to_both_sub_steps() -> None:
    env = make_env()
    env.reset(seed=0)
    env.step({"side": 2})
    env.step({"is_used": 1})
    state = env.get_maze_state()
    observations, actions = env.get_observation_and_action_dicts(state, 2, False)
    assert observations is not None and actions == {0: {"side": 2}, 1: {"is_used": 1}}
    np.testing.assert_array_equal(observations[1]["speed"], observations[0]["observation"][1:])
    assert observations[1]["side"] == 2
    only_first, no_action = env.get_observation_and_action_dicts(state, None, False)
    assert only_first is not None and set(only_first) == {0} and no_action is None


def test_the_doctor_finds_no_fault() -> None:
    report = check_env(make_env, n_steps=200)
    assert not [line for line in report.lines if line.verdict == "error"], str(report)


def test_an_episode_must_be_started() -> None:
    with pytest.raises(ResetNeeded, match="step of SideAndSpeed was called before reset"):
        make_env().step({"side": 0})

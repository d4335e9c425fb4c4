"""Steps with actions of the simulation, against steps with those of an agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.cutting_2d import maze_env_factory
from maze_pl.envs.wrappers import TimeLimitWrapper
from tests.envs.structured_example import make_heap_env
from tests.equality import assert_equal


def cutting() -> Any:
    return maze_env_factory(max_pieces_in_inventory=10, raw_piece_size=(4, 3), static_demand=(1, 2))


def cart_pole() -> Any:
    return GymMazeEnv("CartPole-v1")


def events(env: Any) -> list[Any]:
    return [(record.event, record.attributes, record.env_time) for record in env.get_step_events()]


@pytest.mark.parametrize("make_env", [cart_pole, cutting, make_heap_env])
def test_results_time_and_events_are_those_of_step(make_env: Callable[[], Any]) -> None:
    env, driven = make_env(), make_env()
    for seed in range(3):
        env.reset(seed=seed)
        driven.reset(seed=seed)
        for _ in range(12):
            _, *expected = env.step(env.action_space.sample())
            state, *found = driven.step_simulation(env.get_maze_action())
            assert found == expected
            assert_equal(state, driven.get_maze_state())
            assert driven.get_env_time() == env.get_env_time()
            assert driven.actor_id() == env.actor_id()
            assert_equal(driven.get_maze_action(), env.get_maze_action())
            assert events(driven) == events(env)
            if expected[1] or expected[2]:
                break


def test_it_is_checked_as_step_is() -> None:
    env = cart_pole()
    with pytest.raises(ResetNeeded, match="was called before reset"):
        env.step_simulation(1)
    env.reset(seed=0)
    env.core_env.step = lambda _: (0, float("nan"), False, False, {})
    with pytest.raises(EnvContractError, match="returned the reward nan, which is not finite"):
        env.step_simulation(1)


def test_wrappers_refuse_it_as_they_take_no_part() -> None:
    env: Any = TimeLimitWrapper.wrap(cart_pole(), max_episode_steps=3)
    env.reset(seed=0)
    with pytest.raises(TypeError, match=r"without its wrappers, but TimeLimitWrapper is one.*env\.unwrapped\.step_sim"):
        env.step_simulation(1)
    assert env.unwrapped.step_simulation(1)[1] == 1.0

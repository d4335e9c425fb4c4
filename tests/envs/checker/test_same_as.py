"""Comparison of two forms of an environment: the first difference is found wherever it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import GymMazeEnv, StructuredEnv
from maze_pl.envs.checker import compare_envs
from maze_pl.envs.cutting_2d import InventoryEvents, masked_struct_env_factory, struct_env_factory
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.wrapper import Wrapper
from maze_pl.envs.wrappers import LogStatsWrapper, TimeLimitWrapper
from tests.structured import agreement, hierarchy, team

CUTTING: Callable[[], Any] = partial(masked_struct_env_factory, 10, (4, 3), [(1, 2), (1, 1)])


def vector(make: Callable[[], StructuredEnv], n_envs: int = 3) -> Callable[[], SequentialVectorEnv]:
    """Factory of several environments."""
    return partial(SequentialVectorEnv, [lambda: LogStatsWrapper.wrap(make())] * n_envs, seed=4)


def difference(one: Callable[[], Any], other: Callable[[], Any], n_steps: int = 150) -> Any:
    """First difference of two environments, which must be there."""
    comparison = compare_envs(vector(one), vector(other), n_steps=n_steps, seed=3)
    assert comparison.difference is not None
    assert str(comparison).startswith("different: ")
    return comparison.difference


class Changed(Wrapper):
    """Changes the results of one act of every second episode.

    Args:
        env: The environment.
        change: Changes a list of observation, reward, terminated, truncated and info.
        at: Number of the act.
    """

    def __init__(self, env: StructuredEnv, change: Callable[[Any], None], at: int = 5) -> None:
        super().__init__(env)
        self.change, self.at = change, at
        self.n_acts = 0
        self.n_episodes = -1

    def reset(self, **options: Any) -> Any:
        self.n_acts = 0
        self.n_episodes += 1
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        result = list(self.env.step(action))
        self.n_acts += 1
        if self.n_acts == self.at and self.n_episodes % 2:
            self.change(result)
        return tuple(result)


def limited() -> Any:
    return TimeLimitWrapper(CUTTING(), 6)


def changed(change: Callable[[Any], None], at: int = 5) -> Callable[[], Any]:
    """Factory of the environment with a change."""
    return lambda: Changed(limited(), change, at)


@pytest.mark.parametrize(
    "make", [limited, agreement.make_env, team.make_env, hierarchy.make_env, lambda: GymMazeEnv("Pendulum-v1")]
)
def test_an_environment_equals_itself(make: Callable[[], Any]) -> None:
    comparison = compare_envs(vector(make), vector(make), n_steps=400, seed=3)
    assert comparison.difference is None
    assert str(comparison).startswith(f"equal: {comparison.n_acts} acts in 3 environments, ")


def test_another_reward_is_found_with_its_episode_and_act() -> None:
    def change(result: Any) -> None:
        result[1] -= 0.5

    found = difference(limited, changed(change))
    assert found[:4] == (0, 1, 5, "reward")
    assert found.values[0] - found.values[1] == 0.5
    assert "environment 0, episode 1, after act 5: reward is " in str(found)


def test_another_observation_is_found_with_its_name_and_index() -> None:
    def change(result: Any) -> None:
        result[0]["inventory_mask"] = result[0]["inventory_mask"].copy()
        result[0]["inventory_mask"][7] = 1

    found = difference(limited, changed(change, at=4))
    assert found[:4] == (0, 1, 4, "observation 'inventory_mask' of sub-step 0[7]")
    assert found.values == (0.0, 1.0)


@pytest.mark.parametrize(("place", "field"), [(2, "terminated"), (3, "truncated")])
def test_another_end_is_found(place: int, field: str) -> None:
    def change(result: Any) -> None:
        result[place] = True

    found = difference(limited, changed(change))
    assert found[:4] == (0, 1, 5, field)
    assert found.values == (False, True)


def test_another_final_observation_is_found() -> None:
    def change(result: Any) -> None:
        result[0]["inventory_size"] = np.array([3.5], np.float32)

    found = difference(limited, changed(change, at=12))
    assert found[:4] == (0, 1, 12, "final observation 'inventory_size'[0]")
    assert found.values[1] == 3.5


def test_another_event_is_found_when_the_episode_ends() -> None:
    def change(_: Any) -> None:
        topic.no_piece_fits((1, 1))

    def make() -> Any:
        nonlocal topic
        env = changed(change, at=6)()
        topic = env.pubsub.create_event_topic(InventoryEvents)
        return env

    topic: Any = None
    found = difference(limited, make)
    assert found[:3] == (2, 1, 12)
    assert found.field == "statistic 'maze_pl.envs.cutting_2d.events:InventoryEvents/no_piece_fits'"
    assert found.values == (0, 3)  # of the last environment that was made, in which all three fire


def test_another_kpi_is_found() -> None:
    class Halved(Wrapper):
        def get_kpi_calculator(self) -> Any:
            calculator: Any = self.env.get_kpi_calculator()
            compute = calculator.kpis_of
            calculator.kpis_of = lambda totals, state: {name: v / 2 for name, v in compute(totals, state).items()}
            return calculator

    assert difference(limited, lambda: Halved(limited())).field == "KPI 'raw_piece_usage_per_step'"


def test_other_attributed_rewards_are_found() -> None:
    class Swapped(Wrapper):
        def get_actor_rewards(self) -> Any:
            rewards: Any = self.env.get_actor_rewards()
            return rewards + np.arange(len(rewards))

    found = difference(team.make_env, lambda: Swapped(team.make_env()))
    assert found[:4] == (0, 0, 3, "attributed rewards[1]")


def test_other_spaces_and_masks_are_found_before_anything_is_played() -> None:
    unmasked: Callable[[], Any] = partial(struct_env_factory, 10, (4, 3), [(1, 2), (1, 1)])
    found = difference(CUTTING, unmasked)
    assert found.env_index is None
    assert str(found) == "spec 'steps'[0] 'observation_space' 'spaces' 'inventory_mask': " + str(found.values[0]) + (
        " and nothing"
    )


def test_an_error_of_one_form_is_a_difference_and_that_of_both_is_raised() -> None:
    def change(_: Any) -> None:
        raise OverflowError("too much")

    found = difference(limited, changed(change))
    assert found.field == "the outcome of step"
    assert found.values == ("a result", "a OverflowError (too much)")
    with pytest.raises(OverflowError, match="too much"):
        compare_envs(vector(changed(change)), vector(changed(change)), n_steps=100)


def test_a_signalling_nan_equals_itself_and_no_number() -> None:
    class WithNan(Wrapper):
        @property
        def observation_spaces_dict(self) -> Any:
            return {0: spaces.Dict({"x": spaces.Box(-1, 1, (1,))})}

        def reset(self, **options: Any) -> Any:
            return {"x": np.array([np.nan], np.float32)}, self.env.reset(**options)[1]

        def step(self, action: Any) -> Any:
            return {"x": np.array([np.nan], np.float32)}, *self.env.step(action)[1:]

    def make() -> Any:
        return WithNan(GymMazeEnv("CartPole-v1"))

    assert compare_envs(vector(make), vector(make), n_steps=60).difference is None


def test_comparisons_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="n_steps=0 must be at least 1"):
        compare_envs(vector(CUTTING), vector(CUTTING), n_steps=0)
    with pytest.raises(ValueError, match="same number of environments, got 3 and 2"):
        compare_envs(vector(CUTTING), vector(CUTTING, 2))

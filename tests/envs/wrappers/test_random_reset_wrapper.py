from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import ActionMasksWrapper, LogStatsWrapper, RandomResetWrapper, TimeLimitWrapper
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import make_heap_env


def scripted(n_steps: int = 8, **options: Any) -> GymMazeEnv:
    return GymMazeEnv(Scripted([1.0] * n_steps, **options))


def test_every_number_of_steps_in_the_range_occurs() -> None:
    env = RandomResetWrapper.wrap(scripted(), min_skip_steps=2, max_skip_steps=4)
    times = []
    for seed in range(60):
        observation, _ = env.reset(seed=seed)
        times.append(env.get_env_time())
        assert observation["observation"][0] == times[-1]
    assert set(times) == {2, 3, 4}


def test_the_seed_determines_how_many_and_what() -> None:
    env = RandomResetWrapper.wrap(GymMazeEnv("Pendulum-v1"), min_skip_steps=0, max_skip_steps=20)
    first = [env.reset(seed=seed)[0]["observation"].tolist() for seed in range(5)]
    without = [env.reset()[0]["observation"].tolist() for _ in range(3)]
    assert [env.reset(seed=seed)[0]["observation"].tolist() for seed in range(5)] == first
    assert [env.reset()[0]["observation"].tolist() for _ in range(3)] == without
    assert len({str(observation) for observation in first + without}) == 8


def test_no_steps_are_skipped_if_both_limits_are_0() -> None:
    bare = GymMazeEnv("CartPole-v1")
    env = RandomResetWrapper.wrap(GymMazeEnv("CartPole-v1"), min_skip_steps=0, max_skip_steps=0)
    np.testing.assert_equal(env.reset(seed=1), bare.reset(seed=1))
    assert env.get_maze_action() is None


def test_skipped_steps_count_in_statistics_and_time_limits() -> None:
    env = LogStatsWrapper.wrap(
        TimeLimitWrapper.wrap(
            RandomResetWrapper.wrap(scripted(), min_skip_steps=3, max_skip_steps=3), max_episode_steps=5
        )
    )
    for _ in range(2):
        env.reset(seed=0)
        assert [env.step(NOTHING)[2:4] for _ in range(2)] == [(False, False), (False, True)]
        (summary,) = env.drain_episode_summaries()
        assert (summary.reward, summary.env_steps) == (5.0, 5)


def test_attempts_in_which_the_episode_ends_are_dropped_with_all_their_events() -> None:
    # Random actions rarely keep CartPole's pole up for 25 steps, so that there are many attempts.
    env = LogStatsWrapper.wrap(RandomResetWrapper.wrap(GymMazeEnv("CartPole-v1"), min_skip_steps=25, max_skip_steps=25))
    for seed in range(5):
        env.reset(seed=seed)
        assert env.get_env_time() == 25
        identifier = env.get_episode_id()
        while not any(env.step({"action": 0})[2:4]):
            continue
        (summary,) = env.drain_episode_summaries()
        assert summary.reward == summary.env_steps == env.get_env_time()
        env.reset(seed=seed)
        assert env.get_episode_id() == identifier


@pytest.mark.parametrize("options", [{}, {"truncate_at": 3}])
def test_episodes_that_always_end_too_soon_are_an_error(options: dict[str, Any]) -> None:
    env = RandomResetWrapper.wrap(scripted(3, **options), min_skip_steps=3, max_skip_steps=9)
    with pytest.raises(ValueError, match="ended within the first 3 to 9 steps"):
        env.reset(seed=0)


def test_all_sub_steps_of_a_step_are_skipped() -> None:
    env = LogStatsWrapper.wrap(RandomResetWrapper.wrap(make_heap_env(), min_skip_steps=1, max_skip_steps=3))
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        assert env.actor_id() == ("plan", 0)
        assert env.observation_space.contains(observation)
        assert 1 <= env.get_env_time() <= 3


def test_masked_actions_are_not_taken() -> None:
    env = RandomResetWrapper.wrap(make_heap_env(), min_skip_steps=3, max_skip_steps=3)
    env.reset(seed=0)
    added = []
    inner: Any = env.env
    step = inner.core_env.step
    inner.core_env.step = lambda action: (
        added.append((inner.core_env.get_maze_state()["strength"], *action)) or step(action)
    )
    for seed in range(10):
        env.reset(seed=seed)
    assert any(kind == "work" and amount == strength < 3 for strength, kind, amount in added)
    assert all(kind == "plan" or amount <= strength for strength, kind, amount in added)


class Masked(gymnasium.Env[Any, Any]):
    """Observes which entries of an action are allowed, and keeps the actions."""

    def __init__(self, space: spaces.Space[Any], allowed: list[int]) -> None:
        self.action_space, self.allowed = space, np.array(allowed, np.int8)
        self.observation_space = spaces.Dict({"allowed": spaces.MultiBinary(len(allowed))})
        self.actions: list[str] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return {"allowed": self.allowed}, {}

    def step(self, action: Any) -> Any:
        self.actions.append(str(action))
        return {"allowed": self.allowed}, 0.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "allowed", "expected"),
    [
        (spaces.Discrete(3), [0, 1, 1], {"1", "2"}),
        (spaces.MultiDiscrete([2, 3]), [0, 1, 1, 0, 1], {"[1 0]", "[1 2]"}),
        (spaces.MultiBinary(2), [1, 0], {"[0 0]", "[1 0]"}),
    ],
)
def test_masks_of_all_kinds_of_spaces(space: Any, allowed: list[int], expected: set[str]) -> None:
    env = Masked(space, allowed)
    masked: Any = ActionMasksWrapper.wrap(GymMazeEnv(env), action_masks={"action": "allowed"})
    RandomResetWrapper.wrap(masked, min_skip_steps=50, max_skip_steps=50).reset(seed=0)
    assert len(env.actions) == 50
    assert {*env.actions} == expected


@pytest.mark.parametrize(("least", "most"), [(-1, 3), (4, 3)])
def test_numbers_that_make_no_sense_are_refused(least: int, most: int) -> None:
    with pytest.raises(
        ValueError, match=f"min_skip_steps={least} must be at least 0 and at most max_skip_steps={most}"
    ):
        RandomResetWrapper.wrap(scripted(), min_skip_steps=least, max_skip_steps=most)

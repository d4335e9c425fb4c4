from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.datasets.minari_data import minari_records, to_minari
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import SpacesRecordingWrapper, StepSkipWrapper, TimeLimitWrapper
from maze_pl.records.record_files import SpacesTrajectoryRecord
from tests.datasets.episodes_of_acts import flat
from tests.envs.structured_example import make_heap_env

pytestmark = [
    pytest.mark.filterwarnings("ignore:`.*` is set to None:UserWarning"),
    pytest.mark.filterwarnings("ignore:env_spec is None:UserWarning"),
]


@pytest.fixture(autouse=True)
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


class Parts(gymnasium.Env[Any, Any]):
    """Spaces with parts of each kind."""

    observation_space = spaces.Dict({"image": spaces.Box(0, 255, (4, 4, 3), np.uint8), "mode": spaces.Discrete(3)})
    action_space = spaces.Dict({"turn": spaces.Box(-1, 1, (2,), np.float32), "gear": spaces.MultiDiscrete([2, 3])})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), float(action["turn"].sum()), False, False, {}


def recorded(env: Any, n_episodes: int = 4) -> list[SpacesTrajectoryRecord]:
    env = SpacesRecordingWrapper.wrap(TimeLimitWrapper.wrap(env, max_episode_steps=20), n_episodes=n_episodes)
    for seed in range(n_episodes):
        env.reset(seed=seed)
        while not any(env.step(env.action_space.sample())[2:4]):
            continue
    return list(env.trajectories)


def test_minari_reads_what_was_recorded() -> None:
    records = recorded(GymMazeEnv("CartPole-v1"), 12)
    assert {record.terminated for record in records} == {False, True}
    to_minari(records, "cart_pole/random-v0", algorithm_name="random")
    data = minari.load_dataset("cart_pole/random-v0")
    assert data.observation_space == gymnasium.make("CartPole-v1").observation_space
    assert data.action_space == gymnasium.make("CartPole-v1").action_space
    assert data.total_steps == sum(map(len, records))
    for episode, record in zip(data.iterate_episodes(), records, strict=True):
        seen = record.observation[0]["observation"]
        np.testing.assert_array_equal(episode.observations[:-1], seen)
        np.testing.assert_array_equal(episode.observations[-1], record.last_observation.get("observation", seen[-1]))
        np.testing.assert_array_equal(episode.actions, record.action[0]["action"])
        np.testing.assert_array_equal(episode.rewards, record.reward)
        assert episode.terminations.tolist() == [False] * (len(record) - 1) + [record.terminated]
        assert episode.truncations.tolist() == [False] * (len(record) - 1) + [record.truncated]


def test_what_comes_back_from_minari_is_what_was_recorded() -> None:
    records = recorded(GymMazeEnv(Parts()))
    to_minari(records, "parts-v0")
    for again, record in zip(minari_records("parts-v0"), records, strict=True):
        assert again.spec == record.spec
        np.testing.assert_equal(again.observation, record.observation)
        np.testing.assert_equal(again.action, record.action)
        np.testing.assert_equal(again.last_observation, record.last_observation)
        np.testing.assert_array_equal(again.reward, record.reward)
        assert (again.terminated, again.truncated) == (record.terminated, record.truncated) == (False, True)


def test_what_minari_has_no_place_for_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be in a data set of Minari, which has one agent that acts once"):
        to_minari(recorded(make_heap_env(), 1), "heap-v0")
    with pytest.raises(ValueError, match="which has the same spaces in all episodes"):
        to_minari(recorded(GymMazeEnv("CartPole-v1"), 1) + recorded(GymMazeEnv(Parts()), 1), "mixed-v0")
    with pytest.raises(ValueError, match="there is no episode for empty-v0"):
        to_minari([], "empty-v0")
    assert minari.list_local_datasets() == {}


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"env_time": np.array([0, 4, 8])}, "acts of one environment step each"),
        ({"last_env_time": 4}, "acts of one environment step each"),
        ({"actor_reward": np.array([1.0, 2.0, 30.0])}, "rewards of the environment, not those attributed to an actor"),
        ({"actor_done": np.array([False, True, False])}, "agents that act until the end of the episode"),
        ({"last_observation": {}}, "an observation after the last act of a truncated episode"),
    ],
)
def test_numbers_that_minari_has_no_place_for_are_refused(changes: dict[str, Any], needed: str) -> None:
    record = flat(3, terminated=False)
    with pytest.raises(ValueError, match=f"cannot be in a data set of Minari, which has {needed}"):
        to_minari([replace(record, **changes)], "numbers-v0")
    assert minari.list_local_datasets() == {}
    data = to_minari([replace(record, env_time=np.array([5, 6, 7]), last_env_time=8)], "numbers-v0")
    assert data.total_steps == 3


def test_an_act_that_ends_the_episode_within_an_environment_step_counts_as_one() -> None:
    """As in simulations whose last act does not complete its step."""
    assert to_minari([replace(flat(3), last_env_time=2)], "ended-v0").total_steps == 3
    with pytest.raises(ValueError, match="which has acts of one environment step each"):
        to_minari([replace(flat(3, terminated=False), last_env_time=2)], "cut-v0")
    with pytest.raises(ValueError, match="which has acts of one environment step each"):
        to_minari([replace(flat(3), last_env_time=1)], "twice-v0")


def test_skipped_environment_steps_are_refused_and_equal_rewards_of_the_actor_are_not() -> None:
    skipping = StepSkipWrapper.wrap(GymMazeEnv("CartPole-v1"), n_steps=4)
    with pytest.raises(ValueError, match="which has acts of one environment step each"):
        to_minari(recorded(skipping, 1), "skipped-v0")
    record = flat(3)
    record.actor_reward = record.reward.copy()
    assert to_minari([record], "attributed-v0").total_steps == 3


def test_without_minari_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ImportError, match=r'pip install "maze-pl\[minari\]"'):
        to_minari([], "empty-v0")

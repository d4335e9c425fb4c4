"""A fixed set of instances is played once each, whatever plays it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.collect.engines import Engine, InProcessEngine, ProcessEngine
from maze_pl.comparison.compare import compare
from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs import GymMazeEnv
from maze_pl.runs.episode_seeds import listed_seeds
from maze_pl.runs.rollout import rollout

N_INSTANCES = 40


class Instances(gymnasium.Env[Any, Any]):
    """Episodes of two steps, whose return is the number of their instance."""

    observation_space = spaces.Box(0, N_INSTANCES, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        assert seed is not None
        self.instance, self.n_steps = seed % N_INSTANCES, 0
        return np.full(1, self.instance, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.n_steps += 1
        return np.full(1, self.instance, np.float32), self.instance / 2, self.n_steps == 2, False, {}


def make_env() -> GymMazeEnv:
    return GymMazeEnv(Instances())


@pytest.mark.parametrize(
    "engine",
    [None, pytest.param(InProcessEngine(step_timeout=60), marks=pytest.mark.slow), ProcessEngine(n_workers=2)],
    ids=["here", "step_timeout", "processes"],
)
def test_each_instance_is_played_once_and_in_order(engine: Engine | None) -> None:
    played = rollout(make_env, "random", N_INSTANCES, episode_seeds="0-39", n_envs=6, engine=engine)
    assert [one.summary.reward for one in played] == list(range(N_INSTANCES))
    assert [one.seed for one in played] == list(range(N_INSTANCES))


@pytest.mark.parametrize("seeds", [range(3, 9), [3, 4, 5, 6, 7, 8], "3-8", np.arange(3, 9)])
def test_each_seed_is_played_without_a_number_of_episodes(seeds: Any) -> None:
    played = rollout(make_env, "random", episode_seeds=seeds)
    assert [one.seed for one in played] == [3, 4, 5, 6, 7, 8]
    assert len(rollout(make_env, "random")) == 1


@pytest.mark.parametrize(("episodes", "expected"), [(None, [9, 1, 2]), (3, [9, 1, 2]), (2, [9, 1])])
def test_later_episodes_have_the_seeds_at_their_numbers(episodes: int | None, expected: list[int]) -> None:
    played = rollout(make_env, "random", episodes, episode_seeds=[7, 5, 9, 1, 2], n_envs=2, first_episode=2)
    assert [one.seed for one in played] == expected


def test_seeds_do_not_change_what_a_policy_draws() -> None:
    other = rollout(make_env, "random", 4, seed=3, episode_seeds=[11, 12, 13, 14])
    plain = rollout(make_env, "random", 4, seed=3)
    for one, another in zip(other, plain, strict=True):
        assert one.spaces is not None and another.spaces is not None
        assert np.array_equal(one.spaces.action[0]["action"], another.spaces.action[0]["action"])


def test_a_comparison_plays_each_instance_once_with_all_entries(tmp_path: Path) -> None:
    folder = tmp_path / "comparison"
    table = compare("random", {"again": "random"}, env=make_env, episode_seeds=range(5, 25), to=folder)
    assert {(row["values"], row["mean"]) for row in table if row["metric"] == "return"} == {(20, 14.5)}
    lines = (folder / "episodes.csv").read_text(encoding="utf-8").splitlines()
    names = lines[0].split(",")
    rows = [dict(zip(names, line.split(","), strict=True)) for line in lines[1:]]
    assert [int(row["seed"]) for row in rows] == [*range(5, 25)] * 2
    assert [float(row["return"]) for row in rows] == [*range(5, 25)] * 2
    with pytest.raises(ConfigurationError, match=r"precision=0.1 adds episodes, for which there are no episode_seeds"):
        compare("random", "random", env=make_env, episode_seeds=range(5), precision=0.1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("0..39", r"episode_seeds='0..39': expected whole numbers .* as in 0-39"),
        ("9-3", "episode_seeds='9-3' must have from 1 to"),
        ("0-99999999999", "episode_seeds='0-99999999999' must have from 1 to"),
        ([], "episode_seeds is empty; name a seed for each episode"),
        ([1, -2], "episode_seeds has -2: expected whole numbers"),
        ([1.5], "episode_seeds has 1.5: expected whole numbers"),
        (["first"], "episode_seeds has 'first': expected whole numbers"),
        ([2**63], "episode_seeds has 9223372036854775808: expected"),
        (5, "episode_seeds=5: expected whole numbers"),
        ([0, True], "episode_seeds has True: expected whole numbers"),
        (np.array([False]), "episode_seeds has .*False.*: expected whole numbers"),
        ([float("inf")], "episode_seeds has inf: expected whole numbers"),
    ],
)
def test_other_seeds_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        listed_seeds(given)


def test_too_few_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="episode_seeds has 3 seeds for 4 episodes: give each one a seed"):
        rollout(make_env, "random", 4, episode_seeds=[1, 2, 3])
    with pytest.raises(ValueError, match="episode_seeds has 3 seeds for 6 episodes: give each one a seed"):
        rollout(make_env, "random", episode_seeds=[1, 2, 3], first_episode=5)

"""The words above and below the tables of a comparison."""

from __future__ import annotations

import json

import pytest

from maze_pl.comparison.compare import compare
from maze_pl.comparison.tables import title_text
from maze_pl.envs import GymMazeEnv


@pytest.mark.parametrize(
    ("given", "seeds", "text"),
    [
        (None, None, "| seed 2 |"),
        ("3-5", [3, 4, 5], "| seed 2 | episode seeds 3-5 |"),
        ([7], [7], "| seed 2 | episode seed 7 |"),
        ([4, 3], [4, 3], "| seed 2 | 2 given episode seeds |"),
    ],
)
def test_given_seeds_of_episodes_are_recorded(
    given: list[int] | str | None, seeds: list[int] | None, text: str
) -> None:
    table = compare(
        "random", env=lambda: GymMazeEnv("CartPole-v1"), n_episodes=2, seed=2, episode_seeds=given, max_steps=3
    )
    assert text in title_text(table)
    assert json.loads(json.dumps(table.to_dict()))["episode_seeds"] == seeds

"""The reward that counts what customers got against what was taken into stock."""

from __future__ import annotations

import pytest

from examples.cutting_2d_mixed.waste_reward import WasteRewardAggregator
from maze_pl.envs.cutting_2d import Cutting2DCoreEnvironment, Cutting2DMazeAction


def test_reward_is_the_area_served_less_the_raw_pieces() -> None:
    env = Cutting2DCoreEnvironment(10, (4, 3), [(1, 2), (2, 2)], WasteRewardAggregator())
    env.reset()
    _, reward, *_ = env.step(Cutting2DMazeAction(0, False, False))
    assert reward == pytest.approx(2 / 12 - 2)  # the piece at the start, and the one in place of it
    rests = env.get_maze_state().inventory
    piece = next(index for index, size in enumerate(rests) if size != (4, 3) and min(size) >= 2)
    _, reward, *_ = env.step(Cutting2DMazeAction(piece, False, False))
    assert reward == pytest.approx(4 / 12)
    _, reward, *_ = env.step(Cutting2DMazeAction(9, False, False))
    assert reward == 0.0  # nothing served, nothing taken

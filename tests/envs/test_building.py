"""Factories that make something else than an environment are told what to make."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from maze_pl.envs.building import adapted


class Meet(ParallelEnv[str, Any, Any]):
    possible_agents = ["left", "right"]  # noqa: RUF012


class Turns(AECEnv[str, Any, Any]):
    """An environment of the other interface."""


class Tanks(gymnasium.vector.VectorEnv[Any, Any, Any]):
    num_envs = 2
    single_action_space = spaces.Discrete(2)


@pytest.mark.parametrize(
    ("made", "remedy"),
    [
        (Meet, r"return PettingZooMazeEnv\(Meet\(\)\), for example"),
        (Turns, r"return PettingZooMazeEnv\(Turns\(\)\), for example"),
        (Tanks, r"return GymVectorArrayEnv\(lambda n_envs: Tanks\(n_envs\)\), for example"),
        (dict, r"return a gymnasium\.Env, such as GymMazeEnv\('CartPole-v1'\)"),
    ],
)
def test_the_remedy_is_the_adapter_of_what_was_made(made: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=rf"which is not a gymnasium environment; {remedy}$"):
        adapted(made())

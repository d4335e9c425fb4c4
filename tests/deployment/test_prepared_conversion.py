"""States of a deployment are judged by the same rules in every call, before anything advances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl import AgentDeployment
from maze_pl.envs import ActionConversionInterface, CoreEnv, MazeEnv, ObservationConversionInterface
from maze_pl.envs.contract import EnvContractError

STATE = {"weather": 1, "modes": [1, 3], "switches": [0, 1], "charge": [20.0], "count": [7]}


class Plant(CoreEnv):
    """Is never stepped: the real plant is somewhere else."""

    def step(self, maze_action: Any) -> Any:
        raise NotImplementedError

    def reset(self) -> Any:
        raise NotImplementedError

    def seed(self, seed: int) -> None:
        """Nothing is random."""

    def close(self) -> None:
        """Nothing is open."""

    def get_maze_state(self) -> Any:
        raise NotImplementedError


class Readings(ObservationConversionInterface):
    """Gives all readings as arrays of their types."""

    def space(self) -> spaces.Dict:
        return spaces.Dict(
            {
                "weather": spaces.Discrete(4),
                "modes": spaces.MultiDiscrete([3, 3], start=[0, 1]),
                "switches": spaces.MultiBinary(2),
                "charge": spaces.Box(0, 40, (1,), np.float32),
                "count": spaces.Box(0, 100, (1,), np.int16),
            }
        )

    def maze_to_space(self, maze_state: Any) -> Any:
        return {name: np.array(maze_state[name], part.dtype) for name, part in self.space().spaces.items()}


class Valve(ActionConversionInterface):
    """Opens or closes a valve."""

    def space(self) -> spaces.Dict:
        return spaces.Dict({"valve": spaces.Discrete(2)})

    def space_to_maze(self, action: Any, maze_state: Any) -> int:
        return int(action["valve"])


def make_plant() -> MazeEnv:
    return MazeEnv(Plant(), {0: Valve()}, {0: Readings()})


@pytest.mark.parametrize("n_acts", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("weather", 7, "holds the category 7; its space has 0 to 3"),
        ("weather", -1, "holds the category -1; its space has 0 to 3"),
        ("modes", [1, 0], r"holds the category 0 at \[1\]; its space has 1 to 3"),
        ("switches", [2, 0], r"holds the category 2 at \[0\]; its space has 0 to 1"),
    ],
)
def test_an_impossible_category_is_refused_in_every_call(n_acts: int, name: str, value: Any, fault: str) -> None:
    with AgentDeployment("random", make_plant) as deployment:
        for _ in range(n_acts):
            deployment.act(STATE)
        env_time = deployment.env.get_env_time()
        message = f"entry '{name}' of the observation of sub-step 0 by Readings {fault}"
        with pytest.raises(EnvContractError, match=message):
            deployment.act({**STATE, name: value})
        assert deployment.env.get_env_time() == env_time
        assert deployment.act(STATE) in (0, 1)


def test_a_value_out_of_the_bounds_of_a_box_is_accepted_in_every_call() -> None:
    with AgentDeployment("random", make_plant) as deployment:
        for charge, count in [(40.001, 101), (4000.0, -1), (-1.0, 7)]:
            assert deployment.act({**STATE, "charge": [charge], "count": [count]}) in (0, 1)

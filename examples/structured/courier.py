"""A courier: a dispatcher sets the next address, then a driver drives there; the environment chooses the next actor."""

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import ActionConversionInterface, CoreEnv, MazeEnv, ObservationConversionInterface

LENGTH, N_PARCELS, PATIENCE = 11, 3, 15


class CourierCoreEnv(CoreEnv):
    def seed(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def reset(self) -> dict[str, Any]:
        self.position = LENGTH // 2
        self.target: int | None = None
        self.houses = self.random.integers(0, LENGTH, N_PARCELS)
        self.ages = self.random.integers(0, PATIENCE, N_PARCELS)
        return self.get_maze_state()

    def get_maze_state(self) -> dict[str, Any]:
        return {"ways": self.houses - self.position, "ages": self.ages.copy(), "target": self.target}

    @property
    def agent_counts_dict(self) -> dict[str, int]:
        return {"dispatch": 1, "drive": 1}

    def actor_id(self) -> ActorID:
        return ActorID("dispatch" if self.target is None else "drive", 0)

    def step(self, maze_action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        if self.target is None:  # the decision takes no time: the driver acts in the same minute
            self.target = maze_action
            return self.get_maze_state(), 0.0, False, False, {}
        self.position = int(np.clip(self.position + maze_action - 1, 0, LENGTH - 1))
        self.ages, reward = np.minimum(self.ages + 1, PATIENCE), 0.0
        if self.position == self.houses[self.target]:
            reward = float(1 - self.ages[self.target] / PATIENCE)  # late parcels are worth nothing
            self.houses[self.target], self.ages[self.target] = self.random.integers(LENGTH), 0
            self.target = None  # arrived: the dispatcher acts next
        self.context.increment_env_step()
        return self.get_maze_state(), reward, False, False, {}

    def close(self) -> None:
        """There is nothing to close."""


class Observe(ObservationConversionInterface):
    def __init__(self, step_key: str) -> None:
        self.step_key, self.size = step_key, 2 * N_PARCELS if step_key == "dispatch" else 1

    def space(self) -> spaces.Dict:
        return spaces.Dict({self.step_key: spaces.Box(-1, 1, (self.size,), np.float32)})

    def maze_to_space(self, maze_state: dict[str, Any]) -> dict[str, np.ndarray]:
        ways, ages = maze_state["ways"] / LENGTH, maze_state["ages"] / PATIENCE
        seen = [*ways, *ages] if self.step_key == "dispatch" else [ways[maze_state["target"]]]
        return {self.step_key: np.array(seen, np.float32)}


class Choose(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"choice": spaces.Discrete(3)})

    def space_to_maze(self, action: Any, maze_state: dict[str, Any]) -> int:
        return int(action["choice"])


def make_env() -> MazeEnv:
    keys = ("dispatch", "drive")
    return MazeEnv(CourierCoreEnv(), {key: Choose() for key in keys}, {key: Observe(key) for key in keys})

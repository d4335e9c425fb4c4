"""A loading dock: each lorry is an agent, which arrives, requests forklifts every hour, and leaves when it is empty."""

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import ActionConversionInterface, CoreEnv, MazeEnv, ObservationConversionInterface

N_PLACES, N_FORKLIFTS = 4, 3


class DockCoreEnv(CoreEnv):
    def seed(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def reset(self) -> dict[str, Any]:
        self.number, self.done = 0, False
        self.lorries: dict[int, dict[str, Any]] = {}
        self.begin_hour()
        return self.get_maze_state()

    def begin_hour(self) -> None:
        while not self.lorries or (len(self.lorries) < N_PLACES and self.random.random() < 0.5):
            cost = 1.0 if self.random.random() < 0.3 else 0.1  # of an hour: some bring fresh fish
            self.lorries[self.number] = {"pallets": int(self.random.integers(1, 5)), "cost": cost}
            self.number += 1  # numbers are not used again in the same episode
        self.waiting, self.free = list(self.lorries), N_FORKLIFTS

    def get_maze_state(self) -> dict[str, Any]:
        lorries = [dict(self.lorries[number]) for number in self.waiting]
        return {"lorry": lorries[0], "others": lorries[1:], "free": self.free}

    @property
    def agent_counts_dict(self) -> dict[str, int]:
        return {"lorry": -1}  # varies

    def actor_id(self) -> ActorID:
        return ActorID("lorry", self.waiting[0])

    def is_actor_done(self) -> bool:
        return self.done  # of the lorry that has just acted

    def step(self, maze_action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        number, lorry = self.waiting[0], self.lorries[self.waiting.pop(0)]
        used = min(maze_action, self.free, lorry["pallets"])
        self.free, lorry["pallets"] = self.free - used, lorry["pallets"] - used
        self.done = lorry["pallets"] == 0
        if self.done:
            del self.lorries[number]
        if not self.waiting:  # all had their turn: an hour has passed
            self.begin_hour()
            self.context.increment_env_step()
        return self.get_maze_state(), -lorry["cost"], False, False, {}

    def close(self) -> None:
        """There is nothing to close."""


class Observe(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"dock": spaces.Box(0, 5, (5,), np.float32)})

    def maze_to_space(self, maze_state: dict[str, Any]) -> dict[str, np.ndarray]:
        lorry, costs = maze_state["lorry"], [other["cost"] for other in maze_state["others"]]
        seen = [lorry["pallets"], lorry["cost"], sum(costs), len(costs), maze_state["free"]]
        return {"dock": np.array(seen, np.float32)}


class Ask(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"forklifts": spaces.Discrete(N_FORKLIFTS + 1)})

    def space_to_maze(self, action: Any, maze_state: dict[str, Any]) -> int:
        return int(action["forklifts"])


def make_env() -> MazeEnv:
    return MazeEnv(DockCoreEnv(), {"lorry": Ask()}, {"lorry": Observe()})

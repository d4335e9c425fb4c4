"""Machines that share a power line: several agents, one policy, separate rewards, and a mask."""

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import ActionConversionInterface, CoreEnv, MazeEnv, ObservationConversionInterface

N_MACHINES, N_RUNNING = 4, 2


class PowerLineCoreEnv(CoreEnv):
    def seed(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def reset(self) -> dict[str, Any]:
        self.backlog = self.random.integers(0, 4, N_MACHINES)
        self.begin_hour()
        return self.get_maze_state()

    def begin_hour(self) -> None:
        self.order = np.roll(np.arange(N_MACHINES), self.context.env_time)  # a different machine is first in each hour
        self.free, self.price = N_RUNNING, self.random.uniform(0, 1)
        self.acts: list[float] = []

    def get_maze_state(self) -> dict[str, Any]:
        return {"backlog": self.backlog[np.roll(self.order, -len(self.acts))], "price": self.price, "free": self.free}

    @property
    def agent_counts_dict(self) -> dict[str, int]:
        return {"machine": N_MACHINES}

    def actor_id(self) -> ActorID:
        return ActorID("machine", int(self.order[len(self.acts)]))

    def step(self, maze_action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        machine, self.free = self.actor_id().agent_id, self.free - maze_action
        self.backlog[machine] = max(0, self.backlog[machine] - 3 * maze_action)
        reward = -float(self.price * maze_action + 0.1 * self.backlog[machine])
        self.acts.append(reward)
        if len(self.acts) == N_MACHINES:  # all had their turn: an hour has passed
            self.backlog, self.rewards = self.backlog + self.random.integers(0, 3, N_MACHINES), np.array(self.acts)
            self.context.increment_env_step()
            self.begin_hour()
        return self.get_maze_state(), reward, False, False, {}

    def get_actor_rewards(self) -> np.ndarray:
        return self.rewards  # one for each act of the hour, in order

    def close(self) -> None:
        """There is nothing to close."""


class Observe(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        backlog, two = spaces.Box(0, np.inf, (N_MACHINES,), np.float32), spaces.Box(0, 1, (2,), np.float32)
        return spaces.Dict({"backlog": backlog, "line": two, "may_run": two})

    def maze_to_space(self, maze_state: dict[str, Any]) -> dict[str, np.ndarray]:
        backlog, free = maze_state["backlog"].astype(np.float32) / 10, maze_state["free"]
        line = np.array([maze_state["price"], free / N_RUNNING], np.float32)
        return {"backlog": backlog, "line": line, "may_run": np.array([1, free > 0], np.float32)}


class Run(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"run": spaces.Discrete(2)})

    def space_to_maze(self, action: Any, maze_state: dict[str, Any]) -> int:
        return int(action["run"])

    @property
    def action_masks(self) -> dict[str, str]:
        return {"run": "may_run"}  # head -> observation that is 1 where it is allowed, else 0


def make_env() -> MazeEnv:
    return MazeEnv(PowerLineCoreEnv(), {"machine": Run()}, {"machine": Observe()})

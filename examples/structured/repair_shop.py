"""A repair shop, in two sub-steps: first pick one of the waiting jobs, then pick the tool for it."""

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import ActionConversionInterface, CoreEnv, MazeEnv, ObservationConversionInterface

N_WAITING = 4


class RepairShopCoreEnv(CoreEnv):
    def seed(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def new_job(self) -> dict[str, float]:
        kind, hours = self.random.integers([3, 6])  # the right tool, and how long the customer waits
        return {"kind": int(kind), "pay": self.random.uniform(1, 5), "hours": int(hours)}

    def reset(self) -> dict[str, Any]:
        self.jobs = [self.new_job() for _ in range(N_WAITING)]
        self.picked: dict[str, float] | None = None
        return self.get_maze_state()

    def get_maze_state(self) -> dict[str, Any]:
        return {"waiting": list(self.jobs), "picked": self.picked}

    @property
    def agent_counts_dict(self) -> dict[str, int]:
        return {"pick": 1, "tool": 1}

    def actor_id(self) -> ActorID:
        return ActorID("pick" if self.picked is None else "tool", 0)

    def step(self, maze_action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        if self.picked is None:  # the first sub-step: no time passes, nothing is earned yet
            self.picked = self.jobs.pop(maze_action)
            return self.get_maze_state(), 0.0, False, False, {}
        reward = self.picked["pay"] if maze_action == self.picked["kind"] else 0.0
        waiting = [{**job, "hours": job["hours"] - 1} for job in self.jobs if job["hours"]]
        self.jobs, self.picked = waiting + [self.new_job() for _ in range(N_WAITING - len(waiting))], None
        self.context.increment_env_step()  # an hour has passed
        return self.get_maze_state(), reward, False, False, {}

    def close(self) -> None:
        """There is nothing to close."""


class Observe(ObservationConversionInterface):
    def __init__(self, name: str, n_jobs: int) -> None:
        self.name, self.n_jobs = name, n_jobs

    def space(self) -> spaces.Dict:
        return spaces.Dict({self.name: spaces.Box(0, 1, (self.n_jobs, 5), np.float32)})

    def maze_to_space(self, maze_state: dict[str, Any]) -> dict[str, np.ndarray]:
        jobs = maze_state["waiting"] if self.name == "waiting" else [maze_state["picked"]]
        rows = [[*np.eye(3)[job["kind"]], job["pay"] / 5, job["hours"] / 5] for job in jobs]
        return {self.name: np.array(rows, np.float32)}


class Choose(ActionConversionInterface):
    def __init__(self, n: int) -> None:
        self.n = n

    def space(self) -> spaces.Dict:
        return spaces.Dict({"choice": spaces.Discrete(self.n)})

    def space_to_maze(self, action: Any, maze_state: dict[str, Any]) -> int:
        return int(action["choice"])


def make_env() -> MazeEnv:
    observations = {"pick": Observe("waiting", N_WAITING), "tool": Observe("picked", 1)}
    return MazeEnv(RepairShopCoreEnv(), {"pick": Choose(N_WAITING), "tool": Choose(3)}, observations)

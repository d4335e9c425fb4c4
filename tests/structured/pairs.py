"""Choosing two items of one kind in two sub-steps: the second choice depends on the first.

There are two items of each of some kinds, in some of `n_slots` slots, and each item has a value. The first actor
chooses an item and gets half of its value; the second one, who does not see values, gets 1 for the same kind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import ActionConversionInterface, CoreEnv, MazeEnv, ObservationConversionInterface

N_KINDS, EPISODE = 4, 5


class PairsCoreEnv(CoreEnv):
    def __init__(self, n_slots: int) -> None:
        super().__init__()
        self.n_slots = n_slots

    def seed(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def draw(self) -> None:
        n_pairs = int(self.random.integers(2, self.n_slots // 2 + 1))
        kinds = self.random.permutation(N_KINDS)[np.arange(n_pairs) % N_KINDS].repeat(2)
        slots = self.random.permutation(self.n_slots)[: 2 * n_pairs]
        self.items = np.zeros((self.n_slots, 2), np.float32)
        self.items[slots] = np.stack([kinds + 1, self.random.integers(0, 3, 2 * n_pairs)], 1)
        self.first: int | None = None

    def reset(self) -> dict[str, Any]:
        self.n_rounds = 0
        self.draw()
        return self.get_maze_state()

    def get_maze_state(self) -> dict[str, Any]:
        return {"items": self.items.copy(), "first": self.first}

    @property
    def agent_counts_dict(self) -> dict[str, int]:
        return {"first": 1, "second": 1}

    def actor_id(self) -> ActorID:
        return ActorID("first" if self.first is None else "second", 0)

    def step(self, maze_action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        kind, value = self.items[maze_action]
        if self.first is None:
            self.first = maze_action
            return self.get_maze_state(), float(value) / 2, False, False, {}
        reward = float(kind == self.items[self.first, 0])
        self.draw()
        self.n_rounds += 1
        self.context.increment_env_step()
        return self.get_maze_state(), reward, self.n_rounds == EPISODE, False, {}

    def close(self) -> None:
        """There is nothing to close."""


class Observe(ObservationConversionInterface):
    def __init__(self, n_slots: int, is_second: bool, hides_first: bool) -> None:
        self.n_slots, self.is_second, self.hides_first = n_slots, is_second, hides_first

    def space(self) -> spaces.Dict:
        seen: dict[str, spaces.Space[Any]] = {
            "items": spaces.Box(0, N_KINDS, (self.n_slots, 2), np.float32),
            "exists": spaces.Box(0, 1, (self.n_slots,), np.float32),
        }
        return spaces.Dict(seen | ({"first_item": spaces.Discrete(self.n_slots)} if self.is_second else {}))

    def maze_to_space(self, maze_state: dict[str, Any]) -> dict[str, Any]:
        exists = (maze_state["items"][:, 0] > 0).astype(np.float32)
        if not self.is_second:
            return {"items": maze_state["items"], "exists": exists}
        kinds = maze_state["items"] * np.array([1, 0], np.float32)
        first = 0 if self.hides_first else maze_state["first"]
        return {"items": kinds, "exists": exists, "first_item": first}


class Choose(ActionConversionInterface):
    def __init__(self, n_slots: int, head: str) -> None:
        self.n_slots, self.head = n_slots, head

    @property
    def action_masks(self) -> dict[str, str]:
        return {self.head: "exists"}

    def space(self) -> spaces.Dict:
        return spaces.Dict({self.head: spaces.Discrete(self.n_slots)})

    def space_to_maze(self, action: Any, maze_state: dict[str, Any]) -> int:
        return int(action[self.head])


def make_env(n_slots: int = 8, hides_first: bool = False) -> MazeEnv:
    actions = {"first": Choose(n_slots, "take"), "second": Choose(n_slots, "match")}
    observations = {"first": Observe(n_slots, False, False), "second": Observe(n_slots, True, hides_first)}
    return MazeEnv(PairsCoreEnv(n_slots), actions, observations)

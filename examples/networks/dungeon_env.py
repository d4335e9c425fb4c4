"""An environment with an image and a vector as observations, and two action heads."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])  # up, down, left, right


class DungeonEnv(gymnasium.Env[Any, Any]):
    """The agent must reach a treasure on an 8 x 8 map, and light torches of its inventory where it is dark.

    Each lit torch earns 0.1 per step in the dark and costs 0.1 in the light; the treasure is worth 1 and ends the
    episode. The screen shows the player in red, the treasure in green, and darkness in blue.
    """

    observation_space = spaces.Dict(
        {
            "observation_inventory": spaces.Box(0.0, 1.0, (16,)),
            "observation_screen": spaces.Box(0, 255, (3, 64, 64), np.uint8),
        }
    )
    action_space = spaces.Dict({"action_move": spaces.Discrete(4), "action_use": spaces.MultiBinary(16)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.player, self.treasure = self.np_random.integers(0, 8, (2, 2))
        self.inventory = self.np_random.integers(0, 2, 16).astype(np.float32)
        self.n_steps = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        dark = self.player[0] < 4
        reward = (0.1 if dark else -0.1) * float(self.inventory @ action["action_use"])
        self.player = np.clip(self.player + MOVES[action["action_move"]], 0, 7)
        self.n_steps += 1
        found = bool((self.player == self.treasure).all())
        return self.observe(), reward + found, found, self.n_steps == 20, {}

    def observe(self) -> dict[str, Any]:
        map_ = np.zeros((3, 8, 8), np.uint8)
        map_[(0, *self.player)] = map_[(1, *self.treasure)] = map_[2, :4] = 255
        return {"observation_inventory": self.inventory, "observation_screen": map_.repeat(8, 1).repeat(8, 2)}

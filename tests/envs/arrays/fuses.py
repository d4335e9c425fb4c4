"""A simulation with Dict spaces as a gymnasium environment, and as vector environments in each autoreset mode."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from maze_pl.core.policy import PolicyBatch, PolicyStep

OBSERVATIONS = spaces.Dict({"level": spaces.Box(0, 100, (1,), np.float32), "day": spaces.Discrete(20)})
ACTIONS = spaces.Dict({"push": spaces.Discrete(2, start=1), "turn": spaces.Box(-1, 1, (2,), np.float32)})
HIGHEST, LONGEST = 11, 7


class Fuse(gymnasium.Env[Any, Any]):
    """Level rises by 1 or 2 each day: the episode terminates from 11 on and is truncated after 7 days.

    Args:
        number: Half of the first level, unless it depends on the seed.
        uses_seed: Whether it does.
    """

    observation_space = OBSERVATIONS
    action_space = ACTIONS

    def __init__(self, number: int = 0, uses_seed: bool = False) -> None:
        self.number = number
        self.uses_seed = uses_seed

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.level = first_level(seed) if self.uses_seed else 2 * self.number
        self.day = 0
        return self.observation(), {}

    def observation(self) -> dict[str, Any]:
        return {"level": np.array([self.level], np.float32), "day": self.day}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.level += int(action["push"])
        self.day += 1
        reward = self.level / 2 + float(action["turn"].sum())
        return self.observation(), reward, self.level >= HIGHEST, self.day >= LONGEST, {}


def first_level(seed: Any) -> int:
    return 0 if seed is None else int(seed) % 4 * 2


class FuseVector(VectorEnv[Any, Any, Any]):
    """Fuses that overwrite the arrays which they returned; without seeds, the first level of fuse n is 2 n.

    Args:
        num_envs: Number of environments.
        mode: Declared autoreset mode, None to declare nothing.
        acts_as: Actual autoreset mode; the declared one if None.
        batched_finals: Whether final observations are given as one tree of arrays.
    """

    def __init__(
        self, num_envs: int, mode: Any = AutoresetMode.DISABLED, acts_as: Any = None, batched_finals: bool = False
    ) -> None:
        self.metadata = {} if mode is None else {"autoreset_mode": mode}
        self.mode = acts_as or mode
        self.batched_finals = batched_finals
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = OBSERVATIONS, ACTIONS
        self.observation_space = batch_space(OBSERVATIONS, num_envs)
        self.action_space = batch_space(ACTIONS, num_envs)
        self.level = np.zeros((num_envs, 1), np.float32)
        self.day = np.zeros(num_envs, np.int64)
        self.reward = np.zeros(num_envs)
        self.terminated = np.zeros(num_envs, np.bool_)
        self.truncated = np.zeros(num_envs, np.bool_)

    def start(self, rows: Any, seeds: Any = None) -> None:
        levels = range(0, 2 * self.num_envs, 2) if seeds is None else [first_level(seed) for seed in seeds]
        self.level[rows, 0] = np.array(levels)[rows]
        self.day[rows] = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        mask = np.ones(self.num_envs, np.bool_) if options is None else options.pop("reset_mask")
        self.start(mask, seed if isinstance(seed, list) else None)
        self.terminated[mask] = self.truncated[mask] = False
        return self.observation(), {}

    def observation(self) -> dict[str, Any]:
        return {"level": self.level, "day": self.day}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        assert self.action_space.contains(actions)
        infos: dict[str, Any] = {}
        before = self.terminated | self.truncated
        assert self.mode is not AutoresetMode.DISABLED or not before.any()
        self.level += actions["push"][:, np.newaxis]
        self.day += 1
        self.reward[:] = self.level[:, 0] / 2 + [float(turn.sum()) for turn in actions["turn"]]
        self.terminated[:] = self.level[:, 0] >= HIGHEST
        self.truncated[:] = self.day >= LONGEST
        if self.mode is AutoresetMode.NEXT_STEP:
            self.start(before)
            self.reward[before] = 0
            self.terminated[before] = self.truncated[before] = False
        ends = self.terminated | self.truncated
        if self.mode is AutoresetMode.SAME_STEP:
            if ends.any():
                finals: Any = {"level": self.level.copy(), "day": self.day.copy()}
                if not self.batched_finals:
                    finals = np.array([{"level": self.level[n].copy(), "day": self.day[n]} for n in range(len(ends))])
                infos = {"final_obs": finals, "_final_obs": ends.copy(), "final_info": {}}
            self.start(ends)
            result = (self.observation(), self.reward, self.terminated.copy(), self.truncated.copy(), infos)
            self.terminated[:] = self.truncated[:] = False
            return result
        return self.observation(), self.reward, self.terminated, self.truncated, infos


class FusePolicy:
    """Acts as the observation says, so that equal observations give equal actions."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        level, day = np.nan_to_num(batch.observation["level"][:, 0]), batch.observation["day"]
        turn = np.stack([np.sin(level + day), np.cos(level - day)], -1).astype(np.float32)
        return PolicyStep({"push": 1 + ((level + day) % 5 >= 3), "turn": turn})

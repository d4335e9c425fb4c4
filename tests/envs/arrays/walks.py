"""Walks whose steps are paid a price, in both forms, and wrappers that raise the price during training."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.envs import GymMazeEnv, StructuredEnv, Wrapper
from maze_pl.envs.arrays import ArrayEnv, ArrayStep, ArrayWrapper, RandomStreams

N_STEPS = 10
STEPS_OF_A_LEVEL = 20


class Walk(gymnasium.Env[Any, Any]):
    """Steps to the left or to the right on a line; each is paid the price."""

    observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.price = 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(100)), 0
        return np.array([self.place, self.time], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 2 * int(action) - 1
        self.time += 1
        reward = self.price * (2.0 if action else 1.0)
        return np.array([self.place, self.time], np.float32), reward, False, self.time >= N_STEPS, {}


def make_walk() -> GymMazeEnv:
    return GymMazeEnv(Walk())


class WalkArrayEnv(ArrayEnv):
    """The same in arrays; prices may differ."""

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"observation": Walk.observation_space})}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"action": spaces.Discrete(2)})}

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.place, self.time = np.zeros(n_envs, np.int64), np.zeros(n_envs, np.int64)
        self.prices = np.ones(n_envs)
        self.random = RandomStreams(np.zeros(n_envs, np.int64))

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        self.random.seed(seeds, which)
        self.place[which] = self.random.integers(100, which=which)
        self.time[which] = 0
        return ArrayStep(self._observations())

    def step(self, actions: Any, which: Any) -> ArrayStep:
        action = actions[0]["action"]
        self.place[which] += 2 * action[which] - 1
        self.time[which] += 1
        reward = self.prices * np.where(action == 1, 2.0, 1.0)
        return ArrayStep(self._observations(), reward, truncated=self.time == N_STEPS)

    def _observations(self) -> dict[int, dict[str, Any]]:
        return {0: {"observation": np.stack([self.place, self.time], axis=1).astype(np.float32)}}


def price_after(n_steps: int) -> float:
    """Price of episodes that start when all copies have taken some steps."""
    return 1.0 + n_steps // STEPS_OF_A_LEVEL


class PriceWrapper(Wrapper):
    """Raises the price with the number of steps that all copies have taken in training."""

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        self.merged = self.added = 0
        self.is_frozen = False

    def set_price(self, price: float) -> None:
        """Set the price of a walk."""
        simulation = self.env.core_env.env.unwrapped
        if isinstance(simulation, WalkArrayEnv):
            simulation.prices[:] = price
        else:
            simulation.price = price

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.set_price(price_after(self.merged))
        return self.env.reset(seed=seed, options=options)

    def step_in_parts(self, action: Any) -> Generator[Any, Any, Any]:
        self.added += not self.is_frozen
        return (yield action)

    def shared_state(self) -> dict[str, Any]:
        return {"merged": self.merged, "added": self.added}

    @classmethod
    def merge_shared_states(cls, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"merged": states[0]["merged"] + sum(state["added"] for state in states), "added": 0}

    @classmethod
    def rebase_shared_state(cls, state: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
        return {"merged": current["merged"], "added": state["added"]}

    def load_shared_state(self, state: dict[str, Any]) -> None:
        self.merged, self.added = state["merged"], state["added"]

    def freeze(self) -> None:
        self.is_frozen = True

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        return PriceArrayWrapper(env)


class PriceOfSimulationWrapper(PriceWrapper):
    """Knows only the form for single episodes, and sets the price as an attribute of an object.

    Args:
        env: The environment.
        owner: Object that has the price: `core_env`, the environment of maze_pl, or what is in it.
    """

    def __init__(self, env: StructuredEnv, owner: str = "core_env") -> None:
        super().__init__(env)
        self.owner = owner

    def set_price(self, price: float) -> None:
        core_env = self.env.core_env
        if isinstance(core_env.env.unwrapped, Walk):
            core_env.env.unwrapped.price = price
        else:
            owners = {"core_env": core_env, "environment": self.unwrapped, "inside": core_env.env.unwrapped}
            owners[self.owner].price = price

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        return PriceArrayWrapper(env)


class PriceArrayWrapper(ArrayWrapper):
    """Raises the prices with the number of steps that all copies have taken in training."""

    def __init__(self, env: ArrayEnv) -> None:
        super().__init__(env)
        self.is_frozen = False

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.merged, self.added = np.zeros(1, np.int64), np.zeros(n_envs, np.int64)

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        env: Any = self.env.unwrapped
        env.prices[which] = price_after(int(self.merged[0]))
        return super().reset(which, seeds)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.added[which] += not self.is_frozen
        return super().step(actions, which)

    def shared_states(self) -> list[dict[str, Any]]:
        return [{"merged": int(self.merged[0]), "added": int(added)} for added in self.added]

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        self.merged[0], self.added[:] = state["merged"], state["added"]

    def freeze(self) -> None:
        self.is_frozen = True

"""Small problems whose best decisions are known by trying all of them."""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import (
    ActionConversionInterface,
    CoreEnv,
    MazeEnv,
    ObservationConversionInterface,
    take_over,
)

N_STEPS = 2
N_ACTIONS = 3


class _Choice(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"choice": spaces.Discrete(N_ACTIONS)})

    def space_to_maze(self, action: Any, maze_state: Any) -> int:
        return int(action["choice"])

    @property
    def action_masks(self) -> dict[str, str]:
        return {"choice": "allowed"}


class _History(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict(
            {
                "history": spaces.Box(-1, N_ACTIONS, (2 * N_STEPS,), np.float32),
                "allowed": spaces.MultiBinary(N_ACTIONS),
            }
        )

    def maze_to_space(self, maze_state: Any) -> dict[str, Any]:
        history = np.full(2 * N_STEPS, -1, np.float32)
        history[: len(maze_state)] = maze_state
        allowed = np.ones(N_ACTIONS, np.int8)
        if len(maze_state) % 2:
            allowed[maze_state[-1]] = 0  # not the same choice as that before it
        return {"history": history, "allowed": allowed}


class TableCore(CoreEnv):
    """Rewards of every sequence of choices, drawn from a seed; two sub-steps make an environment step."""

    def __init__(self, table_seed: int = 0) -> None:
        super().__init__()
        self.table_seed = table_seed
        self.history: list[int] = []

    def reward_of(self, history: list[int]) -> float:
        return float(np.random.default_rng([self.table_seed, *history]).integers(10))

    def step(self, maze_action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.history.append(maze_action)
        if len(self.history) % 2 == 0:
            self.context.increment_env_step()
        is_over = len(self.history) == 2 * N_STEPS
        return list(self.history), self.reward_of(self.history), is_over, False, {}

    def reset(self) -> Any:
        self.history = []
        return []

    def seed(self, seed: int) -> None:
        self.rng_seed = seed

    def close(self) -> None:
        self.is_closed = True

    def get_maze_state(self) -> Any:
        return list(self.history)

    def actor_id(self) -> ActorID:
        return ActorID(len(self.history) % 2, 0)

    @property
    def agent_counts_dict(self) -> dict[Any, int]:
        return {0: 1, 1: 1}

    def clone_from(self, env: Any) -> None:
        take_over(self, env)


def table_env(table_seed: int = 0) -> MazeEnv:
    actions, observations = {0: _Choice(), 1: _Choice()}, {0: _History(), 1: _History()}
    return MazeEnv(TableCore(table_seed), actions, observations)


def best_total(table_seed: int) -> float:
    """The largest return of all allowed sequences, by trying all of them."""
    core = TableCore(table_seed)
    totals = []
    for choices in product(range(N_ACTIONS), repeat=2 * N_STEPS):
        if any(choices[place] == choices[place + 1] for place in range(0, 2 * N_STEPS, 2)):
            continue
        totals.append(sum(core.reward_of(list(choices[: n + 1])) for n in range(2 * N_STEPS)))
    return max(totals)


class CoinCore(CoreEnv):
    """A guess of a coin that falls afterwards, ten times.

    The coin is drawn when it falls or, if it is drawn early, with the coins of the whole episode in its reset.
    """

    def __init__(self, is_early: bool) -> None:
        super().__init__()
        self.is_early = is_early
        self.generator = np.random.default_rng(0)
        self.coins: list[int] = []
        self.n_steps = 0

    def _draw(self) -> None:
        self.coins = self.coins[: self.n_steps] + self.generator.integers(2, size=10 - self.n_steps).tolist()

    def step(self, maze_action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        coin = self.coins[self.n_steps] if self.is_early else int(self.generator.integers(2))
        self.n_steps += 1
        return self.n_steps, float(coin == maze_action), self.n_steps == 10, False, {}

    def reset(self) -> Any:
        self.n_steps = 0
        self._draw()
        return 0

    def seed(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def reseed(self, seed: int) -> None:
        self.seed(seed)
        self._draw()

    def close(self) -> None:
        self.is_closed = True

    def get_maze_state(self) -> Any:
        return self.n_steps

    def clone_from(self, env: Any) -> None:
        take_over(self, env)


class _Guess(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"guess": spaces.Discrete(2)})

    def space_to_maze(self, action: Any, maze_state: Any) -> int:
        return int(action["guess"])


class _Count(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"count": spaces.Box(0, 10, (1,), np.float32)})

    def maze_to_space(self, maze_state: Any) -> dict[str, Any]:
        return {"count": np.array([maze_state], np.float32)}


def coin_env(is_early: bool = False) -> MazeEnv:
    return MazeEnv(CoinCore(is_early), {0: _Guess()}, {0: _Count()})


class TurnsCore(CoreEnv):
    """Chance decides after each act which of two sub-steps is next; the second one has fewer options.

    Its observations may be named like those of the first one, and are all equal.
    """

    N_OPTIONS: ClassVar[dict[str, int]] = {"many": 4, "few": 2}

    def __init__(self) -> None:
        super().__init__()
        self.seed(0)
        self.reset()

    def step(self, maze_action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if maze_action >= self.N_OPTIONS[self.key]:
            raise ValueError(f"{self.key} has no option {maze_action}")
        self.key = ("many", "few")[self.generator.integers(2)]
        self.n_steps += 1
        self.context.increment_env_step()
        return self.key, float(maze_action == 1), self.n_steps == 6, False, {}

    def reset(self) -> Any:
        self.key, self.n_steps = "many", 0
        return self.key

    def seed(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def close(self) -> None:
        """There is nothing to close."""

    def get_maze_state(self) -> Any:
        return self.key

    def actor_id(self) -> ActorID:
        return ActorID(self.key, 0)

    @property
    def agent_counts_dict(self) -> dict[Any, int]:
        return dict.fromkeys(self.N_OPTIONS, 1)

    def clone_from(self, env: Any) -> None:
        take_over(self, env)


class _Option(ActionConversionInterface):
    def __init__(self, n: int) -> None:
        self.n = n

    def space(self) -> spaces.Dict:
        return spaces.Dict({"choice": spaces.Discrete(self.n)})

    def space_to_maze(self, action: Any, maze_state: Any) -> int:
        return int(action["choice"])


class _Nothing(ObservationConversionInterface):
    def __init__(self, name: str) -> None:
        self.name = name

    def space(self) -> spaces.Dict:
        return spaces.Dict({self.name: spaces.Box(0, 1, (1,), np.float32)})

    def maze_to_space(self, maze_state: Any) -> dict[str, Any]:
        return {self.name: np.zeros(1, np.float32)}


def turns_env(name: str = "nothing") -> MazeEnv:
    """An environment whose second sub-step has an observation of a given name; the first one's is `nothing`."""
    actions = {key: _Option(n) for key, n in TurnsCore.N_OPTIONS.items()}
    return MazeEnv(TurnsCore(), actions, {"many": _Nothing("nothing"), "few": _Nothing(name)})


class ForemanCore(CoreEnv):
    """A foreman chooses who works; one worker earns 0.5 for itself, the other one 1 for the foreman."""

    def __init__(self, is_attributed: bool) -> None:
        super().__init__()
        self.is_attributed = is_attributed
        self.reset()

    def step(self, maze_action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.key == "foreman":
            self.key = ("selfish", "generous")[maze_action]
            return self.key, 0.0, False, False, {}
        self.rewards = np.array([0.0, 0.5] if self.key == "selfish" else [1.0, 0.0])
        self.key = "foreman"
        self.n_steps += 1
        self.context.increment_env_step()
        return self.key, float(self.rewards.sum()), self.n_steps == 3, False, {}

    def reset(self) -> Any:
        self.key, self.n_steps, self.rewards = "foreman", 0, np.zeros(2)
        return self.key

    def seed(self, seed: int) -> None:
        """Nothing is random."""

    def close(self) -> None:
        """There is nothing to close."""

    def get_maze_state(self) -> Any:
        return self.key

    def get_actor_rewards(self) -> Any:
        return self.rewards if self.is_attributed else None

    def actor_id(self) -> ActorID:
        return ActorID(self.key, 0)

    @property
    def agent_counts_dict(self) -> dict[Any, int]:
        return dict.fromkeys(("foreman", "selfish", "generous"), 1)

    def clone_from(self, env: Any) -> None:
        take_over(self, env)


def foreman_env(is_attributed: bool) -> MazeEnv:
    core = ForemanCore(is_attributed)
    keys = list(core.agent_counts_dict)
    return MazeEnv(core, {key: _Option(2) for key in keys}, {key: _Nothing("nothing") for key in keys})

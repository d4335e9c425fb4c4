"""Copies of environments of other libraries do not see the true future, wherever their random numbers come from."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

from maze_pl import rollout
from maze_pl.envs import GymMazeEnv, PettingZooMazeEnv
from maze_pl.envs.reseeding import reseed_layers

N_COINS = 20
KINDS = ["np_random", "own", "state", "module", "list", "dict", "space", "shared", "method"]


class Coin:
    """A coin whose falls come from one kind of source of random numbers."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def seed_coin(self, seed: int | None, np_random: np.random.Generator) -> None:
        """Make the source."""
        if self.kind == "own":
            self.rng: Any = np.random.default_rng(seed)
        elif self.kind == "state":
            self.rng = np.random.RandomState(seed)
        elif self.kind == "module":
            self.rng = random.Random(seed)
        elif self.kind == "list":
            self.rngs: Any = [np.random.default_rng(seed)]
        elif self.kind == "dict":
            self.rngs = {"coin": np.random.Generator(np.random.Philox(seed))}
        elif self.kind == "space":
            self.coins = spaces.Discrete(2, seed=seed)
        elif self.kind == "shared":
            self.deck = SimpleNamespace(rng=np_random)
        elif self.kind == "method":
            self.drawn = np.random.default_rng(seed).integers(2, size=N_COINS).tolist()

    def toss(self, np_random: np.random.Generator) -> int:
        if self.kind == "own":
            return int(self.rng.integers(2))
        if self.kind == "state":
            return int(self.rng.randint(2))
        if self.kind == "module":
            return int(self.rng.randrange(2))
        if self.kind in ("list", "dict"):
            return int(self.rngs[0 if self.kind == "list" else "coin"].integers(2))
        if self.kind == "space":
            return int(self.coins.sample())
        if self.kind == "shared":
            return int(self.deck.rng.integers(2))
        return int(self.drawn.pop()) if self.kind == "method" else int(np_random.integers(2))

    def redraw(self, seed: int) -> None:
        """Draw the coins that have not fallen again."""
        self.drawn = np.random.default_rng(seed).integers(2, size=len(self.drawn)).tolist()


class GymCoin(Coin, gymnasium.Env[Any, Any]):
    """Guess a coin that falls afterwards."""

    observation_space = spaces.Box(0, N_COINS, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seed_coin(seed, self.np_random)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.time += 1
        right = float(action == self.toss(self.np_random))
        return np.full(1, self.time, np.float32), right, False, self.time == N_COINS, {}


class RedrawnGymCoin(GymCoin):
    """Draws its future again by itself."""

    def reseed(self, seed: int) -> None:
        self.redraw(seed)


class CoinOfWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Tosses another coin, from a generator that it keeps."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.rng = np.random.default_rng(seed)
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float(action == self.rng.integers(2)), *rest


class ParallelCoin(Coin, ParallelEnv[str, Any, Any]):
    """Two agents guess the same coin."""

    metadata = {"name": "coin"}  # noqa: RUF012
    render_mode = None
    possible_agents = ["a_0", "a_1"]  # noqa: RUF012

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, N_COINS, (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        generator = np.random.default_rng(seed)
        if self.kind in ("np_random", "shared"):
            self.np_random = generator
        self.seed_coin(seed, generator)
        self.agents, self.time = self.possible_agents[:], 0
        return self._of_agents(np.zeros(1, np.float32)), self._of_agents({})

    def step(self, actions: dict[str, int]) -> Any:
        self.time += 1
        coin = self.toss(vars(self).get("np_random", np.random.default_rng(0)))
        rewards = {agent: float(actions[agent] == coin) for agent in self.agents}
        seen = self._of_agents(np.full(1, self.time, np.float32))
        result = seen, rewards, self._of_agents(False), self._of_agents(self.time == N_COINS), self._of_agents({})
        if self.time == N_COINS:
            self.agents = []
        return result

    def _of_agents(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.agents, value)


class RedrawnParallelCoin(ParallelCoin):
    """Draws its future again by itself."""

    def reseed(self, seed: int) -> None:
        self.redraw(seed)


def gym_coin(kind: str) -> Any:
    if kind == "wrapper":
        return GymMazeEnv(CoinOfWrapper(GymCoin("np_random")))
    return GymMazeEnv((RedrawnGymCoin if kind == "method" else GymCoin)(kind))


def parallel_coin(kind: str) -> Any:
    return PettingZooMazeEnv((RedrawnParallelCoin if kind == "method" else ParallelCoin)(kind), team_reward=True)


def tosses(env: Any, n: int = N_COINS) -> list[float]:
    """Return the rewards of always guessing 1."""
    return [env.step({"action": 1})[1] for _ in range(n)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "n_acts"),
    [(partial(gym_coin, kind), 1) for kind in [*KINDS, "wrapper"]]
    + [(partial(parallel_coin, kind), 2) for kind in KINDS],
    ids=lambda value: f"{value.func.__name__}: {value.args[0]}" if isinstance(value, partial) else "",
)
def test_a_reseeded_copy_has_a_future_that_its_seed_determines(make: Callable[[], Any], n_acts: int) -> None:
    futures = []
    original = make()
    original.reset(seed=1)
    tosses(original, 5 * n_acts)
    for seed in (7, 8, 7):
        copy = make()
        copy.clone_from(original)
        copy.reseed(seed)
        futures.append(tosses(copy, 15 * n_acts))
    true = tosses(original, 15 * n_acts)
    again = make()
    again.reset(seed=1)
    assert tosses(again, 20 * n_acts)[5 * n_acts :] == true, "copies do not disturb the original"
    assert futures[0] == futures[2]
    assert len({tuple(future) for future in [*futures, true]}) == 3, "all futures differ, also from the true one"


@pytest.mark.parametrize("kind", ["own", "shared"])
def test_no_search_foresees_the_coin_of_a_gymnasium_environment(kind: str) -> None:
    played = rollout(partial(gym_coin, kind), "random", episodes=8, seed=1, search="best_of:32", record=())
    mean = np.mean([one.summary.reward for one in played]) / N_COINS
    assert abs(mean - 0.5) < 4 * 0.5 / np.sqrt(8 * N_COINS), f"{mean} of the guesses are right"


def test_generators_start_as_new_ones_do_and_stay_the_same_objects() -> None:
    generator, legacy, module = np.random.default_rng(1), np.random.RandomState(1), random.Random(1)
    legacy.normal()  # keeps the second one of a pair
    layer = SimpleNamespace(np_random=generator, legacy=legacy, module=module, number=3, name="layer", nothing=None)
    held = dict(vars(layer))
    reseed_layers([layer], 5)
    assert vars(layer) == held
    assert generator.random() == np.random.default_rng(5).random()
    first = legacy.normal(), module.random()
    reseed_layers([layer], 5)
    assert (legacy.normal(), module.random()) == first
    reseed_layers([layer], 6)
    assert legacy.normal() != first[0] and module.random() != first[1]

"""Copies of array environments for search: the future is drawn again, the past stays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl import rollout
from maze_pl.envs import ArrayEnv, ArrayStep, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv, ArrayWrapper, RandomStreams
from maze_pl.envs.multi_echelon_stock import StockArrayEnvironment, StockChain
from maze_pl.envs.ride_hailing import RideHailingArrayEnvironment
from maze_pl.envs.vehicle_routing import VehicleRoutingArrayEnvironment
from tests.envs.multi_echelon_stock.chains import DRIFTING
from tests.envs.ride_hailing.small import SHORT

N_STEPS = 20


SEES = {0: spaces.Dict({"time": spaces.Box(0, 100, (1,), np.float32)})}
ACTS = {0: spaces.Dict({"guess": spaces.Discrete(2), "other": spaces.Discrete(2)})}


class Coins(ArrayEnv):
    """Guess a coin that is drawn after the guess."""

    observation_spaces_dict = SEES
    action_spaces_dict = ACTS

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.time = np.zeros(n_envs, np.int64)
        self.coins = RandomStreams(np.zeros(n_envs, np.int64))
        self.others = RandomStreams(np.zeros(n_envs, np.int64))

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        self.coins.seed(seeds, which)
        self.others.seed(seeds, which)
        self.time[which] = 0
        return ArrayStep(self.observation())

    def observation(self) -> dict[Any, Any]:
        return {0: {"time": self.time[:, None].astype(np.float32)}}

    def step(self, actions: Any, which: Any) -> ArrayStep:
        envs = self.numbers_of(which)
        self.time[envs] += 1
        reward = np.zeros(self.n_envs)
        reward[envs] = actions[0]["guess"][envs] == self.coins.integers(2, which=envs)
        return ArrayStep(self.observation(), reward, None, self.time >= N_STEPS)


class Deck(Coins):
    """The coins were drawn at the start."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.drawn = np.zeros((n_envs, N_STEPS), np.int64)

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        result = super().reset(which, seeds)
        self.drawn[which] = self.coins.integers(2, size=N_STEPS, which=which)
        return result

    def reseed(self, which: Any, seeds: Any) -> None:
        self.coins.seed(seeds, which)
        others = self.coins.integers(2, size=N_STEPS, which=which)
        is_known = np.arange(N_STEPS) < self.time[which, np.newaxis]
        self.drawn[which] = np.where(is_known, self.drawn[which], others)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        envs = self.numbers_of(which)
        coins = self.drawn[envs, self.time[envs]]
        self.time[envs] += 1
        reward = np.zeros(self.n_envs)
        reward[envs] = actions[0]["guess"][envs] == coins
        return ArrayStep(self.observation(), reward, None, self.time >= N_STEPS)


class Shaken(ArrayWrapper):
    """A wrapper with random numbers."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.shakes = RandomStreams(np.zeros(n_envs, np.int64))


def begun(make: Callable[[], ArrayEnv], n_acts: int = 3) -> tuple[ArrayMazeEnv, ArrayMazeEnv]:
    """An environment after some acts, and a copy of it that was reseeded."""
    env, copy = ArrayMazeEnv(make()), ArrayMazeEnv(make())
    env.reset(seed=7)
    copy.reset(seed=8)
    for act in range(n_acts):
        env.step(action_of(env, act))
    copy.clone_from(env)
    copy.reseed(11)
    return env, copy


def action_of(env: ArrayMazeEnv, act: int) -> dict[str, Any]:
    """An action in the middle of its space."""
    action: dict[str, Any] = {}
    for head, space in env.action_space.spaces.items():
        action[head] = act % 2 if isinstance(space, spaces.Discrete) else np.full(space.shape, 0.1, space.dtype)
    return action


def rewards(env: ArrayMazeEnv, n_acts: int) -> list[float]:
    """Rewards of further acts."""
    found = []
    for act in range(n_acts):
        _, reward, terminated, truncated, _ = env.step(action_of(env, act))
        found.append(reward)
        if terminated or truncated:
            break
    return found


def arrays_of(state: Any, prefix: str = "") -> dict[str, Any]:
    """Arrays of a state, by name, without those of random streams."""
    found = {}
    for name, value in state.items():
        if isinstance(value, dict):
            if "env" in name:
                found |= arrays_of(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = np.asarray(value)
    return found


@pytest.mark.parametrize("make", [Coins, Deck])
@pytest.mark.parametrize("search", ["lookahead:random:16:horizon=1", "best_of:16"])
def test_search_does_not_see_the_coins_that_will_fall(make: Callable[[], ArrayEnv], search: str) -> None:
    played = rollout(make, "random", episodes=10, seed=0, search=search)
    assert 6 < np.mean([one.summary.reward for one in played]) < 14


ENVS: dict[str, Callable[[], ArrayEnv]] = {
    "coins": Coins,
    "wrapped coins": lambda: Shaken(Coins()),
    "stock": lambda: StockArrayEnvironment(StockChain(**DRIFTING)),
    "structured stock": lambda: StockArrayEnvironment(StockChain(**DRIFTING), structured=True),
    "ride hailing": partial(RideHailingArrayEnvironment, **SHORT),
}


@pytest.mark.parametrize("name", ENVS)
def test_a_reseeded_copy_keeps_its_state_and_has_another_future(name: str) -> None:
    env, copy = begun(ENVS[name])
    kept = arrays_of(env.array_env.state_dict())
    assert kept
    for part, values in arrays_of(copy.array_env.state_dict()).items():
        np.testing.assert_array_equal(values, kept[part], part)
    same = ArrayMazeEnv(ENVS[name]())
    same.reset(seed=1)
    same.clone_from(env)
    expected, other = rewards(env, 40), rewards(copy, 40)
    assert rewards(same, 40) == expected
    assert other != expected
    assert rewards(begun(ENVS[name])[1], 40) == other


@pytest.mark.parametrize(
    "make", [CartPoleArrayEnv, partial(VehicleRoutingArrayEnvironment, ["random(8, capacity=20)"])]
)
def test_an_environment_without_chance_goes_on_as_before(make: Callable[[], ArrayEnv]) -> None:
    env, copy = begun(make)
    assert rewards(copy, 5) == rewards(env, 5)


def test_each_stream_of_an_environment_and_of_its_wrappers_gets_a_seed() -> None:
    env, copy = begun(lambda: Shaken(Coins()))
    wrapper: Any = copy.array_env
    streams = [wrapper.env.coins, wrapper.env.others, wrapper.shakes]
    drawn = [tuple(one.integers(2**40, size=3)[0].tolist()) for one in streams]
    original: Any = env.array_env
    drawn += [tuple(one.integers(2**40, size=3)[0].tolist()) for one in (original.env.coins, original.shakes)]
    assert len(set(drawn)) == 5


def test_a_deck_is_shuffled_again_except_for_what_was_seen() -> None:
    env, copy = begun(Deck)
    original: Any = env.array_env
    other: Any = copy.array_env
    assert other.drawn[0, :3].tolist() == original.drawn[0, :3].tolist()
    assert other.drawn[0, 3:].tolist() != original.drawn[0, 3:].tolist()

"""Stepping gymnasium's environments past the layers around them gives what stepping through all layers gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.core.episode import EpisodeSummary
from maze_pl.envs import GymMazeEnv, Wrapper
from maze_pl.envs.vector import SequentialVectorEnv, StepExtras
from maze_pl.envs.wrappers import LogStatsWrapper
from maze_pl.events import BaseEnvEvents, EventRecord, RewardEvents, Subscriber

ACTION_SPACES = {
    "discrete": spaces.Discrete(3),
    "discrete from 2": spaces.Discrete(3, start=2),
    "multi-discrete": spaces.MultiDiscrete([2, 5]),
    "multi-binary": spaces.MultiBinary(3),
    "box": spaces.Box(-0.5, 0.5, (2,), np.float32),
    "box without dimensions": spaces.Box(-1, 1, (), np.float32),
}
OBSERVATION_SPACES = {
    "box": spaces.Box(-9, 9, (2,), np.float32),
    "discrete": spaces.Discrete(50),
}


class Whimsical(gymnasium.Env[Any, Any]):
    """Random observations, rewards of several types and ends of both kinds; spoils the actions that it was given."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.given: list[Any] = []

    def _observe(self) -> Any:
        numbers = self.np_random.normal(size=2), int(self.np_random.integers(50))
        return numbers[isinstance(self.observation_space, spaces.Discrete)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        for old in self.given:
            if isinstance(old, np.ndarray):
                old *= 0
        self.given = [action]
        kind = (float, np.float32, np.float64, int)[self.np_random.integers(4)]
        flags = self.np_random.random(2) < 0.15
        return self._observe(), kind(self.np_random.normal() * 9), bool(flags[0]), flags[1], {}


class Transparent(Wrapper):
    """Changes nothing, but is in the way."""


def vectors_of(make: Callable[[], GymMazeEnv], n_envs: int, **options: Any) -> list[SequentialVectorEnv]:
    plain = SequentialVectorEnv([make] * n_envs, seed=3, **options)
    layered = SequentialVectorEnv([lambda: Transparent.wrap(make())] * n_envs, seed=3, **options)
    assert plain._plain is not None
    assert layered._plain is None
    return [plain, layered]


def assert_same_array(one: Any, other: Any) -> None:
    assert np.asarray(one).dtype == np.asarray(other).dtype
    np.testing.assert_array_equal(one, other)


def assert_same_summaries(one: list[EpisodeSummary], other: list[EpisodeSummary]) -> None:
    assert len(one) == len(other)
    for x, y in zip(one, other, strict=True):
        for name in ("env_steps", "reward", "kpis", "env_index", "episode_index"):
            assert getattr(x, name) == getattr(y, name), name
        assert x.statistics.keys() == y.statistics.keys()
        for key, value in x.statistics.items():
            assert_same_array(value, y.statistics[key])


def assert_same_finals(one: StepExtras, other: StepExtras) -> None:
    for x, y in zip(one.finals, other.finals, strict=True):
        assert (x.envs.tolist(), x.key, x.agent_ids.tolist()) == (y.envs.tolist(), y.key, y.agent_ids.tolist())
        assert x.observation.keys() == y.observation.keys()
        for name, value in x.observation.items():
            assert_same_array(value, y.observation[name])


@pytest.mark.parametrize("observation", OBSERVATION_SPACES)
@pytest.mark.parametrize("action", ACTION_SPACES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**20), n_envs=st.integers(1, 3), some=st.booleans(), autoreset=st.booleans())
def test_plain_environments_give_what_wrapped_ones_give(
    observation: str, action: str, seed: int, n_envs: int, some: bool, autoreset: bool
) -> None:
    def make() -> GymMazeEnv:
        return GymMazeEnv(Whimsical(OBSERVATION_SPACES[observation], ACTION_SPACES[action]))

    plain, layered = vectors_of(make, n_envs, autoreset=autoreset)
    generator = np.random.default_rng(seed)
    action_space = plain.spec.steps[0].action_space
    action_space.seed(seed)
    for vector in (plain, layered):
        vector.reset()
    for _ in range(25):
        chosen = (
            sorted(generator.choice(n_envs, generator.integers(1, n_envs + 1), replace=False).tolist())
            if some
            else None
        )
        for n in range(n_envs):
            for head, value in action_space.sample().items():
                for vector in (plain, layered):
                    vector.staging.action[0][head][n] = value
        assert_same_finals(plain.step(chosen), layered.step(chosen))
        stepped = range(n_envs) if chosen is None else chosen
        for name in ("reward", "terminated", "truncated", "env_steps", "next_key", "next_agent"):
            one, other = (getattr(vector.staging, name)[list(stepped)] for vector in (plain, layered))
            assert_same_array(one, other)
        for name, rows in plain.staging.observation[0].items():
            assert_same_array(rows, layered.staging.observation[0][name])
        if not autoreset:
            ended = [n for n in stepped if plain.staging.terminated[n] or plain.staging.truncated[n]]
            for vector in (plain, layered):
                vector.reset(ended, [7] * len(ended))
    assert_same_summaries(plain.drain_summaries(), layered.drain_summaries())


class Ear(Subscriber):
    def get_interfaces(self) -> list[type]:
        return [BaseEnvEvents]


class Chatty(GymMazeEnv):
    """Another class may do anything."""


class Listening(LogStatsWrapper):
    """Another class may want every event."""


def with_subscriber() -> GymMazeEnv:
    env = GymMazeEnv("CartPole-v1")
    env.pubsub.register_subscriber(Ear())
    return env


def with_topic() -> GymMazeEnv:
    env = GymMazeEnv("CartPole-v1")
    env.pubsub.create_event_topic(RewardEvents)
    return env


@pytest.mark.parametrize(
    "make",
    [
        lambda: Chatty("CartPole-v1"),
        lambda: Listening(GymMazeEnv("CartPole-v1")),
        with_subscriber,
        with_topic,
    ],
)
def test_environments_of_which_somebody_may_want_more_go_through_all_layers(make: Callable[[], Any]) -> None:
    vector = SequentialVectorEnv([make])
    vector.reset()
    vector.step()
    assert vector._plain is None
    assert vector.envs[0].get_env_time() == 1
    (record,) = vector.envs[0].get_step_events()
    assert isinstance(record, EventRecord)
    assert record.event is BaseEnvEvents.reward


def test_a_plain_environment_refuses_a_step_before_a_reset() -> None:
    vector = SequentialVectorEnv([lambda: GymMazeEnv("CartPole-v1")])
    with pytest.raises(gymnasium.error.ResetNeeded, match="before reset"):
        vector.step()

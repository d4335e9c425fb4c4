"""Native vector environments give true transitions and the statistics of all others, whenever they reset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from maze_pl.collect.collector import Collector
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.policy import PolicyBatch, PolicyStep, RandomPolicy
from maze_pl.core.rollout import Rollout
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.vector import NativeVectorEnv, SequentialVectorEnv, VectorEnv
from tests.envs.vector.test_plain_gym import assert_same_summaries
from tests.envs.vector.test_vector_env import assert_equal

BOX = spaces.Box(-np.inf, np.inf, (2,), np.float64)
ACTIONS = {
    "discrete": spaces.Discrete(5),
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "dict": spaces.Dict({"a": spaces.Discrete(4), "b": spaces.Box(-1, 1, (), np.float32), "c": spaces.MultiBinary(2)}),
}


def length_of(episode: int) -> int:
    return 1 + (5 * episode) % 8


def reward_of(episode: int, step: int, action: Any) -> float:
    total = sum(np.sum(part) for part in action.values()) if isinstance(action, dict) else np.sum(action)
    return 100.0 * episode + step + float(total)


class Counting(gymnasium.Env[Any, Any]):
    """Shows its episode and step; episodes have known lengths and end in turns by termination and truncation."""

    def __init__(self, action_space: spaces.Space[Any], as_dict: bool, first_episode: int) -> None:
        self.as_dict, self.episode, self.at = as_dict, first_episode - 1, 0
        self.observation_space = spaces.Dict({"x": BOX, "y": spaces.Discrete(99)}) if as_dict else BOX
        self.action_space = action_space

    def _observe(self) -> Any:
        where = np.array([self.episode, self.at], np.float64)
        return {"x": where, "y": self.at} if self.as_dict else where

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.at = self.episode + 1, 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = reward_of(self.episode, self.at, action)
        self.at += 1
        over, limit = self.at == length_of(self.episode), self.episode % 2 == 1
        return self._observe(), reward, over and not limit, over and limit, {}


@pytest.fixture(params=[(mode, action, as_dict) for mode in AutoresetMode for action in ACTIONS for as_dict in (0, 1)])
def registered(request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[[int], Counting]]]:
    mode, action, as_dict = request.param

    def make(index: int = 0) -> Counting:
        return Counting(ACTIONS[action], bool(as_dict), 3 * index)

    def make_vector(num_envs: int, **_: Any) -> SyncVectorEnv:
        return SyncVectorEnv([partial(make, n) for n in range(num_envs)], autoreset_mode=mode)

    gymnasium.register("Counting-v0", entry_point=make, vector_entry_point=make_vector)
    yield "Counting-v0", make
    del gymnasium.registry["Counting-v0"]


class Sample:
    """Random actions that depend on what is seen alone, however environments are stepped."""

    def __init__(self, vector: VectorEnv) -> None:
        self.space = vector.spec.steps[0].action_space

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        name = "x" if "x" in batch.observation else "observation"
        chosen = []
        for episode, at in batch.observation[name].tolist():
            self.space.seed(int(1000 * episode + at))
            chosen.append(self.space.sample())
        return PolicyStep({head: np.stack([choice[head] for choice in chosen]) for head in self.space.spaces})


def collector_of(vector: VectorEnv, n_rollout_steps: int = 7) -> Collector:
    return Collector(vector, n_rollout_steps, torch.Generator().manual_seed(0))


def check(rollout: Rollout) -> None:
    """Every row is the step of an episode that its observation says, and is followed by what came of it."""
    rows, segment, final = rollout.rows, rollout.segments[0], rollout.finals[0]
    assert rollout.flat
    assert rows.filled.all()
    assert (rows.env_steps == 1).all()
    name = "x" if "x" in segment.observation else "observation"
    where = segment.observation[name]
    after = {
        (int(t), int(n)): final.observation[name][i].tolist()
        for i, (t, n) in enumerate(zip(final.row, final.env, strict=True))
    }
    n_rows, n_envs = rows.filled.shape
    for n in range(n_envs):
        for t in range(n_rows):
            episode, at = (int(value) for value in where[t, n])
            parts = {head: values[t, n].numpy() for head, values in segment.action.items()}
            action = next(iter(parts.values())) if len(parts) == 1 else parts
            assert rows.reward[t, n] == reward_of(episode, at, action)
            over, limit = at + 1 == length_of(episode), episode % 2 == 1
            assert (bool(rows.terminated[t, n]), bool(rows.truncated[t, n])) == (over and not limit, over and limit)
            assert bool(segment.is_first[t, n]) == (at == 0)
            assert int(rows.next_key[t, n]) == (-1 if over else 0)
            is_last = t == n_rows - 1
            assert ((t, n) in after) == ((over and limit) or (is_last and not over))
            if (t, n) in after:
                assert after[t, n] == [episode, at + 1]
            if not is_last:
                assert where[t + 1, n].tolist() == ([episode + 1, 0] if over else [episode, at + 1])


def test_every_row_is_an_act_and_is_followed_by_its_true_successor(registered: Any) -> None:
    vector = NativeVectorEnv(registered[0], 4, seed=1)
    collector = collector_of(vector)
    policy = Sample(vector)
    starts = []
    for _ in range(6):
        rollout = collector.collect(policy)
        check(rollout)
        starts.append(rollout.segments[0].is_first[0].tolist())
    assert any(any(start) for start in starts[1:])
    vector.close()


def test_statistics_are_those_of_single_environments(registered: Any) -> None:
    name, make = registered

    def played(vector: VectorEnv) -> list[EpisodeSummary]:
        collector, policy = collector_of(vector, 11), Sample(vector)
        summaries = [summary for _ in range(5) for summary in collector.collect(policy).summaries]
        return sorted(
            (summary for summary in summaries if summary.episode_index < 6),
            key=lambda summary: (summary.env_index, summary.episode_index),
        )

    factories = [lambda n=n: GymMazeEnv(make(n)) for n in range(3)]
    expected = played(SequentialVectorEnv(factories, first_env_index=2))  # type: ignore[arg-type]
    found = played(NativeVectorEnv(name, 3, first_env_index=2))
    assert len(expected) == 18
    assert_same_summaries(expected, found)


def test_rows_of_episodes_that_are_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maze_pl.envs.vector.native_vector_env._ROWS_IN_A_LOT", 20)
    vector = NativeVectorEnv("CartPole-v1", 3, max_episode_steps=30)
    collector = collector_of(vector, 50)
    policy = RandomPolicy({0: vector.spec.steps[0].action_space})
    summaries = [summary for _ in range(8) for summary in collector.collect(policy).summaries]
    assert all(summary.reward == summary.env_steps <= 30 for summary in summaries)
    assert len(vector._rows) < 60


def cartpole_rollouts(n_envs: int = 3, **options: Any) -> list[Rollout]:
    vector = NativeVectorEnv("CartPole-v1", n_envs, **options)
    collector = collector_of(vector, 40)
    policy = RandomPolicy({0: vector.spec.steps[0].action_space})
    return [collector.collect(policy).clone() for _ in range(3)]


def test_a_seed_gives_the_same_rollouts_and_ranks_get_others() -> None:
    one = cartpole_rollouts(seed=5)
    assert sum(len(rollout.summaries) for rollout in one) > 3
    assert_equal(one, cartpole_rollouts(seed=5))
    observation = one[0].segments[0].observation["observation"]
    for options in ({"seed": 6}, {"seed": 5, "first_env_index": 3}):
        other = cartpole_rollouts(**options)[0].segments[0].observation["observation"]
        assert not torch.equal(observation, other)


def test_rows_are_those_of_the_single_environment() -> None:
    rollout = cartpole_rollouts(n_envs=2)[0]
    env: Any = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    segment = rollout.segments[0]
    observation, action = segment.observation["observation"].double().numpy(), segment.action["action"].numpy()
    for t, n in np.argwhere(~(rollout.rows.terminated | rollout.rows.truncated).numpy()[:-1]).tolist():
        env.state = observation[t, n]
        following, *_ = env.step(action[t, n])
        np.testing.assert_allclose(following, observation[t + 1, n], rtol=0, atol=1e-5)


def test_a_restored_collector_starts_other_episodes() -> None:
    one = collector_of(NativeVectorEnv("CartPole-v1", 3, seed=2))
    policy = RandomPolicy({0: one.spec.steps[0].action_space})
    first = one.collect(policy).clone()
    other = collector_of(NativeVectorEnv("CartPole-v1", 3, seed=2))
    assert other.load_state_dict(one.state_dict()) == [0, 1, 2]
    assert other.vector.episodes() == [episode + 1 for episode in one.vector.episodes()]
    rollout = other.collect(policy)
    assert rollout.segments[0].is_first[0].all()
    assert not torch.equal(
        rollout.segments[0].observation["observation"][0], first.segments[0].observation["observation"][0]
    )


@pytest.mark.parametrize("native_first", [True, False])
def test_native_and_other_environments_take_over_from_each_other(native_first: bool) -> None:
    native, single = (
        NativeVectorEnv("CartPole-v1", 2, seed=2),
        SequentialVectorEnv([lambda: GymMazeEnv("CartPole-v1")] * 2, seed=2),
    )
    one, other = (collector_of(vector) for vector in ((native, single) if native_first else (single, native)))
    policy = RandomPolicy({0: one.spec.steps[0].action_space})
    one.collect(policy)
    assert other.load_state_dict(one.state_dict()) == [0, 1]
    assert other.collect(policy).segments[0].is_first[0].all()


def test_some_of_the_environments_can_neither_step_nor_be_reset() -> None:
    vector = NativeVectorEnv("CartPole-v1", 3)
    with pytest.raises(ValueError, match=r"go all at once, not \[1\] of 3"):
        vector.reset([1])
    vector.reset()
    with pytest.raises(ValueError, match=r"go all at once, not \[0, 2\] of 3"):
        vector.step([0, 2])


def test_an_environment_without_a_vector_implementation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no vector implementation of Acrobot-v1 .*use vectorization=sequential"):
        NativeVectorEnv("Acrobot-v1", 2)


def vector_that(change: Callable[[Any], Any], at: str = "step") -> Any:
    class Odd(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            result = super().step(actions)
            return change(result) if at == "step" else result

        def reset(self, **options: Any) -> Any:
            result = super().reset(**options)
            return change(result) if at == "reset" else result

    return lambda num_envs, **_: Odd([lambda: gymnasium.make("CartPole-v1")] * num_envs)


def put(index: int, value: Any) -> Callable[[Any], Any]:
    return lambda result: (*result[:index], value, *result[index + 1 :])


@pytest.mark.parametrize(
    ("at", "change", "message"),
    [
        (
            "reset",
            lambda r: r[0],
            r"reset of the vector Odd-v0 returned an array of shape \(2, 4\).*expected two values",
        ),
        (
            "reset",
            put(0, np.zeros((2, 3))),
            r"Odd-v0 returned as observations an array of shape \(2, 3\).*not \(2, 4\)",
        ),
        ("step", lambda r: r[:4], "step of the vector Odd-v0 returned a tuple of 4 values; expected five"),
        ("step", put(1, 1.0), r"returned reward as '1.0' of type float; expected an array of shape \(2,\) of numbers"),
        ("step", put(1, np.zeros(3)), r"returned reward as an array of shape \(3,\)"),
        ("step", put(2, np.zeros(2)), r"returned terminated as an array .* float64; expected .* of booleans"),
        ("step", put(3, None), "returned truncated as None"),
        ("step", put(0, None), "Odd-v0 returned as observations None, which does not fit: "),
        ("step", put(0, np.full((2, 4), np.nan)), "observation 'observation' of environment 0, .* is not finite"),
        ("step", put(1, np.array([0, np.nan])), r"the reward of environment 1, .* is not finite \(step 0 of"),
    ],
)
def test_a_vector_that_breaks_the_contract_is_explained(at: str, change: Any, message: str) -> None:
    gymnasium.register(
        "Odd-v0", entry_point=lambda: gymnasium.make("CartPole-v1"), vector_entry_point=vector_that(change, at)
    )
    try:
        collector = collector_of(NativeVectorEnv("Odd-v0", 2))
        with pytest.raises(EnvContractError, match=message):
            collector.collect(RandomPolicy({0: collector.spec.steps[0].action_space}))
    finally:
        del gymnasium.registry["Odd-v0"]


def test_a_vector_with_other_spaces_is_refused() -> None:
    gymnasium.register(
        "Odd-v0",
        entry_point=lambda: gymnasium.make("Acrobot-v1"),
        vector_entry_point=lambda num_envs, **_: gymnasium.make_vec("CartPole-v1", num_envs),
    )
    try:
        with pytest.raises(
            ValueError, match=r"implementation of Odd-v0 has the spaces .*, a single one has .*use vectorization=seq"
        ):
            NativeVectorEnv("Odd-v0", 2)
    finally:
        del gymnasium.registry["Odd-v0"]


def test_a_vector_that_does_not_say_how_it_resets_is_refused() -> None:
    class Silent(SyncVectorEnv):
        @property
        def metadata(self) -> dict[str, Any]:
            return {"autoreset_mode": "whenever it likes"}

        @metadata.setter
        def metadata(self, value: dict[str, Any]) -> None:
            assert value

    gymnasium.register(
        "Odd-v0",
        entry_point=lambda: gymnasium.make("CartPole-v1"),
        vector_entry_point=lambda num_envs, **_: Silent([lambda: gymnasium.make("CartPole-v1")] * num_envs),
    )
    try:
        with (
            pytest.warns(UserWarning, match="autoreset_mode"),
            pytest.raises(
                ValueError, match=r"Odd-v0 does not say how it resets, autoreset_mode='whenever it likes'; use"
            ),
        ):
            NativeVectorEnv("Odd-v0", 2)
    finally:
        del gymnasium.registry["Odd-v0"]

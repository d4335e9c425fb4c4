"""Native vector environments, time limits around vector environments, and what these must not lose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit, TransformReward
from gymnasium.wrappers import vector as vector_wrappers

from maze_pl.collect.episodes import play_episodes
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import ArrayVectorEnv, CartPoleArrayEnv, GymMazeEnv, GymVectorArrayEnv, SequentialVectorEnv
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays.gym_vector_array_env import require_seeds
from maze_pl.envs.arrays.native_form import make_native_array_env
from maze_pl.envs.arrays.time_limit_array_wrapper import TimeLimitArrayWrapper
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import LogStatsWrapper, TimeLimitWrapper
from tests.envs.arrays.fuse_vectors import MODES, N, fuses, in_sync, streams
from tests.envs.arrays.fuses import Fuse, FusePolicy, FuseVector
from tests.equality import assert_equal


def test_the_native_form_keeps_arguments_and_needs_an_entry_point() -> None:
    native = make_native_array_env(partial(GymMazeEnv, "CartPole-v1", max_episode_steps=5))
    assert native._vector.max_episode_steps == 5  # type: ignore[attr-defined]
    twice = make_native_array_env(lambda: TimeLimit(gymnasium.make("CartPole-v1", max_episode_steps=6), 9))
    assert twice._vector.max_episode_steps == 6  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="with a vector entry point, which Pendulum-v1 does not have"):
        make_native_array_env(partial(GymMazeEnv, "Pendulum-v1"))


class Shaped(GymMazeEnv):
    """Changes the environment in a way that no vector entry point knows of."""


def shaped() -> gymnasium.Env[Any, Any]:
    return TransformReward(gymnasium.make("CartPole-v1"), lambda reward: 10 * reward)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (shaped, "makes CartPole-v1 without TransformReward, which env puts around it; use vectorization=sequential"),
        (lambda: GymMazeEnv(shaped()), "without TransformReward,"),
        (partial(Shaped, "CartPole-v1"), "without Shaped,"),
        (lambda: TimeLimitWrapper(GymMazeEnv("CartPole-v1"), 5), "without TimeLimitWrapper, .*wrappers of the data"),
        (partial(GymMazeEnv, "CartPole-v1", max_episode_steps=-1), "with a time limit, but env makes it without one"),
    ],
)
def test_what_the_native_form_would_lose_is_refused(env: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_native_array_env(env)


def limited(make: Callable[[], GymVectorArrayEnv], n_steps: int, **options: Any) -> ArrayVectorEnv:
    return ArrayVectorEnv(lambda: TimeLimitArrayWrapper(make(), n_steps), N, seed=5, **options)


@pytest.mark.parametrize("mode", MODES)
def test_time_limits_around_vectors_with_masks_act_as_around_single_environments(mode: AutoresetMode) -> None:
    def single() -> LogStatsWrapper:
        return LogStatsWrapper.wrap(TimeLimitWrapper(GymMazeEnv(Fuse(uses_seed=True)), 4))

    acts, finals, summaries = streams(limited(lambda: in_sync(mode), 4), 5)
    expected, expected_finals, expected_summaries = streams(SequentialVectorEnv([single] * N, seed=5), 5)
    assert len(summaries) > 20 and sum(map(len, finals)) > 10
    assert_equal([acts, finals], [expected, expected_finals])
    outcomes = [[(one.env_steps, one.reward) for one in found] for found in (summaries, expected_summaries)]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("mode", MODES)
def test_time_limits_around_any_vector_leave_evaluation_possible(mode: AutoresetMode) -> None:
    vector = limited(fuses(mode), 3, autoreset=False, seed_by_env=False)
    for episodes in (range(4), range(4, 6), range(6, 10)):
        played = play_episodes(vector, FusePolicy(), episodes, deterministic=True)  # type: ignore[arg-type]
        assert len(played) == len(episodes) and max(one.env_steps for one in played) == 3


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_time_limit_that_ends_some_episodes_needs_a_mask(mode: AutoresetMode) -> None:
    message = (
        r"FuseVector cannot start environment \d while others run, .*; use the environment's own max_episode_steps"
    )
    with pytest.raises(EnvContractError, match=message):
        streams(limited(fuses(mode), 6), 3)


def test_wrappers_of_gymnasium_that_cannot_reset_some_environments_are_named() -> None:
    def make(n: int) -> Any:
        single = partial(gymnasium.make, "CartPole-v1")
        return vector_wrappers.NormalizeObservation(gymnasium.vector.SyncVectorEnv([single] * n))

    vector = ArrayVectorEnv(lambda: GymVectorArrayEnv(make), N, seed=5)
    vector.reset()
    message = r"NormalizeObservation around SyncVectorEnv cannot .*does not support partial.*; pass reset_mask=False"
    with pytest.raises(EnvContractError, match=message):
        for _ in range(60):
            vector.step()
    starts_alone = ArrayVectorEnv(lambda: GymVectorArrayEnv(make, reset_mask=False), N, seed=5)
    starts_alone.reset()
    for _ in range(60):
        starts_alone.step()
    assert len(starts_alone.drain_summaries()) >= N


def test_infos_that_are_no_dict_are_refused_where_final_observations_are_in_them() -> None:
    def make(n: int) -> Any:
        return vector_wrappers.DictInfoToList(FuseVector(n, AutoresetMode.SAME_STEP))

    with pytest.raises(
        EnvContractError, match=r"FuseVector returned infos that are a list.*leave out .*DictInfoToList"
    ):
        streams(ArrayVectorEnv(lambda: GymVectorArrayEnv(make), N, seed=5), 1)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_infos_that_are_none_are_not_read_elsewhere(mode: AutoresetMode) -> None:
    class WithoutInfos(FuseVector):
        def step(self, actions: Any) -> Any:
            return *super().step(actions)[:4], None

    vector = ArrayVectorEnv(lambda: GymVectorArrayEnv(lambda n: WithoutInfos(n, mode)), N, seed=5)
    assert streams(vector, 2)[2]


class Strict(gymnasium.Env[Any, Any]):
    """Refuses options that its masks forbid; allowed ones depend on the day."""

    observation_space = spaces.Dict({"turns": spaces.MultiBinary(3), "pairs": spaces.MultiBinary(4)})
    action_space = spaces.Dict(
        {"turn": spaces.Discrete(3, start=4), "pair": spaces.MultiDiscrete([2, 2]), "push": spaces.Discrete(2)}
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.day = 0
        return self.observation(), {}

    def observation(self) -> dict[str, Any]:
        turns = np.arange(3) == (self.day + 1) % 3
        return {"turns": turns.astype(np.int8), "pairs": np.array([0, 1, 1, 0], np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.observation()["turns"][action["turn"] - 4]
        assert list(action["pair"]) == [1, 0]
        self.day += 1
        return self.observation(), 1.0, bool(self.np_random.random() < 0.2), False, {}


@pytest.mark.parametrize("mode", MODES)
def test_environments_whose_episodes_have_ended_stay_within_masks(mode: AutoresetMode) -> None:
    masks = {"turn": "turns", "pair": "pairs"}
    options: dict[str, Any] = {"autoreset": False, "seed_by_env": False, "seed": 3}

    def make(n: int) -> Any:
        return gymnasium.vector.SyncVectorEnv([Strict] * n, autoreset_mode=mode)

    def lengths(vector: Any) -> list[int]:
        policy = RandomPolicy({0: vector.spec.steps[0].action_space}, {0: vector.spec.steps[0].masks})
        played = play_episodes(vector, policy, range(N), deterministic=False, generator=torch.Generator())
        return sorted(summary.env_steps for summary in played)

    single = SequentialVectorEnv([partial(make_wrapped, lambda: GymMazeEnv(Strict()), [], masks)] * N, **options)
    many = partial(make_wrapped_arrays, lambda: GymVectorArrayEnv(make), [], masks)
    expected = lengths(single)
    assert len(set(expected)) > 2
    assert lengths(ArrayVectorEnv(many, N, **options)) == expected


@pytest.mark.parametrize(
    ("env", "for_each_environment", "for_each_episode"),
    [
        (partial(GymVectorArrayEnv, "CartPole-v1"), False, False),
        (fuses(AutoresetMode.DISABLED), False, False),
        (lambda: GymVectorArrayEnv(partial(FuseVector, mode=AutoresetMode.NEXT_STEP), seed_each=True), True, False),
        (lambda: GymVectorArrayEnv(FuseVector, seed_each=True), True, True),
        (partial(in_sync, AutoresetMode.NEXT_STEP), True, True),
        (CartPoleArrayEnv, True, True),
    ],
)
def test_equal_starts_need_seeds(env: Any, for_each_environment: bool, for_each_episode: bool) -> None:
    for all_episodes, is_enough in ((False, for_each_environment), (True, for_each_episode)):
        around = TimeLimitArrayWrapper(env(), 9)
        if is_enough:
            require_seeds(around, "this", all_episodes)
        else:
            with pytest.raises(
                ValueError, match=r"this needs a seed for each .*, which \w+Vector\w* does not take; use"
            ):
                require_seeds(around, "this", all_episodes)

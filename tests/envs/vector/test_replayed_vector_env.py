"""Rewards of running episodes, which a replay is compared with."""

from __future__ import annotations

import io
from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.state_tensors import from_tensors, to_tensors
from maze_pl.envs import GymMazeEnv, RewardWrapper, StructuredEnv, Wrapper
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv, long_episodes
from maze_pl.envs.wrappers import (
    ReturnNormalizationRewardWrapper,
    RunningObservationNormalizationWrapper,
    TimeLimitWrapper,
)
from tests.envs.stateful_wrappers import RisingPriceWrapper, Walk
from tests.equality import assert_equal

N_ENVS = 2


class RisingWalk(Walk):
    """Pays more in each episode than in the one before."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.price += 0.1
        return super().reset(seed=seed, options=options)


class TurningWalk(Walk):
    """Pays in the first episode and charges as much in all others."""

    def __init__(self, n_steps: int) -> None:
        super().__init__(n_steps)
        self.next_price = 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.price, self.next_price = self.next_price, -1.0
        return super().reset(seed=seed, options=options)


class CancellingWalk(Walk):
    """Pays 0.3 and charges 0.1 and 0.2, the last of which may be rounded in another way."""

    last = -0.2

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, (self.last, 0.3, -0.1)[self.time % 3], *rest


class OtherwiseRounded(CancellingWalk):
    """The same on another machine."""

    last = float(np.nextafter(-0.2, 0.0))


class ForgetfulBonusWrapper(Wrapper):
    """Adds a bonus that falls with the steps of all episodes, which it does not save."""

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        self.n_steps = 0

    def step_in_parts(self, action: Any) -> Generator[Any, Any, Any]:
        observation, reward, terminated, truncated, info = yield action
        self.n_steps += 1
        return observation, reward + 1.0 / self.n_steps**0.5, terminated, truncated, info


class BonusWrapper(ForgetfulBonusWrapper):
    """Saves the steps."""

    def state_dict(self) -> dict[str, Any]:
        return {"n_steps": self.n_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n_steps = int(state["n_steps"])


class UnknownRewardWrapper(RewardWrapper):
    """Has no rewards."""

    def reward(self, reward: float) -> float:
        return float("nan")

    def step_in_parts(self, action: Any) -> Generator[Any, Any, Any]:
        observation, _, *rest = yield action
        return observation, float("nan"), *rest


def vector_of(
    walk: Any, wrappers: list[Any], n_steps: int = 10, kind: Any = SequentialVectorEnv, **options: Any
) -> Any:
    make = partial(make_wrapped, partial(make_env, walk, n_steps), wrappers)
    return kind([make] * N_ENVS, seed=1, **options)


def make_env(walk: Any, n_steps: int) -> GymMazeEnv:
    return GymMazeEnv(walk(n_steps))


def play(vector: Any, n_steps: int) -> list[Any]:
    results = []
    for _ in range(n_steps):
        vector.staging.action[0]["action"][:] = [0, 1]
        vector.step()
        results.append(vector.staging.reward.copy())
    return results


def saved(vector: Any) -> Any:
    file = io.BytesIO()
    torch.save(to_tensors(vector.state_dict()), file)
    file.seek(0)
    return from_tensors(torch.load(file, weights_only=True))


def state_after(vector: Any, n_steps: int) -> Any:
    vector.reset()
    play(vector, n_steps)
    return saved(vector)


TIME_LIMIT = partial(TimeLimitWrapper, max_episode_steps=9)
LOSING = [(RisingWalk, []), (RisingWalk, [TIME_LIMIT]), (Walk, [ForgetfulBonusWrapper]), (TurningWalk, [])]
KEEPING = [(Walk, []), (Walk, [RisingPriceWrapper]), (Walk, [BonusWrapper, ReturnNormalizationRewardWrapper])]


@pytest.mark.parametrize(("walk", "wrappers"), LOSING)
def test_rewards_that_depend_on_a_state_that_nothing_saves_are_noticed(walk: Any, wrappers: list[Any]) -> None:
    state = state_after(vector_of(walk, wrappers), 25)
    resumed = vector_of(walk, wrappers)
    assert resumed.load_state_dict(state) == [0, 1]
    assert resumed.episodes() == [episode + 1 for episode in state["episodes"]]
    assert resumed.episode_rewards() == [0.0, 0.0]
    first = state_after(vector_of(walk, wrappers), 5)  # in which no other episode came before
    assert vector_of(walk, wrappers).load_state_dict(first) == []


@pytest.mark.parametrize(("walk", "wrappers"), [*KEEPING, (Walk, [UnknownRewardWrapper])])
@pytest.mark.parametrize("n_steps", [20, 25])
def test_equal_episodes_are_continued(walk: Any, wrappers: list[Any], n_steps: int) -> None:
    state = state_after(vector_of(walk, wrappers), n_steps)
    resumed = vector_of(walk, wrappers)
    assert resumed.load_state_dict(state) == []
    assert np.array_equal(resumed.episode_rewards(), state["rewards"], equal_nan=True)


def test_the_rounding_of_another_machine_is_no_difference() -> None:
    state = state_after(vector_of(Walk, [BonusWrapper]), 25)
    state["rewards"] = [np.nextafter(state["rewards"][0], 100.0), state["rewards"][1] + 1e-6]
    assert vector_of(Walk, [BonusWrapper]).load_state_dict(state) == [1]


@pytest.mark.parametrize("wrappers", [[], [TIME_LIMIT]])
def test_nor_is_it_where_rewards_cancel(wrappers: list[Any]) -> None:
    state = state_after(vector_of(CancellingWalk, wrappers), 6)
    assert vector_of(OtherwiseRounded, wrappers).load_state_dict(state) == []


def test_checkpoints_of_earlier_versions_are_compared_by_observations_alone() -> None:
    state = state_after(vector_of(RisingWalk, []), 25)
    del state["rewards"]
    assert vector_of(RisingWalk, []).load_state_dict(state) == []


def merged_in_episode(wrappers: list[Any], kind: type[Wrapper]) -> Any:
    """A vector in whose second episode the statistics of wrappers of this kind were merged."""
    vector = vector_of(Walk, wrappers)
    vector.reset()
    play(vector, 15)
    name = next(iter(vector.shared_states()[0]))
    merged = kind.merge_shared_states([state[name] for state in vector.shared_states()])
    vector.load_shared_states({name: merged})
    play(vector, 3)
    return vector


def test_episodes_in_which_statistics_of_rewards_were_merged_are_compared_by_observations_alone() -> None:
    wrappers = [ReturnNormalizationRewardWrapper]
    vector = merged_in_episode(wrappers, ReturnNormalizationRewardWrapper)
    state = saved(vector)
    assert np.isnan(state["rewards"]).all()
    resumed = vector_of(Walk, wrappers)
    assert resumed.load_state_dict(state) == []
    assert_equal(play(resumed, 1), play(vector, 1))
    play(vector, 3)
    assert np.isfinite(vector.episode_rewards()).all()  # of the next episodes


@pytest.mark.parametrize(("wrappers", "strayed"), [([], []), ([BonusWrapper], []), ([ForgetfulBonusWrapper], [0, 1])])
def test_statistics_of_observations_change_no_rewards(wrappers: list[Any], strayed: list[int]) -> None:
    first = {"observation": {"mean": 0.0, "std": 10.0}}
    wrappers = [*wrappers, partial(RunningObservationNormalizationWrapper, statistics=first, weight=1)]
    state = saved(merged_in_episode(wrappers, RunningObservationNormalizationWrapper))
    assert vector_of(Walk, wrappers).load_state_dict(state) == strayed


@pytest.mark.parametrize(("walk", "wrappers"), [LOSING[0], LOSING[2], KEEPING[2]])
def test_rewards_count_from_the_state_of_a_long_episode(
    walk: Any, wrappers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_episodes, "MOST_REPLAYED_ACTS", 50)
    vector = vector_of(walk, wrappers, n_steps=100)
    vector.reset()
    play(vector, 170)  # the second episode
    states = []
    for _ in range(2):
        states.append(saved(vector))
        assert states[-1]["rewards"] == [0.0, 0.0] and "state" in states[-1]["histories"][0]
        play(vector, 5)
    for state in states:
        resumed = vector_of(walk, wrappers, n_steps=100)
        assert resumed.load_state_dict(state) == []
        assert saved(resumed)["rewards"] == [0.0, 0.0]


@pytest.mark.slow
def test_environments_in_processes_do_the_same() -> None:
    state = state_after(vector_of(RisingWalk, []), 25)
    there, resumed = vector_of(RisingWalk, [], kind=SubprocVectorEnv, n_workers=1), vector_of(RisingWalk, [])
    assert [vector.load_state_dict(state) for vector in (there, resumed)] == [[0, 1], [0, 1]]
    assert_equal(play(there, 15), play(resumed, 15))
    assert there.episode_rewards() == resumed.episode_rewards() != [0.0, 0.0]
    there.close()

"""Evaluation plays exactly the episodes that it is asked for, whatever plays at the same time."""

from __future__ import annotations

from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.episodes import play_episodes
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv
from tests.datamodules.drift import Drift, Log
from tests.structured import hierarchy
from tests.structured.catalogue import every_environment


class ByObservation:
    """Chooses what follows from the observation alone, and keeps what it was asked."""

    def __init__(self, vector: Any) -> None:
        self.spec = vector.spec
        self.batches: list[PolicyBatch] = []
        self.options: list[tuple[bool, torch.Generator | None]] = []

    def act(self, batch: PolicyBatch, *, deterministic: bool = False, generator: Any = None, **_: Any) -> PolicyStep:
        self.batches.append(batch)
        self.options.append((deterministic, generator))
        score = sum(array.reshape(len(array), -1) @ np.arange(1, array[0].size + 1) for array in _floats(batch))
        action = {}
        for head, space in self.spec.steps[batch.step_key].action_space.spaces.items():
            discrete = np.issubdtype(space.dtype, np.integer)
            action[head] = score.astype(np.int64) % space.n if discrete else score[:, None] * np.ones(space.shape)
        return PolicyStep(action)


def _floats(batch: PolicyBatch) -> list[np.ndarray]:
    return [batch.observation[name].astype(np.float64) for name in sorted(batch.observation)]


def vector_of(make_env: Any, n_envs: int, kind: Any = SequentialVectorEnv) -> Any:
    return kind([make_env] * n_envs, seed=4, autoreset=False, seed_by_env=False)


def play(make_env: Any, n_envs: int, episodes: Any, kind: Any = SequentialVectorEnv) -> list[EpisodeSummary]:
    vector = vector_of(make_env, n_envs, kind)
    try:
        groups = [episodes[first : first + n_envs] for first in range(0, len(episodes), n_envs)] or [episodes]
        played = [play_episodes(vector, ByObservation(vector), group, deterministic=True) for group in groups]
        return list(chain.from_iterable(played))
    finally:
        vector.close()


def described(summaries: list[EpisodeSummary]) -> list[tuple[int, int, float]]:
    return [(one.episode_index, one.env_steps, one.reward) for one in summaries]


@pytest.mark.parametrize("n_envs", [1, 2, 3, 10])
@pytest.mark.parametrize("episodes", [range(5), range(1, 12, 3), [7, 2, 5], [4], []])
def test_the_episodes_asked_for_are_played_once_each_and_come_in_their_order(n_envs: int, episodes: Any) -> None:
    log = Log()
    summaries = play(partial(Drift, log), n_envs, episodes)
    assert [summary.episode_index for summary in summaries] == list(episodes)
    assert sum(len(seeds) for seeds in log.seeds) == len(episodes)
    played = [rewards for rewards_of_env in log.rewards for rewards in rewards_of_env]
    assert sorted(summary.env_steps for summary in summaries) == sorted(len(rewards) for rewards in played)


def test_an_episode_is_the_same_whoever_plays_it_and_whatever_else_is_played() -> None:
    alone = [play(Drift, 1, [index])[0] for index in range(9)]
    assert len({summary.reward for summary in alone}) == 9
    for n_envs in (1, 4, 9):
        assert described(play(Drift, n_envs, range(9))) == described(alone)
    assert described(play(Drift, 2, [8, 3])) == described([alone[8], alone[3]])


@every_environment
def test_structured_episodes_are_played_to_their_end(module: ModuleType) -> None:
    alone = [play(module.make_env, 1, [index])[0] for index in range(5)]
    assert all(summary.env_steps == module.N_STEPS for summary in alone)
    together = play(module.make_env, 3, range(5))
    assert described(together) == described(alone)
    assert [summary.statistics.keys() for summary in together] == [summary.statistics.keys() for summary in alone]


def test_environments_in_processes_of_their_own_play_the_same_episodes() -> None:
    make_env = hierarchy.make_env
    assert described(play(make_env, 3, range(5), SubprocVectorEnv)) == described(play(make_env, 3, range(5)))


def test_the_policy_is_asked_for_one_kind_of_actor_at_a_time_and_told_where_episodes_begin() -> None:
    vector = vector_of(hierarchy.make_env, 5)
    policy, generator = ByObservation(vector), torch.Generator()
    play_episodes(vector, policy, range(4), deterministic=False, generator=generator)
    vector.close()
    assert {batch.step_key for batch in policy.batches} == set(vector.spec.step_keys)
    for batch in policy.batches:
        names = vector.spec.steps[batch.step_key].observation_space.spaces
        assert set(batch.observation) == set(names)
        assert all(len(array) == len(batch.agent_id) for array in batch.observation.values())
        assert (batch.agent_id < vector.spec.steps[batch.step_key].n_slots).all()
    assert sum(int(batch.is_first.sum()) for batch in policy.batches if batch.is_first is not None) == 2 * 4
    assert all(options == (False, generator) for options in policy.options)


def test_statistics_of_former_episodes_are_not_given_twice() -> None:
    vector = vector_of(Drift, 4)
    policy = ByObservation(vector)
    first = play_episodes(vector, policy, range(4), deterministic=True)
    second = play_episodes(vector, policy, range(4), deterministic=True)
    vector.close()
    assert len(first) == 4
    assert described(first) == described(second)

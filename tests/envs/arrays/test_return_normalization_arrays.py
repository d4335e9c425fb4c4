"""Normalisation by returns in arrays: that of single episodes, also by the returns of single acts."""

from __future__ import annotations

from typing import Any

import numpy as np

from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.arrays.array_wrapper import allocate
from maze_pl.envs.arrays.return_normalization_array_wrapper import ReturnNormalizationArrayWrapper
from maze_pl.envs.wrappers import ReturnNormalizationRewardWrapper
from tests.envs.arrays.yard import YardArrayEnv, make_yard

OF_ACTS = {"act_base", "act_n", "act_mean", "act_m2", "act_returns", "n_acts"}


def make_arrays(n_envs: int = 0) -> ReturnNormalizationArrayWrapper:
    arrays = ReturnNormalizationArrayWrapper(YardArrayEnv(), 0.9)
    if n_envs:
        allocate(arrays, n_envs)
    return arrays


def play_both(single: Any, other: Any, seed: int) -> None:
    """Play an episode in both forms, and compare all rewards."""
    single.reset(seed=seed)
    other.reset(seed=seed)
    generator = np.random.default_rng(seed)
    has_ended = False
    while not has_ended:
        action: Any = {"effort": generator.uniform(-0.9, 0.9, 2).astype(np.float32)}
        if single.actor_id().step_key == "plan":
            action = {"plan": int(np.argmax(single.unwrapped.core_env.allowed))}
        results = single.step(action), other.step(action)
        assert results[0][1] == results[1][1]
        has_ended = results[0][2] or results[0][3]
    np.testing.assert_array_equal(single.get_actor_rewards(), other.get_actor_rewards())


def test_returns_of_acts_are_those_of_single_episodes() -> None:
    single = ReturnNormalizationRewardWrapper.wrap(make_yard(), gamma=0.9)
    arrays = make_arrays()
    other = ArrayMazeEnv(arrays)
    for seed in range(4):
        play_both(single, other, seed)
        state = single.shared_state()
        assert arrays.shared_states() == [state]
        assert state["acts"]["delta"][0] == 3 * state["delta"][0]
        if seed == 1:
            merged = single.merge_shared_states([state, state])
            single.load_shared_state(merged)
            arrays.load_shared_state(merged)


def test_states_with_and_without_returns_of_acts_are_restored() -> None:
    arrays = make_arrays()
    play_both(ReturnNormalizationRewardWrapper.wrap(make_yard(), gamma=0.9), ArrayMazeEnv(arrays), seed=0)
    state = arrays.state_dict()
    new = make_arrays(1)
    new.load_state_dict(state)
    assert new.shared_states() == arrays.shared_states()
    older = {name: part for name, part in state.items() if name not in OF_ACTS}  # of version 0.2.0
    arrays.load_state_dict(older)
    (shared,) = arrays.shared_states()
    assert "acts" not in shared
    assert shared["delta"] == new.shared_states()[0]["delta"]


def test_statistics_that_are_not_merged_yet_are_taken_over() -> None:
    single = ReturnNormalizationRewardWrapper.wrap(make_yard(), gamma=0.9)
    play_both(single, ArrayMazeEnv(make_arrays()), seed=0)
    arrays = make_arrays(2)
    arrays.load_shared_state(single.shared_state())
    assert arrays.scale.tolist() == [1.0 / single.reward(1.0)] * 2

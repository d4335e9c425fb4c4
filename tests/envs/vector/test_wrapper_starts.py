"""Running episodes are resumed with the states that wrappers had when the episodes began."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.state_tensors import from_tensors, to_tensors
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv, VectorEnv, long_episodes
from maze_pl.envs.wrapper import Wrapper
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    TimeLimitWrapper,
    TrajectoryRecordingWrapper,
)
from tests.envs.stateful_wrappers import GrowingLimitWrapper, RisingPriceWrapper, TurningWrapper, make_walk
from tests.equality import assert_equal

WRAPPERS: list[Any] = [RisingPriceWrapper, GrowingLimitWrapper, TurningWrapper]
N_ENVS = 2


def vector_of(wrappers: list[Any], kind: Any = SequentialVectorEnv, n_steps: int = 10, **options: Any) -> Any:
    make = partial(make_wrapped, partial(make_walk, n_steps), wrappers)
    return kind([make] * N_ENVS, seed=1, **options)


def steps(vector: VectorEnv, n_steps: int, seed: int = 0) -> list[Any]:
    """Random acts, and what comes of each: observation, reward, end."""
    generator = np.random.default_rng(seed)
    seen = []
    for _ in range(n_steps):
        vector.staging.action[0]["action"][:] = generator.integers(0, 2, N_ENVS)
        vector.step()
        staging = vector.staging
        seen.append([staging.observation[0]["observation"].copy(), staging.reward.copy(), staging.truncated.copy()])
    return seen


def saved(vector: VectorEnv) -> Any:
    """The state after the way through a checkpoint."""
    file = io.BytesIO()
    torch.save(to_tensors(vector.state_dict()), file)
    file.seek(0)
    return from_tensors(torch.load(file, weights_only=True))


@pytest.mark.parametrize("n_steps", [2, 13, 23])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_running_episode_goes_on_as_if_it_had_not_been_stopped(wrapper: Any, n_steps: int) -> None:
    whole = vector_of([wrapper])
    whole.reset()
    steps(whole, n_steps)
    whole.drain_summaries()
    state = saved(whole)
    expected = [steps(whole, 30, seed=1), whole.drain_summaries()]
    resumed = vector_of([wrapper])
    assert resumed.load_state_dict(state) == []
    again = vector_of([wrapper])
    assert again.load_state_dict(saved(resumed)) == []
    for vector in (resumed, again):
        assert_equal([steps(vector, 30, seed=1), vector.drain_summaries()], expected)


def test_prices_and_returns_after_resuming_are_those_of_the_episodes() -> None:
    whole = vector_of([RisingPriceWrapper])
    whole.reset()
    steps(whole, 25)
    resumed = vector_of([RisingPriceWrapper])
    resumed.load_state_dict(saved(whole))
    rewards = [reward[0] for _, reward, _ in steps(resumed, 20)]
    assert rewards == [float(1 + (25 + n) // 10) for n in range(20)]
    assert [summary.reward for summary in resumed.drain_summaries()] == [30.0, 40.0] * N_ENVS


@pytest.mark.slow
def test_environments_in_processes_do_the_same() -> None:
    whole, there = vector_of(WRAPPERS), vector_of(WRAPPERS, SubprocVectorEnv, n_workers=1)
    whole.reset()
    steps(whole, 13)
    there.load_state_dict(saved(whole))
    state = saved(there)
    expected = steps(whole, 30)
    resumed = vector_of(WRAPPERS)
    resumed.load_state_dict(state)
    assert_equal([steps(there, 30), steps(resumed, 30)], [expected, expected])
    there.reset_wrappers()
    there.reset()
    fresh = vector_of(WRAPPERS)
    fresh.reset()
    assert_equal(steps(there, 30), steps(fresh, 30))
    there.close()


@pytest.mark.parametrize(
    ("wrapper", "n_steps"),
    [
        pytest.param(RisingPriceWrapper, 70, marks=pytest.mark.slow),
        pytest.param(TurningWrapper, 70, marks=pytest.mark.slow),
        (partial(GrowingLimitWrapper, limit=5, growth=20), 999),
    ],
)
def test_long_episodes_are_restored_from_their_state(
    wrapper: Any, n_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_episodes, "MOST_REPLAYED_ACTS", 50)
    whole = vector_of([wrapper], n_steps=n_steps)
    whole.reset()
    steps(whole, 80)
    while whole.staging.observation[0]["observation"][0, 1] < 62:
        steps(whole, 1)
    state = saved(whole)
    for history in state["histories"]:
        assert "state" in history and "why" not in history and len(history["keys"]) == 10
    expected = steps(whole, 60)
    resumed = vector_of([wrapper], n_steps=n_steps)
    assert resumed.load_state_dict(state) == []
    assert_equal(steps(resumed, 60), expected)


def test_checkpoints_of_earlier_versions_replay_with_new_wrappers() -> None:
    whole = vector_of([RisingPriceWrapper])
    whole.reset()
    steps(whole, 25)
    state = saved(whole)
    del state["rewards"]
    for history in state["histories"]:
        del history["wrappers"]
    resumed = vector_of([RisingPriceWrapper])
    assert resumed.load_state_dict(state) == []
    rewards = [reward[0] for _, reward, _ in steps(resumed, 10)]
    assert rewards == [1.0] * 5 + [4.0] * 5  # the state at the end is there


def test_only_states_that_may_change_are_kept() -> None:
    wrappers = [
        partial(ObservationNormalizationWrapper, default_statistics=None),
        partial(TimeLimitWrapper, max_episode_steps=5),
    ]
    vector = vector_of(wrappers)
    vector.load_shared_states(vector.estimate(20, 1))
    vector.reset()
    steps(vector, 3)
    assert [history.keys() for history in vector.histories()] == [{"episode", "keys", "actions"}] * N_ENVS
    vector = vector_of([*wrappers, ReturnNormalizationRewardWrapper, RisingPriceWrapper, TrajectoryRecordingWrapper])
    vector.load_shared_states(vector.estimate(20, 1))
    vector.reset()
    steps(vector, 3)
    for history in vector.histories():
        kinds = [name.rpartition(".")[2] for name in history["wrappers"]]
        assert kinds == ["TrajectoryRecordingWrapper", "RisingPriceWrapper", "ReturnNormalizationRewardWrapper"]
        assert all(len(str(state)) < 200 for state in history["wrappers"].values())


def test_wrappers_begin_again_when_they_are_told_to() -> None:
    vector, fresh = vector_of(WRAPPERS), vector_of(WRAPPERS)
    vector.reset_wrappers()  # nothing has been played yet
    vector.reset()
    first = steps(vector, 20)
    assert any(not np.array_equal(one, other) for one, other in zip(first[0], steps(vector, 20)[0], strict=True))
    for _ in range(2):  # the wrappers do not change what is kept of them
        vector.reset_wrappers()
        vector.reset()
        assert_equal(steps(vector, 20), first)
    fresh.reset()
    assert_equal(steps(fresh, 20), first)


class LateWrapper(Wrapper):
    """Has no state before the first reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.n_steps = 0
        return self.env.reset(seed=seed, options=options)

    def state_dict(self) -> dict[str, Any]:
        return {"n_steps": self.n_steps}


def test_a_state_that_exists_only_after_a_reset_is_refused() -> None:
    told = r"environment 0: state_dict of LateWrapper failed before an episode with AttributeError.*n_steps.*__init__"
    with pytest.raises(EnvContractError, match=told):
        vector_of([LateWrapper]).reset()

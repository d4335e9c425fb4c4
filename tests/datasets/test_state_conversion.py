"""Converted states are what space records of the same episode hold, up to the end of the episode."""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.core.spec import Spec
from maze_pl.datasets import (
    DeadEndClippingTrajectoryProcessor,
    IdentityWithNextObservationTrajectoryProcessor,
    InMemoryDataset,
)
from maze_pl.datasets.state_conversion import converted
from maze_pl.envs import CartPoleArrayEnv, GymMazeEnv, StateTrajectoryRecord, StructuredEnv
from maze_pl.envs.arrays.array_maze_env import ArrayMazeEnv
from maze_pl.envs.trajectory_record import StateRecord
from maze_pl.envs.wrappers import (
    ObservationStackWrapper,
    RandomResetWrapper,
    SpacesRecordingWrapper,
    StepSkipWrapper,
    TimeLimitWrapper,
    TrajectoryRecordingWrapper,
)
from maze_pl.records.record_files import SpacesTrajectoryRecord
from tests.envs.relay import make_relay_env

WRAPPERS: dict[str, Callable[[Any], StructuredEnv]] = {
    "none": lambda env: env,
    "limit": lambda env: TimeLimitWrapper(env, 5),
    "skip": lambda env: StepSkipWrapper(env, 2),
    "limited skip": lambda env: TimeLimitWrapper(StepSkipWrapper(env, 2), 5),
    "random reset": lambda env: RandomResetWrapper(env, 1, 2),
}
OF_NOW = ("last_env_time", "is_attributed", "last_actor_id", "actor_rewards", "actor_done")


def play(env: StructuredEnv, seed: int, n_acts: int = 100) -> tuple[StateTrajectoryRecord, SpacesTrajectoryRecord]:
    """Both records of an episode of random acts, which is given up after so many."""
    states = TrajectoryRecordingWrapper(env)
    both = SpacesRecordingWrapper(states)
    both.reset(seed=seed)
    generator = np.random.default_rng(seed)
    for _ in range(n_acts):
        action = {}
        for head, space in both.action_space.spaces.items():
            space.seed(int(generator.integers(1000)))
            action[head] = space.sample()
        if any(both.step(action)[2:4]):
            break
    both.close()
    return states.trajectories[-1], both.trajectories[-1]


def as_saved_before(record: StateTrajectoryRecord) -> StateTrajectoryRecord:
    """Read the record from the file of a version that did not have the newer attributes."""

    class Old(pickle.Pickler):
        def reducer_override(self, value: Any) -> Any:
            if not isinstance(value, StateRecord | StateTrajectoryRecord):
                return NotImplemented
            names = [name for name in type(value).__slots__ if name not in OF_NOW]
            return copyreg.__newobj__, (type(value),), (None, {name: getattr(value, name) for name in names})  # type: ignore[attr-defined]

    file = io.BytesIO()
    Old(file).dump(record)
    read: StateTrajectoryRecord = pickle.loads(file.getvalue())
    return read


@pytest.mark.parametrize("attributed", [False, True])
@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("seed", range(3))
def test_states_become_the_space_record_of_the_same_episode(name: str, attributed: bool, seed: int) -> None:
    def make() -> StructuredEnv:
        return WRAPPERS[name](make_relay_env(attributed))

    states, expected = play(make(), seed)
    found = converted(states, make(), Spec.of(make()))
    for attribute in ("key_index", "agent_id", "env_time", "actor_done", "last_observation", "actor_reward"):
        np.testing.assert_equal(getattr(found, attribute), getattr(expected, attribute), attribute)
    np.testing.assert_allclose(found.reward, expected.reward)
    for attribute in ("terminated", "truncated", "last_env_time", "last_actor"):
        assert getattr(found, attribute) == getattr(expected, attribute)
    outcomes = IdentityWithNextObservationTrajectoryProcessor(0.9)
    np.testing.assert_equal(outcomes.process(found), outcomes.process(expected))
    for clip_k in (0, 1, 2):
        clip = DeadEndClippingTrajectoryProcessor(clip_k)
        np.testing.assert_equal(clip.process(found), clip.process(expected))


@pytest.mark.parametrize("n_acts", range(1, 9))
def test_states_of_an_abandoned_episode_end_as_its_space_record_does(n_acts: int) -> None:
    make = partial(make_relay_env, attributed=True, retires=True)
    states, expected = play(make(), 0, n_acts)
    found = converted(states, make(), Spec.of(make()))
    assert (found.last_env_time, found.last_actor) == (expected.last_env_time, expected.last_actor)
    np.testing.assert_equal(found.actor_reward, expected.actor_reward)
    np.testing.assert_equal(found.actor_done, expected.actor_done)
    np.testing.assert_equal(found.last_observation, expected.last_observation)


def test_files_of_earlier_versions_end_after_their_last_reward() -> None:
    for name in WRAPPERS:
        env = WRAPPERS[name](GymMazeEnv("Pendulum-v1"))
        states, expected = play(TimeLimitWrapper(env, 9), 1)
        old = as_saved_before(states)
        assert (old.last_env_time, old.is_attributed, old.steps[0].actor_rewards) == (None, None, None)
        assert old.n_env_steps == states.n_env_steps == expected.last_env_time
    assert StateTrajectoryRecord("without steps").n_env_steps == 0


def test_files_of_earlier_versions_are_no_demonstrations_where_rewards_are_attributed() -> None:
    processor = IdentityWithNextObservationTrajectoryProcessor()
    old = as_saved_before(play(make_relay_env(attributed=True), 0)[0])
    make = partial(make_relay_env, attributed=True)
    with pytest.raises(ValueError, match="holds no rewards of single acts, which earlier versions did not record"):
        InMemoryDataset(old, processor).load(make)
    assert len(InMemoryDataset(old).load(make)) == len(old.steps)

    def make_skipping() -> StructuredEnv:  # asks for rewards of actors, but there are none
        return StepSkipWrapper(GymMazeEnv("Pendulum-v1"), 2)

    old = as_saved_before(play(TimeLimitWrapper(make_skipping(), 9), 0)[0])
    assert len(InMemoryDataset(old, processor).load(make_skipping)) == len(old.steps)


def stacked(env: Any) -> StructuredEnv:
    return ObservationStackWrapper(env, [{"observation": "observation", "stack_steps": 3}])


def skipped(env: Any) -> StructuredEnv:
    return StepSkipWrapper(env, 3)


def randomly_reset(env: Any) -> StructuredEnv:
    return RandomResetWrapper(env, 2, 5)


@pytest.mark.parametrize("outer", [skipped, randomly_reset])
def test_stacks_around_wrappers_that_take_steps_are_converted_and_those_inside_are_refused(outer: Any) -> None:
    def make(wrappers: Any) -> StructuredEnv:
        env: Any = GymMazeEnv("Pendulum-v1")
        for wrap in wrappers:
            env = wrap(env)
        return TimeLimitWrapper(env, 12)

    states, expected = play(make([outer, stacked]), 1)
    found = converted(states, make([outer, stacked]), Spec.of(make([outer, stacked])))
    np.testing.assert_allclose(found.observation[0]["observation"], expected.observation[0]["observation"], atol=1e-6)
    np.testing.assert_allclose(found.last_observation["observation"], expected.last_observation["observation"])
    states, _ = play(make([stacked, outer]), 1)
    name = type(outer(GymMazeEnv("Pendulum-v1"))).__name__
    with pytest.raises(
        ValueError, match=rf"ObservationStackWrapper needs .* that {name} takes by itself .*around {name}"
    ):
        converted(states, make([stacked, outer]), Spec.of(make([stacked, outer])))
    every_step, _ = play(make([]), 1)  # whose states are all there
    assert len(converted(every_step, make([stacked, outer]), Spec.of(make([stacked, outer])))) == 12


def test_rewards_of_a_decision_with_other_acts_go_to_its_last_act() -> None:
    states, _ = play(TimeLimitWrapper(GymMazeEnv("Pendulum-v1"), 3), 0)
    states.is_attributed = True
    for step, rewards in zip(states.steps, ([1.0, 2.0], [4.0], None), strict=True):
        step.actor_rewards = rewards
    env = GymMazeEnv("Pendulum-v1")
    np.testing.assert_equal(converted(states, env, Spec.of(env)).actor_reward, [3.0, 4.0, np.nan])


def test_the_actor_of_a_flat_simulation_is_not_done_before_the_episode() -> None:
    states, expected = play(TimeLimitWrapper(GymMazeEnv("CartPole-v1"), 3), 0)
    states.steps[-1].actor_done = True
    found = converted(states, GymMazeEnv("CartPole-v1"), Spec.of(GymMazeEnv("CartPole-v1")))
    assert found.truncated and not found.actor_done.any() and not expected.actor_done.any()


def test_states_of_the_form_for_single_episodes_are_not_of_arrays() -> None:
    states, _ = play(TimeLimitWrapper(GymMazeEnv("CartPole-v1"), 3), 0)
    message = "array environments such as CartPoleArrayEnv convert only .*; pass the form for single episodes"
    with pytest.raises(ValueError, match=message):
        InMemoryDataset(states, trust=True).load(lambda: ArrayMazeEnv(CartPoleArrayEnv()))
    states, _ = play(TimeLimitWrapper(ArrayMazeEnv(CartPoleArrayEnv()), 3), 0)
    assert len(InMemoryDataset(states, trust=True).load(lambda: ArrayMazeEnv(CartPoleArrayEnv()))) == 3


def test_other_errors_than_foreign_states_are_shown_for_array_environments_too() -> None:
    states, _ = play(TimeLimitWrapper(StepSkipWrapper(ArrayMazeEnv(CartPoleArrayEnv()), 2), 5), 0)
    with pytest.raises(
        ValueError, match=r"cannot convert: .*ObservationStackWrapper needs the states .* around StepSkip"
    ):
        InMemoryDataset(states, trust=True).load(lambda: skipped(stacked(ArrayMazeEnv(CartPoleArrayEnv()))))

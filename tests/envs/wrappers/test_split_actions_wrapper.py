from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv, MazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.gym_action_conversion import GymActionConversion
from maze_pl.envs.gym_core_env import GymCoreEnv
from maze_pl.envs.gym_observation_conversion import GymObservationConversion
from maze_pl.envs.wrappers import (
    DiscretizeActionsWrapper,
    ObservationNormalizationWrapper,
    RandomResetWrapper,
    SplitActionsWrapper,
)
from maze_pl.envs.wrappers.sample_episodes import sample_episodes
from tests.envs.wrappers.environments import make_action_env, make_vector_heap_env

BOX = spaces.Box(np.array([-1, -2, -3], np.float32), np.array([1, 2, 3], np.float32))
SPLIT = {"action": {"first": {"indices": [2, 0]}, "second": {"indices": [1]}}}


def maze_env_parts(env: Any) -> Any:
    """What a MazeEnv around an environment of gymnasium consists of."""
    return (
        GymCoreEnv(env),
        {0: GymActionConversion(env.action_space)},
        {0: GymObservationConversion(env.observation_space)},
    )


@pytest.mark.parametrize(
    ("space", "parts", "whole"),
    [
        (BOX, {"first": np.float32([3, -1]), "second": np.float32([0.5])}, [-1, 0.5, 3]),
        (spaces.MultiDiscrete([2, 3, 4]), {"first": np.array([3, 1]), "second": np.array([2])}, [1, 2, 3]),
        (
            spaces.MultiDiscrete([2, 3, 4], start=[5, -2, 7]),
            {"first": np.array([10, 6]), "second": np.array([-2])},
            [6, -2, 10],
        ),
        (
            spaces.MultiDiscrete([2, 3, 4], dtype=np.int32),
            {"first": np.int32([3, 1]), "second": np.int32([2])},
            [1, 2, 3],
        ),
        (spaces.MultiBinary(3), {"first": np.int8([0, 1]), "second": np.int8([1])}, [1, 1, 0]),
    ],
)
def test_parts_are_joined_and_split_again(space: Any, parts: dict[str, Any], whole: list[float]) -> None:
    env = SplitActionsWrapper.wrap(make_action_env(space), split_config=SPLIT)
    assert env.action_space.contains(parts)
    assert {part.dtype for part in env.action_space.spaces.values()} == {space.dtype}
    joined = env.action(parts)
    assert list(joined) == ["action"]
    assert space.contains(joined["action"])
    np.testing.assert_array_equal(joined["action"], np.array(whole, space.dtype))
    np.testing.assert_equal(env.reverse_action(joined), parts)


def test_sampled_parts_of_a_space_with_starts_are_actions_of_the_environment() -> None:
    space = spaces.MultiDiscrete([2, 3, 4], start=[5, -2, 7])
    env = SplitActionsWrapper.wrap(make_action_env(space), split_config=SPLIT)
    env.reset(seed=0)
    for _ in range(20):
        assert space.contains(env.action(env.action_space.sample())["action"])


def test_spaces_have_the_bounds_of_their_entries() -> None:
    env = SplitActionsWrapper.wrap(make_action_env(BOX), split_config=SPLIT)
    first: Any = env.action_space["first"]
    assert (first.low.tolist(), first.high.tolist()) == ([-3, -1], [3, 1])
    env = SplitActionsWrapper.wrap(make_action_env(spaces.MultiDiscrete([2, 3, 4])), split_config=SPLIT)
    assert env.action_space["first"] == spaces.MultiDiscrete([4, 2])


def test_the_simulation_gets_the_joined_action_in_each_sub_step() -> None:
    env = SplitActionsWrapper.wrap(
        make_vector_heap_env(), split_config={"amount": {"a": {"indices": [0]}, "b": {"indices": [1]}}}
    )
    env.reset(seed=0)
    for key in ("plan", "work"):
        assert env.actor_id() == ActorID(key, 0)
        env.step({"a": np.float32([3]), "b": np.float32([1])})
        assert env.get_maze_action() == (key, 2)


def test_parts_can_be_discretised_apart() -> None:
    env = SplitActionsWrapper.wrap(make_action_env(BOX), split_config=SPLIT)
    env = DiscretizeActionsWrapper.wrap(env, discretization_config={"second": {"num_bins": 3}})  # type: ignore[assignment]
    assert env.action_space == spaces.Dict({"first": env.env.action_space["first"], "second": spaces.Discrete(3)})
    env.reset(seed=0)
    env.step({"first": np.float32([3, -1]), "second": 2})
    np.testing.assert_array_equal(env.get_maze_action(), [-1, 2, 3])


def test_the_seed_of_reset_determines_what_the_new_spaces_sample() -> None:
    env = SplitActionsWrapper.wrap(make_action_env(BOX), split_config=SPLIT)
    samples = []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        samples.append(str(env.action_space.sample()))
    assert samples[0] == samples[1] != samples[2]


@pytest.mark.parametrize(
    ("make", "config", "message"),
    [
        (make_action_env, {"move": {}}, r"\['move'\].*not among \['action'\]"),
        (make_action_env, {"action": {"a": {"indices": [0, 1]}}}, "divided exactly among.*'a'"),
        (make_action_env, {"action": {"a": {"indices": [0, 1, 2]}, "b": {"indices": [2]}}}, "divided exactly among"),
        (lambda: make_action_env(spaces.Discrete(3)), {"action": {"a": {"indices": [0]}}}, r"Discrete\(3\)"),
        (lambda: make_action_env(spaces.Box(0, 1, (2, 2))), {"action": {"a": {"indices": [0, 1]}}}, "vector"),
    ],
)
def test_splits_that_do_not_fit_the_space_are_refused(make: Any, config: Any, message: str) -> None:
    env: MazeEnv = make()
    with pytest.raises(ValueError, match=message):
        SplitActionsWrapper.wrap(env, split_config=config)


MASK = np.int8([0, 1, 1, 0, 1, 0, 0, 0, 1])  # of choices among 2, 3 and 4


class Choices(gymnasium.Env[Any, Any]):
    """Three choices, of which some options are allowed: 1; 0 or 2; 3."""

    action_space = spaces.MultiDiscrete([2, 3, 4])

    def __init__(self, kind: Any = None) -> None:
        self.observation_space = spaces.Dict({"m": kind or spaces.MultiBinary(9), "x": spaces.Box(-1, 1, (2,))})
        self.actions: list[list[int]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return {"m": MASK.astype(self.observation_space["m"].dtype), "x": np.zeros(2, np.float32)}, {}

    def step(self, action: Any) -> Any:
        self.actions.append(list(action))
        return *self.reset()[:1], 1.0, False, False, {}


@pytest.mark.parametrize("kind", [spaces.MultiBinary(9), spaces.Box(0, 1, (9,), np.float32)])
def test_masks_are_split_with_their_heads(kind: Any) -> None:
    inner = Choices(kind)
    wrappers: Any = [partial(SplitActionsWrapper, split_config=SPLIT), ObservationNormalizationWrapper]
    wrappers.append(partial(RandomResetWrapper, min_skip_steps=5, max_skip_steps=9))
    env = make_wrapped(lambda: GymMazeEnv(inner), wrappers, {"action": "m"})
    assert env.action_masks_dict == {0: {"first": "m-first", "second": "m-second"}}
    step = Spec.of(env).steps[0]
    assert step.masks == env.action_masks_dict[0]
    assert {name: part.shape for name, part in step.observation_space.items()} == {
        "x": (2,),
        "m-first": (6,),
        "m-second": (3,),
    }
    env.estimate(50, 0)
    sample_episodes(env, 100, 0, None)
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert observation["m-first"].tolist() == [0, 0, 0, 1, 0, 1]  # of the third choice, then of the first one
    assert observation["m-second"].tolist() == [1, 0, 1]
    assert {tuple(action) for action in inner.actions} == {(1, 0, 3), (1, 2, 3)}
    seen, _ = env.get_observation_and_action_dicts(env.get_maze_state(), None, True)
    assert seen is not None
    np.testing.assert_equal(seen[0], observation)


def test_a_mask_of_other_heads_too_stays_for_them() -> None:
    class Two(MazeEnv):
        action_masks_dict: ClassVar[Any] = {0: {"action": "m", "other": "m"}}

    env = Two(*maze_env_parts(Choices()))
    split = SplitActionsWrapper.wrap(env, split_config=SPLIT)
    assert split.action_masks_dict[0] == {"other": "m", "first": "m-first", "second": "m-second"}
    assert set(split.observation_space) == {"m", "x", "m-first", "m-second"}


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"action": "x"}, r"the mask 'x' of 'action' has shape \(2,\), expected \(9,\)"),
        ({"action": "y"}, "the mask 'y' of 'action' has shape None"),
    ],
)
def test_masks_that_cannot_be_split_are_refused(masks: dict[str, str], message: str) -> None:
    class Wrong(MazeEnv):
        action_masks_dict: ClassVar[Any] = {0: masks}

    with pytest.raises(ValueError, match=message):
        SplitActionsWrapper.wrap(Wrong(*maze_env_parts(Choices())), split_config=SPLIT)


def test_two_heads_of_one_name_are_refused() -> None:
    env = SplitActionsWrapper.wrap(make_action_env(BOX), split_config=SPLIT)
    with pytest.raises(ValueError, match=r"'second', 'third', 'second'\] have the same name"):
        SplitActionsWrapper.wrap(env, split_config={"first": {"second": {"indices": [0]}, "third": {"indices": [1]}}})

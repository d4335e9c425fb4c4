from __future__ import annotations

import doctest
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.config.factories import Factory
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv, ObservationWrapper, Wrapper, wrappers_of
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.checker import check_env
from maze_pl.envs.wrappers import (
    ActionMasksWrapper,
    LogStatsWrapper,
    NoDictSpacesWrapper,
    ObservationNormalizationWrapper,
    ObservationStackWrapper,
    PreProcessingWrapper,
    RandomResetWrapper,
    SortedSpacesWrapper,
    TimeLimitWrapper,
    action_masks_wrapper,
)
from maze_pl.envs.wrappers.sample_episodes import sample_episodes
from maze_pl.runs.rollout import rollout
from tests.envs.strict import N_OPTIONS, Strict
from tests.envs.structured_example import make_heap_env

MASKS = {"action": "allowed"}
Make = Callable[..., Any]


class HidesMasks(Wrapper):
    """Forgets what is declared further in."""

    @property
    def action_masks_dict(self) -> Any:
        return {key: {} for key in self.agent_counts_dict}


class Doubled(ObservationWrapper):
    """Shows masks of 0 and 2."""

    def observation(self, observation: Any) -> Any:
        return {**observation, "allowed": 2 * observation["allowed"]}


FLATTEN: Any = {"observation": "allowed", "class_path": "maze_pl.envs.wrappers.FlattenPreProcessor"}
FLATTEN["config"] = {"num_flatten_dims": 2}
STACK: Any = {"observation": "place", "stack_steps": 3}
normalized: Make = partial(ObservationNormalizationWrapper, default_strategy_config={"axis": 0})
started_later: Make = partial(RandomResetWrapper, min_skip_steps=1, max_skip_steps=6)
STACKS: dict[str, tuple[tuple[int, ...], dict[str, str], list[Make]]] = {
    "normalised": ((N_OPTIONS,), MASKS, [normalized]),
    "started later": ((N_OPTIONS,), MASKS, [started_later]),
    "all": (
        (N_OPTIONS,),
        MASKS,
        [SortedSpacesWrapper, started_later, normalized, partial(ObservationStackWrapper, stack_config=[STACK])],
    ),
    "flattened": (
        (N_OPTIONS, 1),
        {"action": "allowed-flatten"},
        [partial(PreProcessingWrapper, pre_processor_mapping=[FLATTEN]), started_later, normalized],
    ),
    "hidden": ((N_OPTIONS,), MASKS, [HidesMasks, started_later, normalized]),
}


@pytest.mark.parametrize("name", STACKS)
def test_masks_that_are_named_outside_are_heeded_by_all_wrappers(name: str) -> None:
    shape, masks, wrappers = STACKS[name]
    env = make_wrapped(lambda: GymMazeEnv(Strict(shape)), wrappers, masks)
    assert env.action_masks_dict == {0: masks}
    assert Spec.of(env) == Spec.of(env, masks=masks)
    env.estimate(100, seed=1)
    sample_episodes(env, 200, 1, None)  # refuses what is forbidden
    policy = partial(RandomPolicy, masks=env.action_masks_dict)
    played = rollout(
        lambda: GymMazeEnv(Strict(shape)), policy, 6, wrappers=wrappers, action_masks=masks, record=("spaces",)
    )
    for one in played:
        assert one.spaces is not None
        assert one.spaces.spec == Spec.of(env)
        assert set(np.unique(one.spaces.observation[0][masks["action"]])) == {0, 1}


def test_the_wrapper_is_as_far_inside_as_there_are_head_and_observation() -> None:
    def kinds(name: str) -> list[str]:
        shape, masks, wrappers = STACKS[name]
        env = make_wrapped(lambda: GymMazeEnv(Strict(shape)), wrappers, masks)
        return [type(one).__name__ for one in wrappers_of(env)][1:]

    assert kinds("started later") == ["RandomResetWrapper", "ActionMasksWrapper"]
    assert kinds("flattened")[1:] == ["RandomResetWrapper", "ActionMasksWrapper", "PreProcessingWrapper"]
    assert kinds("hidden")[1:] == ["RandomResetWrapper", "ActionMasksWrapper", "HidesMasks", "ActionMasksWrapper"]


def test_what_is_declared_already_is_left_as_it_is() -> None:
    env = make_wrapped(make_heap_env, (), {"amount": "amount_mask"})
    assert [type(one) for one in wrappers_of(env)] == [LogStatsWrapper]
    assert env.action_masks_dict == {"plan": {}, "work": {"amount": "amount_mask"}}


def test_a_mask_is_for_the_sub_steps_that_have_its_head_and_its_observation() -> None:
    env = ActionMasksWrapper(make_heap_env(), {"amount": "heap", "nothing": "amount_mask", "kind": "nothing"})
    assert env.action_masks_dict == {"plan": {"amount": "heap"}, "work": {"amount": "heap"}}


def test_steps_and_resets_pass_by_without_a_call() -> None:
    inner = GymMazeEnv(Strict())
    env = ActionMasksWrapper(inner, MASKS)
    assert (env.step, env.reset) == (inner.step, inner.reset)


def test_configurations_can_name_it() -> None:
    path = "maze_pl.envs.wrappers.ActionMasksWrapper"
    env = make_wrapped(lambda: GymMazeEnv(Strict()), [Factory(path, {"action_masks": MASKS}), started_later])
    assert env.action_masks_dict == {0: MASKS}
    env.reset(seed=3)


def test_other_libraries_know_no_masks() -> None:
    with pytest.raises(ValueError, match="without action masks"):
        make_wrapped(lambda: GymMazeEnv(Strict()), [NoDictSpacesWrapper], MASKS)


def test_the_doctor_plays_by_the_masks_in_all_wrappers_and_finds_what_they_become() -> None:
    limited: Make = partial(TimeLimitWrapper, max_episode_steps=9)
    sound = [*STACKS["all"][2], limited]
    report = check_env(
        partial(make_wrapped, lambda: GymMazeEnv(Strict()), sound, MASKS), n_steps=100, action_masks=MASKS
    )
    assert report.ok, str(report)
    spoiled = partial(make_wrapped, lambda: GymMazeEnv(Strict()), [Doubled], MASKS)
    report = check_env(spoiled, n_steps=50, action_masks=MASKS)
    (line,) = [line for line in report.lines if line.verdict == "error"]
    assert "Doubled (act 0): the mask 'allowed' of action head 'action' holds [2.0]" in (line.explanation)


def test_examples() -> None:
    assert doctest.testmod(action_masks_wrapper).failed == 0

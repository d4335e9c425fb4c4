"""Wrappers around arrays and around single environments give equal numbers and statistics."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.collector import Collector
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import (
    ArrayEnv,
    ArrayVectorEnv,
    CartPoleArrayEnv,
    GymMazeEnv,
    PendulumArrayEnv,
    SequentialVectorEnv,
    Wrapper,
)
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays.observation_array_wrapper import ObservationArrayWrapper
from maze_pl.envs.building import make_wrapped, wrapper_stack
from maze_pl.envs.checker.same_as import compare_envs
from maze_pl.envs.wrappers import (
    FlattenPreProcessor,
    MazeEnvMonitoringWrapper,
    ObservationNormalizationWrapper,
    ObservationStackWrapper,
    PreProcessingWrapper,
    RandomResetWrapper,
    ReturnNormalizationRewardWrapper,
    RewardClippingWrapper,
    RewardScalingWrapper,
    RunningObservationNormalizationWrapper,
    SpacesRecordingWrapper,
    TimeLimitWrapper,
    UnSqueezePreProcessor,
)
from tests.envs.arrays.yard import N_WORKERS, YardArrayEnv, make_yard
from tests.envs.cutting_2d.forms import arrays, single
from tests.envs.cutting_2d.instances import DOCUMENTED

Wrappers = list[Callable[[Any], Any]]
FORMS: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "CartPole": (partial(GymMazeEnv, "CartPole-v1"), CartPoleArrayEnv, "observation"),
    "Pendulum": (partial(GymMazeEnv, "Pendulum-v1"), PendulumArrayEnv, "observation"),
    "structured": (make_yard, YardArrayEnv, "load"),
    "cutting": (single("masked", DOCUMENTED), partial(arrays, "masked", DOCUMENTED), "inventory"),
}


def _rewards(name: str) -> Wrappers:
    return [
        partial(RewardScalingWrapper, scale=0.3),
        partial(ReturnNormalizationRewardWrapper, gamma=0.9),
        partial(RewardClippingWrapper, min_val=-1.5, max_val=1.2),
        partial(ReturnNormalizationRewardWrapper, gamma=0.5),
    ]


def _observations(name: str) -> Wrappers:
    observation = FORMS[name][2]
    stacks = [
        {"observation": observation, "stack_steps": 3, "keep_original": True, "tag": "stack"},
        {"observation": observation, "stack_steps": 2, "keep_original": True, "tag": "delta", "delta": True},
    ]
    mapping = [
        {"observation": f"{observation}-delta", "class_path": FlattenPreProcessor, "config": {"num_flatten_dims": 2}},
        {"observation": observation, "class_path": UnSqueezePreProcessor, "config": {"dim": 0}, "keep_original": True},
    ]
    return [
        partial(ObservationNormalizationWrapper, default_strategy_config={"axis": 0, "clip_range": [-2, 2]}),
        partial(ObservationStackWrapper, stack_config=stacks),
        partial(TimeLimitWrapper, max_episode_steps=9),
        partial(PreProcessingWrapper, pre_processor_mapping=mapping),
    ]


def _logging(name: str) -> Callable[[Any], Any]:
    """Monitoring of everything; of cutting-2D, the form for single episodes is a wrapper itself, with a flat inside."""
    observes = name != "cutting"
    return partial(MazeEnvMonitoringWrapper, observation_logging=observes, action_logging=True, reward_logging=True)


def _monitoring(name: str) -> Wrappers:
    return [partial(RewardScalingWrapper, scale=0.3), *_observations(name), _logging(name)]


def _running(name: str) -> Wrappers:
    """Statistics of all observations so far, inside of others that depend on them."""
    wrappers = _observations(name)
    tables = ["inventory"] if name == "cutting" else None
    options: dict[str, Any] = {"clip_range": [-2, 3], "weight": 20, "shared_rows": tables}
    return [partial(RunningObservationNormalizationWrapper, **options), *wrappers[1:]]


WRAPPERS = {"rewards": _rewards, "observations": _observations, "running": _running, "monitoring": _monitoring}


def _both(name: str, wrappers: Wrappers, n_envs: int = 5, seed: int = 1) -> tuple[Any, Any]:
    make, make_arrays, _ = FORMS[name]
    one = SequentialVectorEnv([partial(make_wrapped, make, wrappers)] * n_envs, seed=seed)
    other = ArrayVectorEnv(partial(make_wrapped_arrays, make_arrays, wrappers), n_envs, seed=seed)
    states = SequentialVectorEnv([partial(make_wrapped, make, wrappers)]).estimate(120, 7)
    one.load_shared_states(states)
    other.load_shared_states(states)
    return one, other


def _assert_equal(one: Any, other: Any) -> None:
    """Compare trees of numbers and arrays."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name, part in one.items():
            _assert_equal(part, other[name])
    else:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", WRAPPERS)
@pytest.mark.parametrize("name", FORMS)
def test_steps_statistics_and_merged_statistics_are_equal(name: str, kind: str) -> None:
    one, other = _both(name, WRAPPERS[kind](name))
    classes = {path: type(wrapper) for path, wrapper in wrapper_stack(one.envs[0]).items()}
    for _ in range(2):
        comparison = compare_envs(lambda: one, lambda: other, n_steps=300)
        assert comparison.difference is None, str(comparison.difference)
        assert comparison.n_episodes or name in ("Pendulum", "cutting")
        states = one.shared_states()
        for own, state in zip(states, other.shared_states(), strict=True):
            _assert_equal(own, state)
        merged = {path: classes[path].merge_shared_states([state[path] for state in states]) for path in states[0]}
        one.load_shared_states(merged)
        other.load_shared_states(merged)


def _logged(name: str) -> tuple[Any, Any]:
    """Both forms with monitoring, and episodes that are longer than a sample."""
    history = {"observation": FORMS[name][2], "stack_steps": 30, "keep_original": True, "tag": "past"}
    stack = partial(ObservationStackWrapper, stack_config=[history])  # so many numbers that some are drawn
    return _both(name, [stack, _logging(name), partial(TimeLimitWrapper, max_episode_steps=110)], n_envs=3)


@pytest.mark.parametrize("name", FORMS)
def test_samples_of_long_episodes_are_equal(name: str) -> None:
    one, other = _logged(name)
    comparison = compare_envs(lambda: one, lambda: other, n_steps=800)
    assert comparison.difference is None, str(comparison.difference)
    assert comparison.n_episodes


@pytest.mark.parametrize("name", FORMS)
def test_samples_are_saved(name: str) -> None:
    (_, first), (_, second) = _logged(name), _logged(name)
    spaces_by_key = {key: step.action_space for key, step in first.spec.steps.items()}
    for space in spaces_by_key.values():
        space.seed(2)
    first.reset()
    for act in range(300):
        if act == 150:
            second.load_state_dict(copy.deepcopy(first.state_dict()))
            assert [str(one) for one in first.drain_summaries()] == [str(one) for one in second.drain_summaries()]
        for key, space in spaces_by_key.items():
            for head, part in space.spaces.items():
                actions = [part.sample() for _ in range(3)]
                for vector in (first, second):
                    vector.staging.action[key][head][...] = actions
        first.step()
        if act >= 150:
            second.step()
    drained = [list(vector.drain_summaries()) for vector in (first, second)]
    assert drained[0]
    for own, again in zip(*drained, strict=True):
        _assert_equal(own.statistics, again.statistics)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", WRAPPERS)
@pytest.mark.parametrize("name", FORMS)
def test_many_seeds_give_equal_steps_and_statistics(name: str, kind: str) -> None:
    for seed in range(60):
        one, other = _both(name, WRAPPERS[kind](name), n_envs=1 + seed % 7, seed=seed)
        comparison = compare_envs(lambda one=one: one, lambda other=other: other, n_steps=150)
        assert comparison.difference is None, str(comparison.difference)
        for own, state in zip(one.shared_states(), other.shared_states(), strict=True):
            _assert_equal(own, state)


def test_frozen_statistics_do_not_change() -> None:
    one, other = _both("structured", _rewards("structured"))
    compare_envs(lambda: one, lambda: other, n_steps=100)
    state = one.shared_states()[0]
    one.load_shared_states(state, freeze=True)
    other.load_shared_states(state, freeze=True)
    assert compare_envs(lambda: one, lambda: other, n_steps=100).difference is None
    for own in other.shared_states():
        _assert_equal(own, state)


@pytest.mark.parametrize("kind", WRAPPERS)
def test_a_collector_resumes_exactly_with_wrappers(kind: str) -> None:
    def collector() -> Collector:
        return Collector(_both("structured", WRAPPERS[kind]("structured"))[1], 13, torch.Generator().manual_seed(3))

    whole = collector()
    steps = whole.vector.spec.steps
    spaces = {key: step.action_space for key, step in steps.items()}
    policy = RandomPolicy(spaces, {key: step.masks for key, step in steps.items()})
    for _ in range(2):
        whole.collect(policy)
    resumed = collector()
    assert resumed.load_state_dict(whole.state_dict()) == []
    for _ in range(2):
        rows = whole.collect(policy).rows
        assert torch.equal(resumed.collect(policy).rows.reward, rows.reward)
        for before, after in zip(whole.vector.shared_states(), resumed.vector.shared_states(), strict=True):
            _assert_equal(before, after)


def test_refuses_wrappers_without_an_array_form_and_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="RandomResetWrapper changes single episodes and has no array form; leave it"):
        make_wrapped_arrays(CartPoleArrayEnv, [partial(RandomResetWrapper, min_skip_steps=1, max_skip_steps=3)])

    class Rounded(RewardScalingWrapper):
        def reward(self, reward: float) -> float:
            return round(reward)

    with pytest.raises(ValueError, match=r"Rounded changes \['reward'\] of RewardScalingWrapper, whose array form"):
        make_wrapped_arrays(CartPoleArrayEnv, [partial(Rounded, scale=2.0)])


def test_an_array_form_that_cannot_be_made_is_named() -> None:
    class Unfinished(ObservationArrayWrapper):
        def observations(self, key: Any, observation: Any, which: Any, agents: Any) -> Any:
            return observation

    class Delta(Wrapper):
        def array_form(self, env: ArrayEnv) -> ArrayEnv:
            return Unfinished(env)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=r"^array_form of Delta failed: .* missing .* 'observation_spaces_dict'$"):
        make_wrapped_arrays(CartPoleArrayEnv, [Delta])


def _stacked_yard(observation: str, n_workers: int) -> ArrayVectorEnv:
    """A yard with so many workers, or -1, and stacks of an observation."""

    class Yard(YardArrayEnv):
        agent_counts_dict: Any = {**YardArrayEnv.agent_counts_dict, "work": n_workers}  # noqa: RUF012

    config = {"observation": observation, "stack_steps": 3, "keep_original": True, "tag": "stack"}
    stack = partial(ObservationStackWrapper, stack_config=[config])
    spec = Spec.of(Yard(), {"work": N_WORKERS} if n_workers < 0 else None)
    return ArrayVectorEnv(partial(make_wrapped_arrays, Yard, [stack]), 2, seed=3, spec=spec)


def test_sub_steps_without_stacks_may_have_varying_agents() -> None:
    varying, fixed = _stacked_yard("allowed", -1), _stacked_yard("allowed", N_WORKERS)
    for vector in (varying, fixed):
        vector.reset()
    for _ in range(12):
        for vector in (varying, fixed):
            vector.step()
        _assert_equal(varying.staging.observation, fixed.staging.observation)
    assert varying.state_dict().keys() == fixed.state_dict().keys()
    with pytest.raises(ValueError, match="sub-step 'work' has a varying number of agents, which stacks in arrays do"):
        _stacked_yard("worker", -1)


def test_a_wrapper_that_records_varying_agents_has_no_array_form() -> None:
    class Yard(YardArrayEnv):
        agent_counts_dict: Any = {"plan": 1, "work": -1}  # noqa: RUF012

    with pytest.raises(ValueError, match="SpacesRecordingWrapper changes single episodes and has no array form"):
        make_wrapped_arrays(Yard, [SpacesRecordingWrapper])


def test_pre_processors_that_override_only_process_are_applied_one_by_one() -> None:
    class Reversed(FlattenPreProcessor):
        tag = "reversed"

        def process(self, observation: Any) -> Any:
            return super().process(observation)[::-1]

    entry = {"observation": "observation", "class_path": Reversed, "config": {"num_flatten_dims": 1}}
    one, other = _both("CartPole", [partial(PreProcessingWrapper, pre_processor_mapping=[entry])])
    assert compare_envs(lambda: one, lambda: other, n_steps=60).difference is None


def test_refuses_statistics_of_other_wrappers() -> None:
    _, other = _both("CartPole", _rewards("CartPole"))
    with pytest.raises(ValueError, match=r"there are statistics of wrappers \['other'\], but those of the array"):
        other.load_shared_states({"other": {}})
    with pytest.raises(ValueError, match="there are no statistics for the wrapper"):
        other.load_shared_states({})


def test_a_wrapper_that_has_nothing_to_do_in_arrays_leaves_the_names_of_others() -> None:
    class Idle(Wrapper):
        def array_form(self, env: ArrayEnv) -> ArrayEnv:
            return env

    names = []
    for wrappers in ([ReturnNormalizationRewardWrapper], [ReturnNormalizationRewardWrapper, Idle]):
        vector = ArrayVectorEnv(partial(make_wrapped_arrays, CartPoleArrayEnv, wrappers), 2)
        names.append([*vector.shared_states()[0]])
    path = f"{ReturnNormalizationRewardWrapper.__module__}.{ReturnNormalizationRewardWrapper.__qualname__}"
    assert names == [[path], [path]]

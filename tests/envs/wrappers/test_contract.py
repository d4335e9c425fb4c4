"""What every wrapper must do, whatever it changes."""

from __future__ import annotations

import doctest
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from maze_pl.collect import Collector
from maze_pl.config.factories import Factory
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv, MazeEnv, Wrapper, wrappers_of
from maze_pl.envs import wrappers as all_wrappers
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.vector.sequential_vector_env import SequentialVectorEnv
from maze_pl.envs.vector.subproc_vector_env import SubprocVectorEnv
from maze_pl.envs.wrappers import (
    LogStatsWrapper,
    ObservationStackWrapper,
    RewardScalingWrapper,
    TimeLimitWrapper,
)
from tests.envs.structured_example import HeapCoreEnv
from tests.envs.wrappers.cases import (
    CASES,
    ENVIRONMENTS,
    NAMED,
    NOT_IN_FILES,
    NOT_TWICE,
    STEPS_BY_ITSELF,
    WRAPPERS,
    build,
    maze_env_of,
    options_of,
    plain,
    play,
    with_dicts,
    wrap,
)
from tests.exact.comparison import differences


@pytest.fixture(params=CASES, ids=[f"{wrapper.__name__}-{name}" for wrapper, name in CASES])
def case(request: pytest.FixtureRequest) -> tuple[type[Wrapper], str]:
    return request.param


@pytest.fixture
def make(case: tuple[type[Wrapper], str]) -> Callable[[], Wrapper]:
    return lambda: build(*case)


def test_every_wrapper_of_the_package_is_in_the_table() -> None:
    exported = {value for value in vars(all_wrappers).values() if inspect.isclass(value) and issubclass(value, Wrapper)}
    assert exported == set(WRAPPERS)
    assert {wrapper for wrapper, _ in CASES} == set(WRAPPERS)


@pytest.mark.parametrize("wrapper", list(WRAPPERS), ids=lambda wrapper: wrapper.__name__)
def test_the_example_in_its_description_runs(wrapper: type[Wrapper]) -> None:
    module = vars(sys.modules[wrapper.__module__])
    (example,) = doctest.DocTestFinder(recurse=False).find(wrapper, wrapper.__name__, globs=dict(module))
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_observations_are_in_the_spaces(make: Callable[[], Wrapper]) -> None:
    assert len(play(make(), 40)) == 40


def test_the_same_seed_gives_the_same_acts(make: Callable[[], Wrapper]) -> None:
    assert play(make(), 300) == play(make(), 300)


def test_spec_is_the_same_for_each_copy_and_survives_being_written(make: Callable[[], Wrapper]) -> None:
    spec = Spec.of(with_dicts(make()))
    assert Spec.from_dict(spec.to_dict()) == spec == Spec.of(with_dicts(make()))


def test_the_rest_of_the_interface_is_passed_on(make: Callable[[], Wrapper]) -> None:
    env = make()
    inner = maze_env_of(env)
    env.reset(seed=3)
    start = env.get_env_time()
    env.step(env.action_space.sample())
    assert env.actor_id() == inner.actor_id()
    assert env.agent_counts_dict == inner.agent_counts_dict
    assert env.action_masks_dict == inner.action_masks_dict
    assert env.get_env_time() == inner.get_env_time()
    assert env.get_env_time() - start <= 1 or type(env) in STEPS_BY_ITSELF
    assert env.get_episode_id() == inner.get_episode_id()
    assert env.get_serializable_components() == inner.get_serializable_components()
    assert env.get_renderer() is inner.get_renderer()
    assert type(env.get_kpi_calculator()) is type(inner.get_kpi_calculator())
    assert len(env.get_step_events()) == len(inner.get_step_events()) > 0
    assert env.pubsub is env.core_env.pubsub
    assert env.context is env.core_env.context
    np.testing.assert_equal(env.get_maze_state(), inner.get_maze_state())
    np.testing.assert_equal(env.get_maze_action(), inner.get_maze_action())
    assert env.np_random is inner.np_random
    assert env.spec is inner.spec


def test_options_of_reset_reach_the_environment(case: tuple[type[Wrapper], str]) -> None:
    env = build(*case)
    if not isinstance(env.unwrapped, GymMazeEnv):  # of which CartPole has options, and Pendulum
        with pytest.raises(ValueError, match="takes no options"):
            env.reset(options={"level": 2})
    elif case[1] == "flat":
        with pytest.raises(ValueError, match="low"):
            env.reset(options={"low": 2.0, "high": -2.0})


def test_isinstance_sees_the_wrapper_and_what_it_wraps(case: tuple[type[Wrapper], str]) -> None:
    env = TimeLimitWrapper.wrap(RewardScalingWrapper.wrap(with_dicts(build(*case)), scale=1.0), max_episode_steps=10)
    assert isinstance(env, case[0])
    assert isinstance(env, MazeEnv)
    assert type(maze_env_of(env)) in (MazeEnv, GymMazeEnv)


def test_a_copy_goes_on_where_a_pickle_was_made(make: Callable[[], Wrapper]) -> None:
    env = make()
    play(env, 5)
    copy = pickle.loads(pickle.dumps(env))
    assert play(copy, 30, seed=9) == play(env, 30, seed=9)


def test_a_copy_that_gets_the_state_goes_on_like_the_original(make: Callable[[], Wrapper]) -> None:
    env, other = make(), make()
    play(env, 33)
    other.load_state_dict(env.state_dict())
    assert play(other, 30, seed=9) == play(env, 30, seed=9)


def test_merged_states_make_copies_equal(make: Callable[[], Wrapper]) -> None:
    envs = [make() for _ in range(3)]
    for i, env in enumerate(envs):
        play(env, 20 + i, seed=i)
    states = [env.shared_state() for env in envs]
    before = pickle.dumps(states)
    merged = type(envs[0]).merge_shared_states(states)
    assert pickle.dumps(states) == before
    for env in envs:
        env.load_shared_state(merged)
    np.testing.assert_equal([env.shared_state() for env in envs], [merged] * 3)
    logs = [play(env, 10, seed=5) for env in envs]
    assert logs[0] == logs[1] == logs[2]


def test_a_state_is_rebased_onto_what_other_copies_have_added(make: Callable[[], Wrapper]) -> None:
    late, other, reference = make(), make(), make()
    kind = type(late)
    begun = kind.merge_shared_states([late.shared_state()])
    late.load_shared_state(begun)
    play(late, 25, seed=1)
    state = late.shared_state()
    np.testing.assert_equal(kind.rebase_shared_state(state, begun), state)  # nothing was added
    other.load_shared_state(begun)
    play(other, 20, seed=2)
    current = kind.merge_shared_states([other.shared_state()])
    before = pickle.dumps((state, current))
    rebased = kind.rebase_shared_state(state, current)
    assert pickle.dumps((state, current)) == before
    reference.load_shared_state(current)
    play(reference, 25, seed=1)
    assert_close(rebased, reference.shared_state())


def assert_close(one: Any, other: Any) -> None:
    """Compare trees of numbers and arrays, which may be rounded differently."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name, part in one.items():
            assert_close(part, other[name])
    else:
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_frozen_copy_learns_nothing_more(make: Callable[[], Wrapper]) -> None:
    env = make()
    play(env, 20)
    env.freeze()
    before = env.shared_state()
    play(env, 20, seed=4)
    np.testing.assert_equal(env.shared_state(), before)


def test_close_reaches_the_simulation(case: tuple[type[Wrapper], str]) -> None:
    env = build(*case)
    env.close()
    if isinstance(env.core_env, HeapCoreEnv):
        assert env.core_env.closed


def test_a_wrapper_can_be_applied_twice_or_says_why_not(case: tuple[type[Wrapper], str]) -> None:
    wrapper, name = case
    env = build(*case)
    if wrapper in NOT_TWICE:
        with pytest.raises((TypeError, ValueError), match="Wrapper"):
            build(wrapper, name, env)
        return
    if wrapper is ObservationStackWrapper:
        env = wrapper.wrap(env, stack_config=[{"observation": next(iter(env.observation_space)), "stack_steps": 2}])
    else:
        env = build(wrapper, name, env)
    assert [type(layer) for layer in wrappers_of(env)] == [wrapper, wrapper]
    copy = pickle.loads(pickle.dumps(env))
    assert play(env, 100) == play(copy, 100)


def test_recorded_states_are_converted_to_what_was_seen_and_done(case: tuple[type[Wrapper], str]) -> None:
    env, other = build(*case), build(*case)
    if case[1].startswith("structured"):
        with pytest.raises(ValueError, match="does not tell which of the sub-steps"):
            env.get_observation_and_action_dicts(None, None, True)
        return
    for episode in range(2):  # a second one, for what must be forgotten
        observation, _ = env.reset(seed=episode)
        for step in range(3):
            state = np.copy(env.get_maze_state())
            action = env.action_space.sample()
            after, _, terminated, truncated, _ = env.step(action)
            seen, done = other.get_observation_and_action_dicts(state, env.get_maze_action(), step == 0)
            assert plain(seen) == {0: plain(observation)}
            both = (np.concatenate([np.ravel(v) for v in leaves(x)]) for x in (done, {0: action}))
            np.testing.assert_allclose(*both, rtol=1e-6, atol=1e-6)
            observation = after
            if terminated or truncated:
                break


def leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree.values() for leaf in leaves(part)] if isinstance(tree, dict) else [tree]


def run_vector(kind: Any, factory: Callable[[], Any], learned: dict[str, Any], n_acts: int = 12) -> list[Any]:
    """What two environments with random actions show, from what they stage."""
    vector = kind([factory] * 2, seed=3)
    try:
        vector.load_shared_states(learned)
        vector.reset()
        generator, log = np.random.default_rng(0), []
        for _ in range(n_acts):
            for step in vector.spec.steps.values():
                step.action_space.seed(int(generator.integers(1000)))
            for key, heads in vector.staging.action.items():
                for n in range(2):
                    for head, value in vector.spec.steps[key].action_space.sample().items():
                        heads[head][n] = value
            vector.step()
            staging = vector.staging
            arrays = [staging.reward, staging.terminated, staging.truncated, staging.env_steps, staging.next_key]
            log.append([array.tolist() for array in arrays])
            for n, index in enumerate(staging.next_key.tolist()):
                seen = staging.observation[vector.spec.step_keys[index]]
                log.append({name: array[n].tolist() for name, array in seen.items()})
        log.append([(summary.env_index, summary.reward) for summary in vector.drain_summaries()])
        return log
    finally:
        vector.close()


@pytest.mark.parametrize("wrapper", list(WRAPPERS), ids=lambda wrapper: wrapper.__name__)
def test_vector_environments_of_both_kinds_show_the_same(wrapper: type[Wrapper]) -> None:
    name = [name for kind, name in CASES if kind is wrapper][-1]
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # or each process would import pytest
    probe = SequentialVectorEnv([lambda: with_dicts(build(wrapper, name))])
    (learned,) = probe.shared_states()
    kinds = (SequentialVectorEnv, SubprocVectorEnv)
    logs = [run_vector(kind, lambda: with_dicts(wrap(wrapper, name)), learned) for kind in kinds]
    assert logs[0] == logs[1]


@pytest.mark.parametrize("wrapper", list(WRAPPERS), ids=lambda wrapper: wrapper.__name__)
def test_a_resumed_collection_goes_on_exactly(wrapper: type[Wrapper]) -> None:
    name = [name for kind, name in CASES if kind is wrapper][-1]

    def collector(seed: int) -> Collector:
        vector = SequentialVectorEnv([lambda: with_dicts(build(wrapper, name))] * 2, seed=3)
        return Collector(vector, 13, torch.Generator().manual_seed(seed))

    whole, resumed = collector(1), collector(2)
    env: Any = whole.vector.envs[0]  # type: ignore[attr-defined]
    policy = RandomPolicy(env.action_spaces_dict, env.action_masks_dict)
    whole.collect(policy)
    assert resumed.load_state_dict(whole.state_dict()) == []
    expected, again = whole.collect(policy), resumed.collect(policy)
    for key, segment in expected.segments.items():
        for part in ("observation", "action", "reward"):
            assert differences(getattr(segment, part), getattr(again.segments[key], part)) == []
    assert [summary.reward for summary in again.summaries] == [summary.reward for summary in expected.summaries]


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_five_from_a_file_work_together(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMED))
    fitting = [wrapper for wrapper, other in CASES if other == name and wrapper not in NOT_TWICE | NOT_IN_FILES]
    chosen = data.draw(st.lists(st.sampled_from(fitting), min_size=5, max_size=5))
    text = yaml.safe_dump(
        [
            {"class_path": f"maze_pl.envs.wrappers.{wrapper.__name__}", "init_args": options_of(wrapper, name)}
            for wrapper in chosen
        ]
    )
    factories = [Factory(**node) for node in yaml.safe_load(text)]
    env, copy = (make_wrapped(ENVIRONMENTS[name], factories) for _ in range(2))
    try:
        for one in (env, copy):
            one.estimate(30, seed=1)
        logs = [play(one, 30) for one in (env, copy)]
    except ValueError as error:
        assume("the episode ended within the first" not in str(error))  # a random reset around long steps, or a limit
        raise
    assert [type(layer) for layer in wrappers_of(env)] == [LogStatsWrapper, *reversed(chosen)]
    assert all(isinstance(env, wrapper) for wrapper in chosen)
    assert logs[0] == logs[1]

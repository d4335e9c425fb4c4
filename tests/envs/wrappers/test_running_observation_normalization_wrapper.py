from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import (
    ArrayVectorEnv,
    CartPoleArrayEnv,
    GymMazeEnv,
    ObservationWrapper,
    SequentialVectorEnv,
    Wrapper,
)
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays.array_wrapper import allocate
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    ObservationStackWrapper,
    RunningObservationNormalizationWrapper,
    TimeLimitWrapper,
)
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import make_heap_env

KIND = RunningObservationNormalizationWrapper
GIVEN = {"observation": {"mean": [1.0, 0.0, 0.0, 2.0], "std": [2.0, 1.0, 1.0, 4.0]}}
STACK = {"observation": "observation", "keep_original": False, "tag": None, "stack_steps": 3}


def cartpole(**options: Any) -> KIND:
    env = KIND.wrap(GymMazeEnv("CartPole-v1"), **options)
    env.set_normalization_statistics(GIVEN)
    return env


def observe(env: Any, n_acts: int = 5, seed: int = 0) -> np.ndarray:
    """Observations of the first acts of an episode."""
    observations = [env.reset(seed=seed)[0]["observation"]]
    observations += [env.step({"action": act % 2})[0]["observation"] for act in range(n_acts)]
    return np.stack(observations)


def merge(env: KIND) -> None:
    env.load_shared_state(env.merge_shared_states([env.shared_state()]))


def test_statistics_are_those_of_all_observations_so_far() -> None:
    env = cartpole(weight=1, clip_range=[None, None])
    raw = observe(GymMazeEnv("CartPole-v1"))
    mean, std = (np.array(GIVEN["observation"][name]) for name in ("mean", "std"))
    np.testing.assert_allclose(observe(env), (raw - mean) / std, rtol=1e-6)
    merge(env)
    n = 1 + len(raw)
    new_mean = (mean + raw.sum(0)) / n
    new_m2 = std**2 + (mean - new_mean) ** 2 + ((raw - new_mean) ** 2).sum(0)
    np.testing.assert_allclose(observe(env), (raw - new_mean) / np.sqrt(new_m2 / n), rtol=1e-4, atol=1e-5)


def test_statistics_stay_the_same_within_an_episode() -> None:
    env, other = cartpole(weight=1), cartpole(weight=1)
    for one in (env, other):
        observe(one, 3)
    merge(env)
    np.testing.assert_equal(env.step({"action": 0})[0], other.step({"action": 0})[0])
    assert not np.array_equal(observe(env), observe(other))


def test_values_far_from_the_statistics_are_clipped() -> None:
    env = cartpole(clip_range=[-0.25, None])
    assert env.observation_space["observation"].low.tolist() == [-0.25] * 4
    assert observe(env).min() == -0.25


def test_frozen_statistics_hold_at_once_and_stay_the_same() -> None:
    env = cartpole(weight=1)
    observe(env, 3)
    before = env.step({"action": 0})[0]["observation"]
    state = env.merge_shared_states([env.shared_state()])
    env.load_shared_state(state)
    env.freeze()
    mean = env.get_normalization_statistics()["observation"]["mean"]
    np.testing.assert_equal(mean, state["observation"]["mean"])
    assert not np.array_equal(env.observation({"observation": before})["observation"], before)
    observe(env)
    np.testing.assert_equal(env.shared_state(), state)


def test_estimated_statistics_count_as_many_observations_as_the_weight() -> None:
    env = KIND.wrap(GymMazeEnv("CartPole-v1"), weight=7)
    env.estimate(200, seed=1)
    state = env.shared_state()["observation"]
    assert (state["n"], state["n_new"]) == (7, 0)  # what was sampled is not counted again
    np.testing.assert_allclose(state["mean"], env.get_normalization_statistics()["observation"]["mean"])


def test_recorded_observations_are_not_counted() -> None:
    env = cartpole()
    observe(env)
    before = env.shared_state()
    env.get_observation_and_action_dicts(env.get_maze_state(), {"action": 0}, first_step_in_episode=True)
    np.testing.assert_equal(env.shared_state(), before)


def test_elements_that_stay_the_same_become_zero() -> None:
    env = cartpole(weight=1)
    for _ in range(3):
        env._moments["observation"].add(np.array([1.0, 0.0, 0.0, 2.0], np.float32))
    merge(env)
    env.reset(seed=0)
    same = np.array([1.0, 0.0, 0.0, 2.0], np.float32)
    np.testing.assert_equal(env.observation({"observation": same})["observation"], np.zeros(4, np.float32))


def test_masks_and_excluded_observations_are_left_alone() -> None:
    env = KIND.wrap(GymMazeEnv("CartPole-v1"), exclude=["observation"])
    np.testing.assert_equal(observe(env), observe(GymMazeEnv("CartPole-v1")))
    assert env.shared_state() == {}


@pytest.mark.parametrize("n_rollouts", [1, 2, 3])
def test_a_resumed_run_goes_on_exactly_after_statistics_changed_within_episodes(n_rollouts: int) -> None:
    wrappers = [
        partial(TimeLimitWrapper, max_episode_steps=12),
        partial(KIND, weight=5),
        partial(ObservationStackWrapper, stack_config=[STACK]),
    ]
    factories = [partial(make_wrapped, partial(GymMazeEnv, "CartPole-v1"), wrappers)] * 2

    def collect(vector: SequentialVectorEnv, n: int) -> list[Any]:
        vectors = []
        for _ in range(n):
            for _ in range(5):
                vectors.append({name: rows.copy() for name, rows in vector.staging.observation[0].items()})
                vector.staging.action[0]["action"][:] = len(vectors) % 2
                vector.step([0, 1])
            name = next(iter(vector.shared_states()[0]))
            merged = KIND.merge_shared_states([state[name] for state in vector.shared_states()])
            vector.load_shared_states({name: merged})
        return vectors

    vector = SequentialVectorEnv(factories, seed=3)
    vector.load_shared_states(vector.estimate(50, 1))
    vector.reset()
    collect(vector, n_rollouts)
    state = vector.state_dict()
    other = SequentialVectorEnv(factories, seed=3)
    other.load_shared_states(vector.estimate(50, 1))
    assert other.load_state_dict(state) == []
    np.testing.assert_equal(collect(other, 3), collect(vector, 3))


def test_observations_that_random_play_does_not_reach_begin_as_they_are() -> None:
    class NamedByStep(ObservationWrapper):
        @property
        def observation_spaces_dict(self) -> dict[str, spaces.Dict]:
            return {key: spaces.Dict({key: spaces.Box(0, 100, (1,))}) for key in ("plan", "work")}

        def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
            return {self.env.actor_id().step_key: observation["heap"]}

    env = KIND.wrap(NamedByStep(make_heap_env()))
    env.estimate(1, seed=0)  # the planner's first observation only
    statistics = env.get_normalization_statistics()
    assert (statistics["work"]["mean"], statistics["work"]["std"]) == (0.0, 1.0)


def test_observations_that_differ_between_sub_steps_are_left_alone() -> None:
    class SameName(Wrapper):
        @property
        def observation_spaces_dict(self) -> dict[str, spaces.Dict]:
            sizes = {"plan": 2, "work": 3}
            return {key: spaces.Dict({"same": spaces.Box(-1, 1, (size,))}) for key, size in sizes.items()}

    assert not KIND(SameName(make_heap_env())).strategies
    with pytest.raises(ValueError, match="rename one"):
        ObservationNormalizationWrapper(SameName(make_heap_env()))


def test_a_changed_window_counts_from_the_next_merge_on() -> None:
    earlier, env = cartpole(weight=5), cartpole(weight=5, window=6)
    other = KIND.merge_shared_states([earlier.shared_state()])
    observe(earlier, 9)
    env.load_shared_state(KIND.merge_shared_states([earlier.shared_state()]))
    rebased = KIND.rebase_shared_state(env.shared_state(), other)
    for state in (env.shared_state(), rebased):
        assert KIND.merge_shared_states([state])["observation"]["n"] <= 6


def test_first_statistics_may_be_given() -> None:
    env = KIND.wrap(GymMazeEnv("CartPole-v1"), statistics=GIVEN)
    np.testing.assert_equal(env.shared_state(), cartpole().shared_state())
    assert env.configured_statistics == {}  # they change
    with pytest.raises(
        ValueError, match=r"^RunningObservationNormalizationWrapper: observation 'observation': .* positive"
    ):
        KIND.wrap(GymMazeEnv("CartPole-v1"), statistics={"observation": {"mean": 0, "std": 0}})


class TwoParts(ObservationWrapper):
    """The observation of CartPole in two parts."""

    @property
    def observation_spaces_dict(self) -> dict[int, spaces.Dict]:
        part = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        return {0: spaces.Dict({"first": part, "second": part})}

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        first, second = np.split(observation["observation"], 2)
        return {"first": first, "second": second}


def test_statistics_that_are_not_given_are_estimated() -> None:
    given = {"first": {"mean": 3.0, "std": 2.0}}
    env = KIND.wrap(TwoParts(GymMazeEnv("CartPole-v1")), statistics=given)
    env.estimate(50, seed=0)
    state = env.shared_state()
    np.testing.assert_equal(state["first"]["mean"], [3.0, 3.0])
    assert state["second"]["m2"].min() > 0


def test_arrays_begin_with_statistics_that_are_given() -> None:
    wrappers = [partial(KIND, statistics=GIVEN)]
    vector = ArrayVectorEnv(partial(make_wrapped_arrays, CartPoleArrayEnv, wrappers), 2, seed=0)
    make = partial(make_wrapped, partial(GymMazeEnv, "CartPole-v1"), wrappers)
    one = SequentialVectorEnv([make] * 2, seed=0)
    vector.reset()
    one.reset()
    np.testing.assert_equal(vector.staging.observation[0], one.staging.observation[0])
    without = ArrayVectorEnv(partial(make_wrapped_arrays, CartPoleArrayEnv, [KIND]), 2, seed=0)
    with pytest.raises(RuntimeError, match=r"\['observation'\] have no statistics"):
        without.reset()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning", "ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e200])
def test_values_that_are_not_finite_are_named_when_statistics_are_merged(value: float) -> None:
    env = cartpole()
    env.reset(seed=0)
    env._moments["observation"].add(np.array([0.0, value, 0.0, 0.0]))
    with pytest.raises(ValueError, match="observation 'observation' had values that are not finite, or too large"):
        env.merge_shared_states([env.shared_state()])


def test_a_copy_that_gets_the_state_keeps_the_units_of_the_episode() -> None:
    env, other = cartpole(weight=1), cartpole(weight=1)
    observe(env, 3)
    other.load_state_dict(env.state_dict())
    other.load_shared_state(env.merge_shared_states([env.shared_state()]))
    np.testing.assert_equal(other.get_normalization_statistics(), env.get_normalization_statistics())


@pytest.mark.parametrize("options", [{"weight": 0}, {"weight": 1.5}, {"weight": 20, "window": 10}])
def test_impossible_weights_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"weight=.* must be a whole number from 1, and window=\d+ at least as large, or"
    ):
        cartpole(**options)


def test_images_stay_bytes() -> None:
    class Camera(Scripted):
        def __init__(self) -> None:
            super().__init__([1.0])
            parts = {"bytes": spaces.Box(0, 255, (2, 2), np.uint8), "grid": spaces.Box(0, 1, (1, 2, 2))}
            self.observation_space = spaces.Dict(parts)

        def _observe(self) -> dict[str, Any]:
            return {"bytes": np.full((2, 2), 7, np.uint8), "grid": np.ones((1, 2, 2), np.float32)}

    env = KIND.wrap(GymMazeEnv(Camera()), exclude=["grid"])
    assert env.observation_spaces_dict == env.env.observation_spaces_dict
    env.reset()
    np.testing.assert_equal(env.step(NOTHING)[0], Camera()._observe())


def in_arrays(**options: Any) -> Any:
    """The form for array environments around CartPole."""
    env = make_wrapped_arrays(CartPoleArrayEnv, [partial(KIND, **options)])
    allocate(env, 2)
    return env


def test_statistics_of_observations_that_are_not_normalised_are_refused() -> None:
    earlier = cartpole()
    earlier.reset(seed=0)
    options: dict[str, Any] = {"exclude": ["observation"]}
    env = KIND.wrap(GymMazeEnv("CartPole-v1"), **options)
    for load, state in (
        (env.load_shared_state, earlier.shared_state()),
        (env.load_state_dict, earlier.state_dict()),
        (in_arrays(**options).load_shared_state, earlier.shared_state()),
    ):
        with pytest.raises(ValueError, match=r"^Running.*Wrapper: \['observation'\] are not normalised; \[\] are"):
            load(state)


@pytest.mark.parametrize("part", ["mean", "least_std", "sum"])
def test_statistics_of_another_shape_are_refused_with_their_name(part: str) -> None:
    state = cartpole().shared_state()
    state["observation"][part] = np.zeros(1)  # could be broadcast
    for env in (cartpole(), in_arrays(statistics=GIVEN)):
        with pytest.raises(ValueError, match=rf"^Running.*: observation 'observation': statistic '{part}' has shape"):
            env.load_shared_state(state)


def test_first_statistics_of_the_configuration_are_told_from_those_of_training() -> None:
    env = KIND.wrap(GymMazeEnv("CartPole-v1"), statistics=GIVEN)
    assert env.statistics_before_training == ["observation"]
    merge(env)
    assert env.statistics_before_training == cartpole().statistics_before_training == []
    other = KIND.wrap(GymMazeEnv("CartPole-v1"), statistics=GIVEN)
    other.load_state_dict(env.state_dict())
    assert other.statistics_before_training == []


def test_statistics_that_are_missing_are_named() -> None:
    with pytest.raises(ValueError, match=r"\['observation'\] are not among the statistics of \['other'\]"):
        KIND.wrap(GymMazeEnv("CartPole-v1")).load_shared_state({"other": {}})
    with pytest.raises(ValueError, match=r"\['observation'\] are not among the statistics of \[\]"):
        in_arrays().load_shared_state({})

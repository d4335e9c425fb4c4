"""Wrappers of environments in tensors: equal to their array forms number for number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from maze_pl.collect.state_tensors import on_host
from maze_pl.envs import CartPoleArrayEnv, ObservationWrapper
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper, allocate
from maze_pl.envs.arrays.reward_scaling_array_wrapper import RewardScalingArrayWrapper
from maze_pl.envs.building import make_wrapped, wrapper_stack
from maze_pl.envs.no_tensor_form_error import NoTensorFormError
from maze_pl.envs.running_moments import RunningMoments, merged_moments
from maze_pl.envs.tensor_forms import make_wrapped_tensors
from maze_pl.envs.tensors import CartPoleTensorEnv, TensorEnv
from maze_pl.envs.tensors.running_observation_normalization_tensor_wrapper import (
    RunningObservationNormalizationTensorWrapper,
)
from maze_pl.envs.tensors.tensor_wrapper import TensorWrapper
from maze_pl.envs.wrappers import (
    FlattenPreProcessor,
    MeanZeroStdOneObservationNormalizationStrategy,
    ObservationNormalizationWrapper,
    PreProcessingWrapper,
    RandomResetWrapper,
    ReturnNormalizationRewardWrapper,
    RewardScalingWrapper,
    RunningObservationNormalizationWrapper,
    TimeLimitWrapper,
)
from tests.envs.tensors.tensor_envs import ENVS, FIRST, WRAPPED, WRAPPERS

N_ENVS, N_STEPS = 5, 45
RUNNING = f"{RunningObservationNormalizationWrapper.__module__}.{RunningObservationNormalizationWrapper.__qualname__}"

Seen = tuple[dict[str, np.ndarray], np.ndarray]  # observations before an act, and its rewards


def actions_of(env: Any, generator: np.random.Generator) -> dict[Any, dict[str, np.ndarray]]:
    """Random actions of all sub-steps."""
    actions: dict[Any, dict[str, np.ndarray]] = {}
    for key, space in env.action_spaces_dict.items():
        actions[key] = {head: generator.integers(part.n, size=N_ENVS) for head, part in space.items()}
    return actions


def seeds_of(episode: np.ndarray) -> np.ndarray:
    return 100 * episode + np.arange(N_ENVS)


def played_in_tensors(env: TensorEnv, n_steps: int = N_STEPS) -> Iterator[Seen]:
    """Play episodes as a collector does, and yield what each act gave."""
    env.allocate(N_ENVS)
    generator, episode = np.random.default_rng(0), np.zeros(N_ENVS, np.int64)
    begins = torch.ones(N_ENVS, dtype=torch.bool)
    keys = list(env.observation_spaces_dict)
    for _ in range(n_steps):
        env.n_steps.masked_fill_(begins, 0)
        env.begin(begins, torch.from_numpy(seeds_of(episode)))
        actions = actions_of(env, generator)
        for key in keys:
            observation = {name: values.clone().numpy() for name, values in env.observe_to_act(key).items()}
            outcome = env.act(key, {head: torch.from_numpy(values) for head, values in actions[key].items()})
            yield observation, outcome.reward.clone().numpy()
        env.n_steps.add_(1)
        begins = env.n_steps >= (env.max_episode_steps or 10**6)
        if outcome.terminated is not None:
            begins = begins | outcome.terminated
        episode += begins.numpy()


def played_in_arrays(env: Any, n_steps: int = N_STEPS) -> Iterator[Seen]:
    """Play the same episodes in the array forms of the wrappers."""
    allocate(env, N_ENVS)
    generator, episode = np.random.default_rng(0), np.zeros(N_ENVS, np.int64)
    keys = list(env.observation_spaces_dict)
    result = env.reset(np.arange(N_ENVS), seeds_of(episode))
    for _ in range(n_steps):
        actions = actions_of(env, generator)
        for key in keys:
            observation = {name: numbers(values) for name, values in result.observation[key].items()}
            result = env.step(actions, slice(None))
            yield observation, numbers(result.reward)
        ends = numbers(result.truncated) | numbers(result.terminated)
        episode += ends
        (which,) = np.nonzero(ends)
        if len(which):
            following = {name: numbers(values) for name, values in result.observation[keys[0]].items()}
            begun = env.reset(which, seeds_of(episode)[which])
            for name, values in following.items():
                values[which] = numbers(begun.observation[keys[0]][name])[which]
            result.observation = {keys[0]: following}


def numbers(values: Any) -> np.ndarray:
    """A copy in an array."""
    return torch.as_tensor(values).clone().numpy()


def assert_same(one: Seen, other: Seen) -> None:
    assert one[0].keys() == other[0].keys()
    for name, values in one[0].items():
        np.testing.assert_allclose(values, other[0][name], rtol=1e-6, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", WRAPPERS)
def test_observations_and_rewards_are_those_in_arrays(name: str) -> None:
    inner, wrappers = WRAPPERS[name]
    pairs = zip(
        played_in_tensors(WRAPPED[name]()), played_in_arrays(make_wrapped_arrays(ENVS[inner], wrappers)), strict=True
    )
    for one, other in pairs:
        assert_same(one, other)


def merged_of(wrapper: Any, states: list[dict[str, Any]]) -> dict[str, Any]:
    """What the wrapper for single episodes merges."""
    return wrapper.merge_shared_states([on_host(state) for state in states])  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["returns", "returns of sub-steps"])
def test_merged_statistics_of_returns_are_those_of_arrays(name: str) -> None:
    inner, wrappers = WRAPPERS[name]
    in_tensors, in_arrays = WRAPPED[name](), make_wrapped_arrays(ENVS[inner], wrappers)
    assert isinstance(in_tensors, TensorWrapper)
    assert isinstance(in_arrays, ArrayWrapper)
    pairs = zip(played_in_tensors(in_tensors), played_in_arrays(in_arrays), strict=True)
    for number, (one, other) in enumerate(pairs):
        assert_same(one, other)
        if number % 17 == 15:  # after whole environment steps
            gathered = in_tensors.shared_state()
            merged = merged_of(ReturnNormalizationRewardWrapper, in_arrays.shared_states())
            in_arrays.load_shared_state(merged)
            in_tensors.merge()
            state = on_host(in_tensors.shared_state())
            assert state["base"] == pytest.approx(merged["base"], rel=1e-12)
            assert state["delta"] == [0.0, 0.0, 0.0]
            joined = merged_of(ReturnNormalizationRewardWrapper, [gathered])
            assert joined["base"] == pytest.approx(merged["base"], rel=1e-12)


@pytest.mark.parametrize("name", ["running", "running without a window", "running in sub-steps", "shared rows"])
def test_merged_moments_are_those_of_the_observations_that_were_acted_upon(name: str) -> None:
    inner, wrappers = WRAPPERS[name]
    env = WRAPPED[name]()
    assert isinstance(env, TensorWrapper)
    acts = zip(played_in_tensors(env), played_in_tensors(ENVS[inner]()), strict=True)
    first = make_wrapped(ENVS[inner], wrappers)
    expected = {part: RunningMoments(state) for part, state in wrapper_stack(first)[RUNNING].shared_state().items()}
    for number, (_, (observation, _)) in enumerate(acts):
        for part in expected.keys() & observation.keys():
            for value in observation[part].astype(np.float32):
                expected[part].add(value)
        if number % 17 == 15:
            gathered = env.shared_state()
            env.merge()
            state = on_host(env.shared_state())
            for part, moments in expected.items():
                merged = merged_moments([moments.state_dict()])
                assert state[part]["n"] == merged["n"]
                np.testing.assert_allclose(state[part]["mean"], merged["mean"], rtol=1e-10)
                np.testing.assert_allclose(state[part]["m2"], merged["m2"], rtol=1e-10)
                assert merged_of(RunningObservationNormalizationWrapper, [gathered])[part]["n"] == merged["n"]
                expected[part] = RunningMoments(merged)


def test_episodes_are_normalised_by_the_statistics_with_which_they_began() -> None:
    env = WRAPPED["running"]()
    assert isinstance(env, RunningObservationNormalizationTensorWrapper)
    env.allocate(2)
    env.begin(torch.tensor([True, True]), torch.tensor([5, 6]))
    before = env.observe(0)["observation"].clone()
    env.load_shared_state({"observation": {**on_host(env.shared_state())["observation"], "mean": np.full(4, 0.5)}})
    assert torch.equal(env.observe(0)["observation"], before)
    env.begin(torch.tensor([False, True]), torch.tensor([5, 6]))
    after = env.observe(0)["observation"]
    assert torch.equal(after[0], before[0])
    std = np.array(FIRST["observation"]["std"])
    expected = np.maximum(before[1].numpy() - (0.5 - np.array(FIRST["observation"]["mean"])) / std, -10)
    np.testing.assert_allclose(after[1].numpy(), expected, rtol=1e-4, atol=1e-5)


def test_standard_deviations_have_the_lower_limit_of_single_episodes() -> None:
    env = WRAPPED["running"]()
    assert isinstance(env, RunningObservationNormalizationTensorWrapper)
    env.allocate(2)
    state = on_host(env.shared_state())["observation"]
    env.load_shared_state({"observation": {**state, "m2": state["m2"] * [1.0, 1e-5, 0.0, 1.0]}})
    expected = np.array(FIRST["observation"]["std"]) * [1.0, 0.01, 0.01, 1.0]
    np.testing.assert_allclose(env.latest_std["observation"].numpy(), expected, rtol=1e-6)
    state = on_host(env.shared_state())["observation"]
    np.testing.assert_allclose(RunningMoments(state).statistics["std"], expected, rtol=1e-6)


def test_final_observations_have_their_stacks_but_are_not_added_to_them() -> None:
    env = WRAPPED["all"]()
    env.allocate(1)
    env.begin(torch.tensor([True]), torch.tensor([3]))
    first = env.observe_to_act(0)["observation"].clone()
    assert torch.equal(first[0, 0], first[0, 2]), "the first observation fills the stack"
    env.act(0, {"action": torch.tensor([1])})
    final = env.observe(0)["observation"].clone()
    assert torch.equal(final, env.observe(0)["observation"])
    assert torch.equal(final[0, :2], first[0, 1:])
    assert not torch.equal(final[0, 2], final[0, 1])


def test_time_limits_are_the_lowest_of_all() -> None:
    for limits, expected in (([20], 20), ([40], 30), ([25, 9], 9)):
        wrappers = [partial(TimeLimitWrapper, max_episode_steps=limit) for limit in limits]
        env = make_wrapped_tensors(ENVS["flat"], [*wrappers, partial(RewardScalingWrapper, scale=2.0)])
        assert env is not None
        env.allocate(2)
        assert env.max_episode_steps == expected
    unlimited = make_wrapped_tensors(CartPoleTensorEnv, [partial(TimeLimitWrapper, max_episode_steps=5)])
    assert unlimited is not None
    assert unlimited.max_episode_steps == 5


class DoublingTensorWrapper(TensorWrapper):
    """Doubles observations."""

    def observation(self, step_key: Any, observation: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {name: 2 * values for name, values in observation.items()}


class Doubling(ObservationWrapper):
    """The same for single episodes."""

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        return {name: 2 * values for name, values in observation.items()}

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        return DoublingTensorWrapper(env)


class Tripling(Doubling):
    """Changes what the tensor form does not know of."""

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        return {name: 3 * values for name, values in observation.items()}


class Named(Doubling):
    """Changes nothing."""

    def __init__(self, env: Any, text: str = "") -> None:
        super().__init__(env)
        self.text = text


class Wrong(Doubling):
    """Has a form that is something else."""

    def tensor_form(self, env: TensorEnv) -> Any:
        return "doubling"


@pytest.mark.parametrize("kind", [Doubling, Named])
def test_a_wrapper_of_a_user_has_the_form_that_it_makes(kind: type[Doubling]) -> None:
    env = make_wrapped_tensors(ENVS["flat"], [kind])
    assert env is not None
    env.allocate(1)
    env.begin(torch.tensor([True]), torch.tensor([3]))
    assert isinstance(env, TensorWrapper)
    assert torch.equal(env.observe(0)["observation"], 2 * env.env.observe(0)["observation"])
    assert env.statistics_name == f"{kind.__module__}.{kind.__qualname__}"


class Own(MeanZeroStdOneObservationNormalizationStrategy):
    """A strategy of a user."""


class Reversed(FlattenPreProcessor):
    """A pre-processor of a user."""

    def process(self, observation: np.ndarray) -> np.ndarray:
        return super().process(observation)[::-1]


ENTRY = {"observation": "observation", "class_path": Reversed, "config": {"num_flatten_dims": 1}}
FAULTS: dict[str, tuple[Any, str]] = {
    "a pre-processor": (
        partial(PreProcessingWrapper, pre_processor_mapping=[ENTRY]),
        "Reversed has no function for tensors, only process",
    ),
    "without a form": (
        partial(RandomResetWrapper, min_skip_steps=1, max_skip_steps=2),
        "RandomResetWrapper has no tensor form",
    ),
    "derived": (Tripling, r"Tripling changes \['observation'\] of Doubling, whose tensor form does not know of it"),
    "a strategy": (
        partial(ObservationNormalizationWrapper, default_strategy=Own),
        "the strategy Own of 'observation' has no form in tensors, as .* have",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_reason_why_there_is_no_form_is_named(name: str) -> None:
    wrapper, message = FAULTS[name]
    with pytest.raises(NoTensorFormError, match=message):
        make_wrapped_tensors(ENVS["flat"], [wrapper])


def test_a_form_that_is_something_else_is_named() -> None:
    with pytest.raises(TypeError, match="tensor_form of Wrong returned 'doubling' of type str; return a TensorWrapper"):
        make_wrapped_tensors(ENVS["flat"], [Wrong])


class Closing(CartPoleTensorEnv):
    """Counts how many of its kind are open."""

    n_open = 0

    def __init__(self) -> None:
        super().__init__()
        Closing.n_open += 1

    def close(self) -> None:
        Closing.n_open -= 1


class Failing(Doubling):
    """Has a form with a fault of its author."""

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        return DoublingTensorWrapper(env, factor=2)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "wrapper", "message"),
    [
        (Closing, Failing, "unexpected keyword argument 'factor'"),
        (lambda: RewardScalingArrayWrapper(Closing(), 2.0), Doubling, "RewardScalingArrayWrapper wraps arrays"),
    ],
)
def test_the_environment_is_closed_if_there_is_no_form_in_tensors(make: Any, wrapper: Any, message: str) -> None:
    before = Closing.n_open
    with pytest.raises(TypeError, match=message):
        make_wrapped_tensors(make, [wrapper])
    assert Closing.n_open == before


def test_environments_in_arrays_are_left_to_others() -> None:
    assert make_wrapped_tensors(CartPoleArrayEnv, [RandomResetWrapper]) is None


def test_array_wrappers_around_tensors_are_named() -> None:
    with pytest.raises(NoTensorFormError, match="RewardScalingArrayWrapper wraps arrays"):
        make_wrapped_tensors(lambda: RewardScalingArrayWrapper(CartPoleTensorEnv(), 2.0))


def test_only_environments_in_tensors_are_wrapped() -> None:
    with pytest.raises(TypeError, match="DoublingTensorWrapper wraps environments in tensors; got"):
        DoublingTensorWrapper(CartPoleArrayEnv())  # type: ignore[arg-type]


def test_missing_statistics_are_refused() -> None:
    for wrapper in (RunningObservationNormalizationWrapper, ObservationNormalizationWrapper):
        env = make_wrapped_tensors(ENVS["flat"], [wrapper])
        assert isinstance(env, TensorWrapper)
        env.allocate(2)
        with pytest.raises(RuntimeError, match=r"\['observation'\] have no statistics: load those of a vector that"):
            env.begin(torch.tensor([True, True]), torch.tensor([5, 6]))
        with pytest.raises(ValueError, match=r"\['observation'\] are not among the statistics of \[\]"):
            env.load_shared_state({})


def test_statistics_that_do_not_fit_are_refused() -> None:
    env = WRAPPED["running"]()
    assert isinstance(env, TensorWrapper)
    env.allocate(2)
    state = env.shared_state()["observation"]
    for changed, message in (
        ({"observation": {**state, "mean": torch.zeros(1)}}, r"'mean' has shape \(1,\), not \(4,\)"),
        ({"observation": state, "other": state}, r"\['other'\] are not normalised; \['observation'\] are"),
    ):
        with pytest.raises(ValueError, match=f"^RunningObservationNormalizationWrapper: .*{message}"):
            env.load_shared_state(changed)
    other = make_wrapped_tensors(ENVS["flat"], [ObservationNormalizationWrapper])
    assert isinstance(other, TensorWrapper)
    other.allocate(2)
    statistics = {"mean": np.array(0.0), "std": np.array(1.0)}
    with pytest.raises(ValueError, match=r"^ObservationNormalizationWrapper: \['other'\] are not normalised"):
        other.load_shared_state({"observation": statistics, "other": statistics})


def test_wrapped_tensors_are_not_stepped_in_arrays() -> None:
    env = WRAPPED["stacks"]()
    env.allocate(2)
    for call in (partial(env.reset, np.arange(2), np.arange(2)), partial(env.step, {}, slice(None))):
        with pytest.raises(
            TypeError, match=r"ObservationStackTensorWrapper is stepped in tensors only, .* in wrappers"
        ):
            call()

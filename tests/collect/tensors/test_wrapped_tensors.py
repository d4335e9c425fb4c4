"""Rollouts of environments in tensors with wrappers: what is learned from, what statistics say, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.tensor_forms import make_wrapped_tensors
from maze_pl.envs.tensors import CartPoleTensorEnv, Outcome, TensorEnv
from maze_pl.envs.tensors.reward_scaling_tensor_wrapper import RewardScalingTensorWrapper
from maze_pl.envs.tensors.tensor_wrapper import TensorWrapper, faults_within
from maze_pl.envs.wrappers import (
    FlattenPreProcessor,
    ObservationNormalizationWrapper,
    PreProcessingWrapper,
    PreProcessor,
    ReturnNormalizationRewardWrapper,
    RewardClippingWrapper,
    RewardScalingWrapper,
    RunningObservationNormalizationWrapper,
)
from maze_pl.modules import PPO
from tests.envs.tensors.tensor_envs import ENVS, WRAPPED

N_ENVS, N_STEPS, FIRST = 4, 30, 10
CPU = torch.device("cpu")


def collector_of(env: TensorEnv | None, n_steps: int = N_STEPS) -> tuple[TensorCollector, Any]:
    assert env is not None
    spec = Spec.of(env)
    vector = TensorVector(env, N_ENVS, spec, CPU, seed=3, first_env_index=FIRST)
    torch.manual_seed(0)
    return TensorCollector(vector, n_steps, torch.Generator().manual_seed(1)), PPO(spec=spec).policy


def test_rewards_are_changed_and_statistics_keep_those_of_the_environment() -> None:
    wrappers = [partial(RewardScalingWrapper, scale=4.0), partial(RewardClippingWrapper, min_val=-1.0, max_val=3.0)]
    plain, policy = collector_of(CartPoleTensorEnv())
    changed, _ = collector_of(make_wrapped_tensors(CartPoleTensorEnv, wrappers))
    expected, rollout = plain.collect(policy), changed.collect(policy)
    assert set(rollout.segments[0].reward.flatten().tolist()) == {3.0}
    assert [one.reward for one in rollout.summaries] == [one.reward for one in expected.summaries]
    assert [one.reward for one in rollout.summaries] == [one.env_steps for one in rollout.summaries]


class Spoiled(CartPoleTensorEnv):
    """Environment 2 has a value that is not finite, or a number too large for its space, after a few steps.

    Args:
        fault: Which one.
    """

    def __init__(self, fault: str) -> None:
        super().__init__(max_episode_steps=60)
        self.fault = fault

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        box = spaces.Box(-100.0, 100.0, (4,))
        return {0: spaces.Dict({"observation": box, "level": spaces.Box(0, 255, (), np.int16)})}

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        is_bad = (torch.arange(self.n_envs) == 2) & (self.n_steps == 5)
        values = super().observe(step_key)["observation"]
        if self.fault == "observation":
            values = torch.where(is_bad[:, None], torch.inf, values)
        level = torch.where(is_bad & (self.fault == "level"), 40_000, 7)
        return {"observation": values, "level": level}

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        outcome = super().act(step_key, action)
        is_bad = (torch.arange(self.n_envs) == 2) & (self.n_steps == 5) & (self.fault == "reward")
        return Outcome(torch.where(is_bad, -torch.inf, outcome.reward), outcome.terminated)


def make_normalised(fault: str) -> TensorEnv | None:
    statistics = {"observation": {"mean": 0.0, "std": 1.0}, "level": {"mean": 0.0, "std": 100.0}}
    wrappers = [
        partial(RunningObservationNormalizationWrapper, statistics=statistics),
        partial(RewardClippingWrapper, min_val=-1.0, max_val=3.0),
    ]
    return make_wrapped_tensors(partial(Spoiled, fault), wrappers)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("observation", "the observation 'observation' of sub-step 0 of environment 12 is NaN or infinite"),
        ("reward", "the reward of sub-step 0 of environment 12 is NaN or infinite"),
        ("level", "the observation 'level' of sub-step 0 of environment 12 has a value that the type of its space"),
    ],
)
def test_what_clipping_would_hide_is_refused(fault: str, message: str) -> None:
    collector, policy = collector_of(make_normalised(fault))
    with pytest.raises(ValueError, match=message):
        collector.collect(policy)


def test_faults_are_those_of_one_rollout() -> None:
    collector, policy = collector_of(make_normalised("reward"))
    with pytest.raises(ValueError, match="is NaN or infinite"):
        collector.collect(policy)
    not_finite, out_of_range = faults_within(collector.env)
    assert list(not_finite) == ["reward of sub-step 0"]
    assert len(out_of_range) == 1
    assert not any(flags.any() for flags in (*not_finite.values(), *out_of_range.values()))


class Ending(CartPoleTensorEnv):
    """Environment 1 has something wrong in the observations after five steps, which nothing is chosen by.

    Args:
        fault: What it is: `infinite`, or `large`, an integer that the type of its space cannot hold.
        limit: See `TensorEnv`.
        terminates: Whether episodes end then.
    """

    def __init__(self, fault: str, limit: int | None, terminates: bool = False) -> None:
        super().__init__(limit)
        self.fault = fault
        self.terminates = terminates

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        parts = {"observation": spaces.Box(-100.0, 100.0, (4,)), "level": spaces.Box(0, 255, (2,), np.int16)}
        return {0: spaces.Dict(parts)}

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        is_bad = ((torch.arange(self.n_envs) == 1) & (self.n_steps == 5))[:, None]
        values = super().observe(step_key)["observation"]
        level = torch.where(is_bad & (self.fault == "large"), 40_000, torch.tensor([[7, 8]]))
        return {"observation": torch.where(is_bad & (self.fault == "infinite"), torch.inf, values), "level": level}

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        outcome = super().act(step_key, action)
        return Outcome(outcome.reward, (self.n_steps == 4) & self.terminates)


SPOILED = partial(
    RunningObservationNormalizationWrapper,
    statistics={"observation": {"mean": 0.0, "std": 1.0}, "level": {"mean": 0.0, "std": 100.0}},
)
FLAT = {"observation": "level", "class_path": FlattenPreProcessor, "config": {"num_flatten_dims": 1}}
HIDING = {"infinite": SPOILED, "large": partial(PreProcessingWrapper, pre_processor_mapping=[FLAT])}


@pytest.mark.parametrize(("limit", "n_steps"), [(5, 9), (None, 5)], ids=["at the time limit", "after the last row"])
@pytest.mark.parametrize("fault", HIDING)
def test_faults_of_final_observations_are_refused_if_wrappers_would_hide_them(
    fault: str, limit: int | None, n_steps: int
) -> None:
    message = {"infinite": "NaN or infinite", "large": "has a value that the type of its space cannot hold"}[fault]
    for wrappers in ([], [HIDING[fault]]):
        collector, policy = collector_of(make_wrapped_tensors(partial(Ending, fault, limit), wrappers), n_steps)
        with pytest.raises(ValueError, match=f"of sub-step 0 of environment 11 .*{message}"):
            collector.collect(policy)


def test_observations_that_nothing_is_learned_from_may_be_infinite() -> None:
    collector, policy = collector_of(make_wrapped_tensors(partial(Ending, "infinite", 20, True), [SPOILED]))
    rollout = collector.collect(policy)
    assert rollout.rows.terminated[4].all()
    assert rollout.finals[0].observation["observation"][4 * N_ENVS + 1].isnan().all()


class Bounded(PreProcessor):
    """Replaces infinite numbers, as where something is out of reach."""

    tag = "bounded"

    def process(self, observation: np.ndarray) -> np.ndarray:
        return np.minimum(observation, np.float32(100.0))

    def tensor_function(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        return lambda values: values.clip(max=100.0)


def test_what_a_wrapper_replaces_may_be_infinite() -> None:
    entry = {"observation": "observation", "class_path": Bounded}
    statistics = {"observation-bounded": {"mean": 0.0, "std": 50.0}, "level": {"mean": 0.0, "std": 10.0}}
    wrappers = [
        partial(PreProcessingWrapper, pre_processor_mapping=[entry]),
        partial(RunningObservationNormalizationWrapper, statistics=statistics),
    ]
    collector, policy = collector_of(make_wrapped_tensors(partial(Spoiled, "observation"), wrappers))
    assert collector.collect(policy).segments[0].observation["observation-bounded"].max() == 2.0


class WrongShape(CartPoleTensorEnv):
    """Returns observations of another shape."""

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        return {"observation": super().observe(step_key)["observation"][:, :3]}


class WrongReward(CartPoleTensorEnv):
    """Returns rewards of another shape."""

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        outcome = super().act(step_key, action)
        return outcome._replace(reward=outcome.reward[:, None])


class Replacing(CartPoleTensorEnv):
    """Replaces its state."""

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        outcome = super().act(step_key, action)
        self.state = self.state.clone()
        return outcome


class Counting(TensorWrapper):
    """A wrapper of a user that counts in a number of Python."""

    def __init__(self, env: TensorEnv) -> None:
        super().__init__(env)
        self.n_acts = 0

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        self.n_acts += 1
        return super().act(step_key, action)


class Doubling(TensorWrapper):
    """A wrapper of a user that doubles rewards, and makes an outcome of its own or changes the given one."""

    def __init__(self, env: TensorEnv, is_in_place: bool) -> None:
        super().__init__(env)
        self.is_in_place = is_in_place

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        outcome = super().act(step_key, action)
        if not self.is_in_place:
            return Outcome(2 * outcome.reward, outcome.terminated)
        outcome.reward.mul_(2)
        return outcome


class Shifting(TensorWrapper):
    """A wrapper of a user whose `observation` changes what it is given, or a tensor of its own."""

    def __init__(self, env: TensorEnv, is_own: bool) -> None:
        super().__init__(env)
        self.is_own = is_own

    def make_tensors(self, n_envs: int) -> None:
        self.n_observed = torch.zeros(n_envs)

    def observation(self, step_key: Any, observation: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if self.is_own:
            self.n_observed.add_(1.0)
        else:
            observation["observation"].sub_(0.5)
        return observation


class Exposed(CartPoleTensorEnv):
    """Returns its state as the observation."""

    def make_tensors(self, n_envs: int) -> None:
        self.state = torch.zeros(n_envs, 4)

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        return {"observation": self.state}


class Widening(TensorWrapper):
    """A wrapper of a user whose observations do not have the shape of their space."""

    def observation(self, step_key: Any, observation: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {name: values.repeat(1, 2) for name, values in observation.items()}


def scaled(make: Callable[[], TensorEnv]) -> TensorEnv | None:
    return make_wrapped_tensors(make, [partial(RewardScalingWrapper, scale=2.0)])


FAULTS: dict[str, tuple[Callable[[], TensorEnv | None], str]] = {
    "shape": (partial(scaled, WrongShape), r"'observation' of sub-step 0 of WrongShape is a tensor of shape \(4, 3\)"),
    "reward": (partial(scaled, WrongReward), r"the reward of sub-step 0 of WrongReward is a tensor of shape \(4, 1\)"),
    "replaced": (partial(scaled, Replacing), "Replacing replaced its tensor 'state' in begin, observe or act"),
    "a count": (lambda: Counting(CartPoleTensorEnv()), "Counting changes its number 'n_acts' in begin, observe or act"),
    "outcome": (
        lambda: Doubling(CartPoleTensorEnv(), False),
        r"act in sub-step 0 of Doubling changes the reward, .*: return outcome\.with_reward\(changed\)",
    ),
    "outcome around another change": (
        lambda: Doubling(RewardScalingTensorWrapper(CartPoleTensorEnv(), 2.0), False),
        "act in sub-step 0 of Doubling changes the reward",
    ),
    "reward in place": (
        lambda: Doubling(CartPoleTensorEnv(), True),
        "act in sub-step 0 of Doubling changes the reward",
    ),
    "observed in place": (
        lambda: Shifting(Exposed(), False),
        "observation of Shifting changes the tensor 'state', but it also gets",
    ),
    "counted where it observes": (
        lambda: RewardScalingTensorWrapper(Shifting(CartPoleTensorEnv(), True), 2.0),
        r"observation of Shifting changes the tensor '.*\.Shifting n_observed', but .*: use learn",
    ),
    "wide": (
        lambda: Widening(CartPoleTensorEnv()),
        r"of Widening is a tensor of shape \(4, 8\) and type torch.float32",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_environments_and_of_wrappers_are_named(name: str) -> None:
    make, message = FAULTS[name]
    collector, policy = collector_of(make())
    with pytest.raises(EnvContractError, match=message):
        collector.collect(policy)


class Gathering(TensorWrapper):
    """A wrapper of a user whose `merge` has a fault."""

    def __init__(self, env: TensorEnv, fault: str) -> None:
        super().__init__(env)
        self.fault = fault
        self.n_merges = 0

    def make_tensors(self, n_envs: int) -> None:
        self.mean = torch.zeros(())

    def shared_state(self) -> dict[str, Any]:
        return {"mean": self.mean.clone()}

    def merge(self) -> None:
        if self.fault == "replaced":
            self.mean = self.mean + 1.0
        elif self.fault == "counted":
            self.n_merges += 1
        else:
            self.mean.add_(1.0)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("replaced", r"Gathering replaced its tensor '.*Gathering mean' between rollouts: change it in place"),
        ("counted", "Gathering changes its number 'n_merges' between rollouts, which checkpoints do not hold"),
        ("", ""),
    ],
)
def test_statistics_are_merged_in_place(fault: str, message: str) -> None:
    collector, policy = collector_of(RewardScalingTensorWrapper(Gathering(CartPoleTensorEnv(), fault), 2.0))
    collector.vector.merges = True
    collector.collect(policy)
    collector.vector.shared_states()
    with pytest.raises(EnvContractError, match=message) if fault else nullcontext():
        collector.collect(policy)


@pytest.mark.parametrize("name", ["running", "returns"])
def test_statistics_of_all_wrappers_that_gather_some_are_required(name: str) -> None:
    collector, _ = collector_of(WRAPPED[name]())
    with pytest.raises(ValueError, match=r"there are no statistics for maze_pl\..*Wrapper, but for \[\]"):
        collector.vector.load_shared_states({})


def test_estimated_statistics_are_used_except_where_some_are_stated() -> None:
    stated = {"observation": {"statistics": {"mean": 1.0, "std": 2.0}}}
    for config, expected in ((None, (0.5, 0.25)), (stated, (1.0, 2.0))):
        env = make_wrapped_tensors(ENVS["flat"], [partial(ObservationNormalizationWrapper, manual_config=config)])
        assert isinstance(env, TensorWrapper)
        collector, _ = collector_of(env)
        statistics = {"observation": {"mean": np.array(0.5), "std": np.array(0.25)}} if config is None else {}
        collector.vector.load_shared_states({env.statistics_name: statistics} if statistics else {})
        collector.start()
        raw = env.env.observe(0)["observation"]
        mean, std = expected
        assert torch.allclose(env.observe(0)["observation"], (raw - mean) / std)


def test_merged_statistics_stay_on_the_device_and_others_reach_the_host() -> None:
    for merges, kind in ((True, Tensor), (False, np.ndarray)):
        collector, policy = collector_of(WRAPPED["all"]())
        collector.vector.merges = merges
        collector.collect(policy)
        (state,) = collector.vector.shared_states()
        running, returns = state.values() if "observation" in next(iter(state.values())) else [*state.values()][::-1]
        assert isinstance(running["observation"]["mean"], kind)
        n_new = int(running["observation"]["n_new"])
        assert n_new == (0 if merges else N_ENVS * N_STEPS)
        assert float(returns["delta"][0]) == (0 if merges else N_ENVS * N_STEPS)
        assert float(returns["base"][0]) == 1 + (N_ENVS * N_STEPS if merges else 0)


def test_a_reward_is_divided_by_the_deviation_of_its_own_environment() -> None:
    collector, policy = collector_of(
        make_wrapped_tensors(CartPoleTensorEnv, [partial(ReturnNormalizationRewardWrapper, gamma=0.5)])
    )
    rewards = collector.collect(policy).segments[0].reward
    assert rewards[:3, 0].tolist() == pytest.approx([2.0, 1.604, 1.492], abs=1e-3)  # returns of 0, 1, 1.5 and 1.75

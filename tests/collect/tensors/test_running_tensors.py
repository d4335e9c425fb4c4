"""Checkpoints of tensors: options keep the values of the resumed run, and wrappers may change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.tensor_forms import make_wrapped_tensors
from maze_pl.envs.tensors import CartPoleTensorEnv, RewardTensorWrapper, TensorEnv, TensorWrapper
from maze_pl.envs.wrappers import (
    ObservationStackWrapper,
    ReturnNormalizationRewardWrapper,
    RewardClippingWrapper,
    RewardScalingWrapper,
)

N_ENVS, N_STEPS = 3, 12
CPU = torch.device("cpu")


def collector_of(env: TensorEnv | None, n_envs: int = N_ENVS) -> tuple[TensorCollector, Any]:
    assert env is not None
    vector = TensorVector(env, n_envs, Spec.of(env), CPU, seed=3, merges=True)
    return TensorCollector(vector, N_STEPS, torch.Generator().manual_seed(1)), RandomPolicy(env.action_spaces_dict)


class Priced(CartPoleTensorEnv):
    """Has a tensor of its constructor in a list that it makes later, too."""

    def __init__(self, price: float) -> None:
        super().__init__(5)
        self.price = torch.tensor([price])

    def make_tensors(self, n_envs: int) -> None:
        super().make_tensors(n_envs)
        self.terms = [self.price, torch.zeros(n_envs)]

    def act(self, step_key: Any, action: Any) -> Any:
        outcome = super().act(step_key, action)
        self.terms[1].add_(1.0)
        return outcome._replace(reward=outcome.reward * self.terms[0])


@pytest.mark.parametrize("is_older", [False, True])
def test_options_in_a_second_place_are_those_of_the_resumed_run(is_older: bool) -> None:
    collector, policy = collector_of(Priced(1.0))
    collector.collect(policy)
    state = collector.state_dict()
    names = {"state terms.1", "state state", "state n_steps", "episode", "begins", "reward"}
    assert state["tensors"].keys() == names
    if is_older:
        state["tensors"] |= {"state price": torch.tensor([1.0]), "state terms.0": torch.tensor([1.0])}
    resumed, _ = collector_of(Priced(7.0))
    resumed.load_state_dict(state)
    assert torch.equal(resumed.env.terms[1], collector.env.terms[1])  # type: ignore[attr-defined]
    assert resumed.collect(policy).rows.reward.unique().tolist() == [7.0]


class Fee(RewardTensorWrapper):
    """Charges a fee, a tensor of the constructor, and counts the acts."""

    def __init__(self, env: TensorEnv, fee: float, rises: bool = False) -> None:
        super().__init__(env)
        self.fee = torch.tensor(fee, dtype=torch.float64)
        self.rises = rises

    def make_tensors(self, n_envs: int) -> None:
        self.n_acts = torch.zeros(n_envs)

    def rewards(self, rewards: Tensor) -> Tensor:
        self.n_acts.add_(1.0)
        if self.rises:
            self.fee.mul_(2.0)
        return rewards - self.fee


def test_options_of_wrappers_are_those_of_the_resumed_run() -> None:
    collector, policy = collector_of(Fee(CartPoleTensorEnv(5), 0.25))
    collector.collect(policy)
    state = collector.state_dict()
    (name,) = state["wrapper_tensors"]
    assert state["wrapper_tensors"] == {f"{Fee.__module__}.Fee": state["wrapper_tensors"][name]}
    assert list(state["wrapper_tensors"][name]) == ["n_acts"]
    resumed, _ = collector_of(Fee(CartPoleTensorEnv(5), 0.5))
    resumed.load_state_dict(state)
    assert resumed.collect(policy).rows.reward.unique().tolist() == [0.5]
    assert resumed.env.n_acts.tolist() == [2.0 * N_STEPS] * N_ENVS  # type: ignore[attr-defined]


def test_options_of_wrappers_must_not_change() -> None:
    collector, policy = collector_of(Fee(CartPoleTensorEnv(5), 0.25, rises=True))
    with pytest.raises(EnvContractError, match=r"Fee changes its tensor '.*\.Fee fee', which its constructor made"):
        collector.collect(policy)


SCALING = partial(RewardScalingWrapper, scale=2.0)
CLIPPING = partial(RewardClippingWrapper, min_val=-1.0, max_val=1.0)
RETURNS = partial(ReturnNormalizationRewardWrapper, gamma=0.9)
STACK = partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 2}])
Stack = list[Callable[[Any], Any]]
CHANGES: dict[str, tuple[Stack, Stack]] = {
    "stateless": ([SCALING], [CLIPPING, SCALING]),
    "none before": ([], [STACK, RETURNS]),
    "none after": ([STACK, RETURNS], []),
    "kept around a new one": ([RETURNS], [STACK, RETURNS, SCALING]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_goes_on_with_other_wrappers(name: str) -> None:
    before, after = (partial(make_wrapped_tensors, partial(CartPoleTensorEnv, 50), stack) for stack in CHANGES[name])
    collector, policy = collector_of(before())
    collector.collect(policy)
    state = collector.state_dict()
    resumed, _ = collector_of(after())
    assert resumed.load_state_dict(state) == []
    expected, tensors = collector.env.tensors(), resumed.env.tensors()
    kept = tensors.keys() & expected.keys()
    assert kept >= {"state", "n_steps"}
    assert all(torch.equal(tensors[part], expected[part]) for part in kept)
    resumed.collect(policy)


def test_a_wrapper_with_other_tensors_is_named() -> None:
    collector, policy = collector_of(make_wrapped_tensors(CartPoleTensorEnv, [STACK]))
    collector.collect(policy)
    state = collector.state_dict()
    longer = partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 4}])
    resumed, _ = collector_of(make_wrapped_tensors(CartPoleTensorEnv, [longer]))
    with pytest.raises(ValueError, match=r"'histories\.0\..*' of maze_pl\..*ObservationStackWrapper has shape"):
        resumed.load_state_dict(state)
    state["wrapper_tensors"] = {name: {"n": torch.zeros(3)} for name in state["wrapper_tensors"]}
    with pytest.raises(ValueError, match=r"consists of \['n'\], but maze_pl\..*ObservationStackWrapper has \['has_"):
        resumed.load_state_dict(state)


class Counting(TensorWrapper):
    """Counts acts."""

    def make_tensors(self, n_envs: int) -> None:
        self.n_acts = torch.zeros(n_envs)

    def act(self, step_key: Any, action: Any) -> Any:
        self.n_acts.add_(1.0)
        return super().act(step_key, action)


def test_wrappers_of_one_class_have_separate_tensors() -> None:
    collector, policy = collector_of(Counting(Counting(CartPoleTensorEnv(5))))
    collector.collect(policy)
    name = f"{Counting.__module__}.Counting"
    counts = [collector.env.tensors()[f"{path} n_acts"] for path in (name, f"{name} 2")]
    assert counts[0] is not counts[1]
    assert [count.tolist() for count in counts] == [[float(N_STEPS)] * N_ENVS] * 2, "the trial step is undone"
    assert set(collector.state_dict()["wrapper_tensors"]) == {name, f"{name} 2"}

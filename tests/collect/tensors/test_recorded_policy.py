"""The policy of a recorded environment step: which changes are noticed before the graph is used again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from maze_pl.collect.tensors.graph_checks import changing_tensors_of, parts_of
from maze_pl.collect.tensors.recorded_policy import RecordedPolicy


class Reading(nn.Module):
    """A policy that reads tensors which it does not need to have, and keeps its result."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.shift: Tensor | None = None
        self.table: dict[Any, Tensor] = {}
        self.kept: Tensor | None = None

    def distribution(self, step_key: Any, observation: Tensor, agent_id: Any = None) -> Tensor:
        """Return numbers that stand for a distribution."""
        result = self.layer(observation)
        for tensor in ([] if self.shift is None else [self.shift]) + list(self.table.values()):
            result = result + tensor
        self.kept = result
        return result


class Wrapped:
    """A policy that is not a module, and passes everything on to another one."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def distribution(self, *arguments: Any) -> Tensor:
        """Return the result of the other policy."""
        result: Tensor = self.inner.distribution(*arguments)
        return result


class Applying(nn.Module):
    """A policy that applies what it has."""

    def __init__(self, applied: Any) -> None:
        super().__init__()
        self.applied = applied

    def distribution(self, step_key: Any, observation: Tensor, agent_id: Any = None) -> Tensor:
        """Return the sum of all results."""
        every = self.applied if isinstance(self.applied, list | tuple) else [self.applied]
        return torch.stack([function(observation) for function in every]).sum(dim=0)


class Scaled:
    """A callable object."""

    def __call__(self, observation: Tensor) -> Tensor:
        """Return twice the observation."""
        return 2 * observation


@torch.no_grad()
def act(policy: Any) -> None:
    policy.distribution("step", torch.ones(3, 2))


def note(recorded: RecordedPolicy, policy: Any) -> None:
    """Record a step of a policy."""
    recorded.note(policy)
    assert recorded.take(policy, partial(act, policy)) is None
    assert recorded.compare(policy) == (True, None)


def noted(policy: Any) -> RecordedPolicy:
    """Return the record of a step of a policy."""
    recorded = RecordedPolicy(torch.device("cpu"))
    note(recorded, policy)
    return recorded


# ---------------------------------------------------------------------------------------------------------- tensors


def set_shift(policy: Reading, number: float) -> None:
    policy.shift = torch.full((2,), number)


def add_entry(policy: Reading, number: float) -> None:
    policy.table[number] = torch.full((2,), number)


@pytest.mark.parametrize("change", [set_shift, add_entry])
def test_a_tensor_that_appears_is_noticed_and_from_then_on_its_replacement(
    change: Callable[[Reading, float], None],
) -> None:
    policy = Reading()
    recorded = noted(policy)
    for number in (1.0, 2.0):
        change(policy, number)
        assert recorded.compare(policy)[0] is False
        note(recorded, policy)
    policy.shift = None
    policy.table = {}
    assert recorded.compare(policy)[0] is False
    note(recorded, policy)
    change(policy, 2.0)
    assert recorded.compare(policy)[0] is False, "that it was read earlier does not matter"


def test_a_tensor_that_appears_and_is_not_read_is_noticed_once() -> None:
    policy = Reading()
    recorded = noted(policy)
    policy.layer.statistics = torch.zeros(2)
    assert recorded.compare(policy)[0] is False
    note(recorded, policy)
    policy.layer.statistics = torch.ones(2)
    policy.kept = torch.ones(2)
    assert recorded.compare(policy) == (True, None)
    del policy.layer.statistics
    policy.kept = None
    assert recorded.compare(policy) == (True, None)


def test_new_tensors_are_known_also_if_the_step_cannot_be_recorded() -> None:
    policy = Reading()
    recorded = RecordedPolicy(torch.device("cpu"))
    for number in (1.0, 2.0):
        add_entry(policy, number)
        assert recorded.compare(policy)[0] is False
        recorded.note(policy)
        assert recorded.compare(policy)[0] is True


def test_equal_names_of_different_keys_are_told_apart() -> None:
    policy = Reading()
    policy.table = {1: torch.zeros(2), "1": torch.ones(2)}
    recorded = noted(policy)
    names = {name.removeprefix("tensor ").removesuffix(" of the policy") for name in changing_tensors_of(policy)}
    assert names == {"'kept'", "'table[1]'", "\"table['1']\""}
    policy.table["1"] = torch.ones(2)
    assert recorded.compare(policy)[0] is False


# ---------------------------------------------------------------------------------------------------------- modules


@pytest.mark.parametrize("wrap", [lambda net: Wrapped(net), lambda net: Wrapped(Wrapped(net))])
def test_the_network_of_a_policy_that_is_not_a_module_is_compared(wrap: Callable[[Any], Any]) -> None:
    network = Reading()
    policy = wrap(network)
    recorded = noted(policy)
    network.layer.weight = nn.Parameter(torch.zeros(2, 2))
    assert recorded.compare(policy)[0] is False
    note(recorded, policy)
    policy.inner = Reading()
    assert recorded.compare(policy)[0] is False


@pytest.mark.parametrize("collect", [lambda nets: nets, tuple])
def test_networks_in_containers_are_compared(collect: Callable[[list[Any]], Any]) -> None:
    networks = [nn.Linear(2, 2), nn.Linear(2, 2)]
    policy = Applying(collect(networks))
    recorded = noted(policy)
    assert not list(policy.parameters())
    networks[1].weight = nn.Parameter(torch.zeros(2, 2))
    assert recorded.compare(policy)[0] is False
    note(recorded, policy)
    policy.applied = collect([networks[0], nn.Linear(2, 2)])
    assert recorded.compare(policy)[0] is False


def test_numbers_of_networks_in_containers_are_named() -> None:
    policy = Applying([nn.Linear(2, 2), nn.Dropout(0.5).eval()])
    recorded = noted(policy)
    policy.applied[1].p = 0.25
    assert recorded.compare(policy) == (True, "applied[1].p")


@pytest.mark.parametrize("make", [lambda: partial(torch.add, 1), Scaled])
def test_callables_of_any_kind_are_compared(make: Callable[[], Any]) -> None:
    policy = Applying(make())
    recorded = noted(policy)
    policy.applied = make()
    assert recorded.compare(policy)[0] is False


def test_modules_that_refer_to_each_other_are_looked_through_once() -> None:
    first, second = Applying(torch.abs), Applying(torch.abs)
    first.others = [second, first]
    second.others = {"first": first}
    identities = parts_of(first).identities
    assert [one for one in identities if isinstance(one, nn.Module)] == [first, second]

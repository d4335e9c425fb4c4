"""Recorded environment steps: what they must be compared with, when they are recorded again, and in how much memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from maze_pl.collect.tensors import tensor_collector
from maze_pl.collect.tensors.graph_checks import addresses_of, constants_of, differing_number, differing_tensor
from maze_pl.collect.tensors.graph_checks import parts_of as parts_of_policy
from maze_pl.collect.tensors.tensor_collector import MOST_RECORDINGS, TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.nested_arrays import parts_of
from maze_pl.envs.tensors import CartPoleTensorEnv
from maze_pl.modules import PPO
from tests.envs.tensors.tensor_envs import ENVS

N_ENVS, N_STEPS = 3, 20
CPU = torch.device("cpu")


class Recorded:
    """A graph that keeps values of Python, as that of a CUDA device does.

    Attributes:
        n_recorded: Number of recordings.
    """

    n_recorded = 0

    def __init__(self, function: Callable[[], object], device: Any, generator: Any, prepare: Callable[[], Any]) -> None:
        def step() -> Tensor:
            function()
            return torch.zeros(())

        prepare()
        self._graph: Any = make_fx(step)()
        Recorded.n_recorded += 1

    def replay(self) -> None:
        self._graph()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    monkeypatch.setattr(tensor_collector, "DeviceGraph", Recorded)
    monkeypatch.setattr(Recorded, "n_recorded", 0)
    return Recorded


class Joint:
    """Actions that are the same in all environments."""

    def __init__(self, n_envs: int, action: int) -> None:
        self.n_envs = n_envs
        self.action = action

    def sample(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {"action": torch.full((self.n_envs,), self.action, dtype=torch.int64)}


class Chooser(nn.Module):
    """A module whose attribute chooses the action."""

    def __init__(self) -> None:
        super().__init__()
        self.action = 0


class Policy(nn.Module):
    """Takes the action of its chooser, the other one in each second act if `alternates`."""

    acts_on_device = True

    def __init__(self, alternates: bool = False) -> None:
        super().__init__()
        self.chooser = Chooser()
        self.alternates = alternates

    def distribution(self, key: Any, observation: dict[str, Tensor], agent_id: Any = None) -> Joint:
        if self.alternates:
            self.chooser.action = 1 - self.chooser.action
        return Joint(len(observation["observation"]), self.chooser.action)


def collector_of(make: Any, records: bool, n_steps: int = N_STEPS) -> TensorCollector:
    vector = TensorVector(make(), N_ENVS, Spec.of(make()), CPU, seed=3)
    return TensorCollector(vector, n_steps, torch.Generator().manual_seed(1), records)


def actions_of(collector: TensorCollector, policy: Policy) -> list[list[int]]:
    """Actions of all environments of a rollout, by rows."""
    found: list[list[int]] = collector.collect(policy).segments[0].action["action"].tolist()
    return found


# --------------------------------------------------------------------------------------------- numbers of the policy


def test_a_step_is_recorded_again_if_a_number_of_the_policy_has_changed(recorded: type[Recorded]) -> None:
    collector, policy = collector_of(CartPoleTensorEnv, records=True), Policy()
    counts = []
    for action in (0, 1, 1, 0, 0):
        policy.chooser.action = action
        assert actions_of(collector, policy) == [[action] * N_ENVS] * N_STEPS
        counts.append(recorded.n_recorded)
    assert counts == [1, 2, 2, 3, 3]


def test_a_policy_that_changes_its_numbers_when_it_acts_is_collected_from_without_a_graph(
    recorded: type[Recorded], caplog: pytest.LogCaptureFixture
) -> None:
    collector, policy = collector_of(CartPoleTensorEnv, records=True), Policy(alternates=True)
    for _ in range(3):
        found = actions_of(collector, policy)
        rows = [row[0] for row in found]
        assert found == [[action] * N_ENVS for action in rows]
        assert [first + second for first, second in pairwise(rows)] == [1] * (N_STEPS - 1)
    assert recorded.n_recorded == 1, "a refused graph is not recorded again"
    assert "slower: the policy changes its number 'chooser.action' when it acts" in caplog.text


@pytest.mark.slow
def test_a_number_that_changes_between_rollouts_is_recorded_a_few_times_only(
    recorded: type[Recorded], caplog: pytest.LogCaptureFixture
) -> None:
    collector, policy = collector_of(CartPoleTensorEnv, records=True), Policy()
    for number in range(2 * MOST_RECORDINGS):
        policy.chooser.action = number % 2
        assert actions_of(collector, policy) == [[number % 2] * N_ENVS] * N_STEPS
    assert recorded.n_recorded == MOST_RECORDINGS
    assert caplog.text.count("without a graph") == 1
    assert "slower: the number 'chooser.action' of the policy changes between rollouts" in caplog.text


@pytest.mark.slow
def test_a_policy_that_is_another_one_in_each_rollout_is_recorded_a_few_times_only(
    recorded: type[Recorded], caplog: pytest.LogCaptureFixture
) -> None:
    collector, policies = collector_of(CartPoleTensorEnv, records=True), [Policy() for _ in range(9)]
    for policy in policies:
        collector.collect(policy)
    assert recorded.n_recorded == MOST_RECORDINGS
    assert (
        "slower: the policy, its hooks, functions or the place of its tensors changes between rollouts" in caplog.text
    )


@pytest.mark.slow
def test_changes_with_rollouts_in_between_are_recorded_each_time(recorded: type[Recorded]) -> None:
    collector, policy = collector_of(CartPoleTensorEnv, records=True), Policy()
    for number in range(2 * MOST_RECORDINGS):
        policy.chooser.action = number % 2
        for _ in range(2):
            assert actions_of(collector, policy) == [[number % 2] * N_ENVS] * N_STEPS
    assert recorded.n_recorded == 2 * MOST_RECORDINGS


def test_a_number_that_is_nan_equals_itself(recorded: type[Recorded], caplog: pytest.LogCaptureFixture) -> None:
    assert differing_number({"fill": float("nan")}, {"fill": float("nan")}) is None
    assert differing_number({"fill": float("nan")}, {"fill": 0.0}) == "fill"
    assert differing_number({"fill": float("nan")}, {}) == "fill"
    collector, policy = collector_of(CartPoleTensorEnv, records=True), Policy()
    for _ in range(3):
        policy.chooser.fill = float("nan")
        collector.collect(policy)
    assert (recorded.n_recorded, caplog.text) == (1, "")


class Shaken(Policy):
    """Draws from the global generator, and counts its acts in a buffer; another buffer cannot be written."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n_acts", torch.zeros((), dtype=torch.int64))
        self.register_buffer("ones", torch.ones(1).expand(3))

    def distribution(self, key: Any, observation: dict[str, Tensor], agent_id: Any = None) -> Joint:
        self.n_acts.add_(1)
        joint = Joint(len(observation["observation"]), 0)
        drawn = (torch.rand(joint.n_envs) < 0.5).long()
        joint.sample = lambda generator: {"action": (drawn + self.n_acts) % 2}  # type: ignore[method-assign]
        return joint


@pytest.mark.parametrize("records", [False, True])
def test_checks_and_recordings_leave_global_generators_and_buffers_alone(
    records: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Called:
        """A graph that calls its function, as that of a CPU does, also while it is recorded."""

        def __init__(self, function: Any, device: Any, generator: Any, prepare: Callable[[], Any]) -> None:
            self.replay = function
            for _ in range(3):
                prepare()
                function()

    monkeypatch.setattr(tensor_collector, "DeviceGraph", Called)
    policy = Shaken()
    torch.manual_seed(5)
    found = actions_of(collector_of(CartPoleTensorEnv, records=records), policy)
    assert int(policy.n_acts) == N_STEPS
    torch.manual_seed(5)
    for number, row in enumerate(found):
        assert row == (((torch.rand(N_ENVS) < 0.5).long() + number + 1) % 2).tolist()
    assert "without a graph" not in caplog.text


def test_numbers_and_texts_of_all_modules_are_compared() -> None:
    policy: Any = Policy()
    policy.mode = "greedy"
    policy.history = [1, 2]  # no attribute with a single value
    policy.chooser.scale = 0.5
    before = parts_of_policy(policy).numbers
    expected = {"training": True, "alternates": False, "mode": "greedy"}
    of_chooser = {"chooser.training": True, "chooser.action": 0, "chooser.scale": 0.5}
    assert before == {**expected, **of_chooser}
    assert differing_number(before, parts_of_policy(policy).numbers) is None
    policy.mode = "free"
    assert differing_number(before, parts_of_policy(policy).numbers) == "mode"
    policy.mode = "greedy"
    policy.chooser.noise = 1.0
    assert differing_number(before, parts_of_policy(policy).numbers) == "chooser.noise"
    for first, second in ((np.float32(1), np.float32(2)), (np.int64(1), np.int64(2))):
        policy.chooser.noise = first
        before = parts_of_policy(policy).numbers
        policy.chooser.noise = second
        assert differing_number(before, parts_of_policy(policy).numbers) == "chooser.noise"
    assert parts_of_policy(object()).numbers == {}


# -------------------------------------------------------------------------------------- tensors and hooks of the policy


class Shift(nn.Module):
    """A module that returns its plain tensor, and keeps what it returned last."""

    def __init__(self) -> None:
        super().__init__()
        self.amount = torch.tensor(0)
        self.amounts = [torch.tensor(0)]
        self.last: Tensor | None = None

    def forward(self, zero: Tensor) -> Tensor:
        self.last = zero + self.amount + self.amounts[0]
        return self.last


class Shifted(Policy):
    """Takes the action that its module returns."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = Shift()

    def distribution(self, key: Any, observation: dict[str, Tensor], agent_id: Any = None) -> Joint:
        joint = Joint(len(observation["observation"]), 0)
        drawn = torch.zeros(joint.n_envs, dtype=torch.int64) + self.shift(torch.zeros((), dtype=torch.int64))
        joint.sample = lambda generator: {"action": drawn}  # type: ignore[method-assign]
        return joint


@pytest.mark.slow
def test_a_step_is_recorded_again_if_a_plain_tensor_that_it_reads_is_another_one(recorded: type[Recorded]) -> None:
    collector, policy = collector_of(CartPoleTensorEnv, records=True), Shifted()
    counts = []
    for amount, other in ((0, 0), (1, 0), (1, 0), (0, 1), (0, 0)):
        if int(policy.shift.amount) != amount:
            policy.shift.amount = torch.tensor(amount)
        if int(policy.shift.amounts[0]) != other:
            policy.shift.amounts[0] = torch.tensor(other)
        assert actions_of(collector, policy) == [[amount + other] * N_ENVS] * N_STEPS
        counts.append(recorded.n_recorded)
    assert counts == [1, 2, 2, 3, 4]


def test_tensors_that_a_module_keeps_of_its_results_are_not_compared(
    recorded: type[Recorded], caplog: pytest.LogCaptureFixture
) -> None:
    collector, policy = collector_of(CartPoleTensorEnv, records=True), Shifted()
    for _ in range(4):
        policy.shift(torch.zeros(1, dtype=torch.int64))  # as the learner does
        collector.collect(policy)
    assert (recorded.n_recorded, caplog.text) == (1, "")


def test_a_policy_that_replaces_a_tensor_which_it_reads_is_collected_from_without_a_graph(
    recorded: type[Recorded], caplog: pytest.LogCaptureFixture
) -> None:
    class Alternating(Shift):
        def forward(self, zero: Tensor) -> Tensor:
            self.amount = 1 - self.amount
            return zero + self.amount

    collector, policy = collector_of(CartPoleTensorEnv, records=True), Shifted()
    policy.shift = Alternating()
    for _ in range(3):
        rows = [row[0] for row in actions_of(collector, policy)]
        assert [first + second for first, second in pairwise(rows)] == [1] * (N_STEPS - 1)
    assert recorded.n_recorded == 1
    assert "slower: the policy replaces its tensor 'shift.amount' when it acts" in caplog.text


@pytest.mark.slow
def test_a_step_is_recorded_again_if_a_hook_is_added_or_removed(recorded: type[Recorded]) -> None:
    collector, policy = collector_of(CartPoleTensorEnv, records=True), Shifted()
    assert actions_of(collector, policy) == [[0] * N_ENVS] * N_STEPS
    hook = policy.shift.register_forward_hook(lambda module, arguments, output: output + 1)
    assert actions_of(collector, policy) == [[1] * N_ENVS] * N_STEPS
    hook.remove()
    assert actions_of(collector, policy) == [[0] * N_ENVS] * N_STEPS
    hook = policy.shift.register_forward_pre_hook(lambda module, arguments: (arguments[0] + 1,))
    assert actions_of(collector, policy) == [[1] * N_ENVS] * N_STEPS
    hook.remove()
    every = nn.modules.module.register_module_forward_hook(lambda module, arguments, output: 1 - output)
    try:
        assert actions_of(collector, policy) == [[1] * N_ENVS] * N_STEPS
    finally:
        every.remove()
    assert recorded.n_recorded == 5


def test_a_step_is_recorded_again_if_a_module_without_parameters_is_another_one(recorded: type[Recorded]) -> None:
    class Raised(Shift):
        def forward(self, zero: Tensor) -> Tensor:
            return zero + 1

    collector, policy = collector_of(CartPoleTensorEnv, records=True), Shifted()
    policy.shift = Shift()
    assert actions_of(collector, policy) == [[0] * N_ENVS] * N_STEPS
    policy.shift = Raised()
    assert actions_of(collector, policy) == [[1] * N_ENVS] * N_STEPS


def test_a_step_is_recorded_again_if_a_function_of_a_module_is_another_one(recorded: type[Recorded]) -> None:
    class Applied(Shift):
        def __init__(self) -> None:
            super().__init__()
            self.function: Any = torch.abs

        def forward(self, zero: Tensor) -> Tensor:
            return self.function(zero)  # type: ignore[no-any-return]

    collector, policy = collector_of(CartPoleTensorEnv, records=True), Shifted()
    policy.shift = shift = Applied()
    assert actions_of(collector, policy) == [[0] * N_ENVS] * N_STEPS
    shift.function = torch.ones_like
    for _ in range(2):
        assert actions_of(collector, policy) == [[1] * N_ENVS] * N_STEPS
    assert recorded.n_recorded == 2


def test_a_policy_that_replaces_a_function_when_it_acts_is_collected_from_without_a_graph(
    recorded: type[Recorded], caplog: pytest.LogCaptureFixture
) -> None:
    class Alternating(Shift):
        function: Any = None

        def forward(self, zero: Tensor) -> Tensor:
            self.function = torch.zeros_like if self.function is torch.ones_like else torch.ones_like
            return self.function(zero)  # type: ignore[no-any-return]

    collector, policy = collector_of(CartPoleTensorEnv, records=True), Shifted()
    policy.shift = Alternating()
    for _ in range(2):
        rows = [row[0] for row in actions_of(collector, policy)]
        assert [first + second for first, second in pairwise(rows)] == [1] * (N_STEPS - 1)
    assert "slower: the policy replaces a module, a hook or a function when it acts" in caplog.text


def test_tensors_are_found_in_nested_containers() -> None:
    policy: Any = Policy()
    inner = torch.zeros(1)
    policy.tables = {"first": [(inner,)], "second": torch.ones(1)}
    policy.tables["all"] = policy.tables
    assert {one.name for one in parts_of_policy(policy).tensors} == {"tables['first'][0][0]", "tables['second']"}
    before = addresses_of(parts_of_policy(policy), ["tables['first'][0][0]"])
    policy.tables["first"] = [(torch.zeros(1),)]
    assert addresses_of(parts_of_policy(policy), ["tables['first'][0][0]"]) != before


def test_whole_numbers_must_be_equal_and_real_ones_but_for_rounding() -> None:
    def differs(first: Any, second: Any) -> bool:
        return differing_tensor({"numbers": torch.tensor([first])}, {"numbers": torch.tensor([second])}) is not None

    assert not differs(20000, 20000)
    assert differs(20000, 20001)
    assert differs(False, True)
    assert not differs(20000.0, 20001.0)
    assert differs(20000.0, 20010.0)
    assert not differs(float("nan"), float("nan"))


def test_tensors_on_other_devices_are_compared_by_their_content() -> None:
    policy: Any = Shifted()
    policy.shift.register_buffer("scale", torch.tensor([0.5, 1.0], dtype=torch.bfloat16))
    device = torch.device("meta")  # stands for a GPU
    before = constants_of(parts_of_policy(policy), device)
    policy.shift.amount = torch.tensor(0)
    assert differing_number(before, constants_of(parts_of_policy(policy), device)) is None, "only the content counts"
    policy.shift.amount.add_(1)
    assert differing_number(before, constants_of(parts_of_policy(policy), device)) == "shift.amount"
    assert (
        differing_number(before, constants_of(parts_of_policy(policy), device, plain=["shift.amounts[0]"]))
        == "shift.amount"
    )
    policy.shift.amount.zero_()
    policy.shift.scale[1] = 2.0
    assert differing_number(before, constants_of(parts_of_policy(policy), device)) == "shift.scale"
    assert not {"shift.amount", "shift.scale"} & constants_of(parts_of_policy(policy), CPU).keys()


def test_after_a_recording_that_failed_the_reason_to_give_up_is_what_changes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(tensor_collector, "DeviceGraph", fail)
    collector = collector_of(CartPoleTensorEnv, records=True)
    for _ in range(MOST_RECORDINGS + 1):
        collector.collect(Policy())
    assert caplog.text.count("out of luck") == MOST_RECORDINGS
    assert (
        "slower: the policy, its hooks, functions or the place of its tensors changes between rollouts" in caplog.text
    )


# ------------------------------------------------------------------------------------------------ what a step changes


def tensors_below(value: Any) -> Iterator[Tensor]:
    """All tensors that are reached from an object."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            yield one
        else:
            waiting.extend(parts_of(one).values())


@pytest.mark.parametrize("name", ENVS)
def test_the_first_step_changes_nothing_but_what_is_restored_after_a_recording(name: str) -> None:
    collector = collector_of(ENVS[name], records=False)
    policy = PPO(spec=Spec.of(ENVS[name]())).policy
    for _ in range(2):
        collector.collect(policy)
    collector._row.zero_()
    everything = list(tensors_below([collector.env, vars(collector._storage), collector._episode, collector._reward]))
    before = [tensor.clone() for tensor in everything]
    written = collector._written_by_first_step(policy)
    snapshot = collector._snapshot(written)
    for _ in range(2):  # which differ by their actions
        collector._row.zero_()
        with torch.no_grad():
            collector._step(policy)
    n_changed = sum(not torch.equal(*pair) for pair in zip(everything, before, strict=True))
    collector._restore(written, snapshot)
    assert n_changed > 8
    for tensor, earlier in zip(everything, before, strict=True):
        torch.testing.assert_close(tensor, earlier, rtol=0.0, atol=0.0, equal_nan=True)
    assert sum(tensor.nbytes for tensor in written.values()) < sum(tensor.nbytes for tensor in everything) / 4


class LargestOutput(TorchDispatchMode):
    """Notes the largest tensor that an operation makes, in bytes; tensors that it writes into do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.n_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and func._schema.returns[0].alias_info is None:
            self.n_bytes = max(self.n_bytes, result.nbytes)
        return result


@pytest.mark.parametrize("name", ENVS)
def test_a_recording_needs_no_more_memory_for_longer_rollouts(name: str) -> None:
    policy = PPO(spec=Spec.of(ENVS[name]())).policy
    found = []
    for n_steps in (2, 500):
        collector = collector_of(ENVS[name], records=True, n_steps=n_steps)
        collector.start()
        with torch.no_grad():
            collector._take_trial_step(policy)
            collector._row.zero_()
            with LargestOutput() as largest:
                assert collector._prepare_graph(policy)
        found.append(largest.n_bytes)
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["reward 0", "following observation observation", "is_first 0", "number env_steps"])
def test_a_graph_that_writes_other_values_is_not_used(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong:
        def __init__(
            self, function: Callable[[], Any], device: Any, generator: Any, prepare: Callable[[], Any]
        ) -> None:
            self._function = function

        def replay(self) -> None:
            self._function()
            values = collector._storage.written_in(0)[name]
            values.copy_(~values if values.dtype == torch.bool else values + 1)

    monkeypatch.setattr(tensor_collector, "DeviceGraph", Wrong)
    collector = collector_of(CartPoleTensorEnv, records=True)
    expected = actions_of(collector_of(CartPoleTensorEnv, records=False), Policy())
    assert actions_of(collector, Policy()) == expected
    assert f"slower: {name} differs from the same operations before it was recorded" in caplog.text


# --------------------------------------------------------------------------------------------------------- differences


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ([1.0, float("nan")], [1.0, float("nan")], True),
        ([1.0, float("inf")], [1.0 + 1e-6, float("inf")], True),
        ([1.0, 2.0], [1.0, 2.01], False),
        ([1.0, float("nan")], [1.0, 2.0], False),
        ([1, 255], [1, 255], True),
        ([1, 255], [1, 254], False),
        ([True, False], [True, False], True),
        ([True, False], [True, True], False),
    ],
)
def test_tensors_that_differ_by_more_than_rounding_are_named(first: Any, second: Any, is_same: bool) -> None:
    same = torch.arange(3)
    pair: Any = [{"same": same, "x": torch.tensor(x)} for x in (first, second)]
    assert differing_tensor(*pair) == (None if is_same else "x")
    assert differing_tensor({"x": torch.tensor([1, 2], dtype=torch.uint8)}, {"x": torch.tensor([1, 2])}) is None

"""Decisions on traces of losses: on a simulated device with graphs, and within several runs of one module."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.modules import A2C, PPO
from maze_pl.modules.optimization import capture, step_plan, traced_loss
from maze_pl.modules.optimization.capture import MAX_TRACES, run_trace
from maze_pl.modules.optimization.recorded_values import RecordedValue, scalars_of
from maze_pl.modules.optimization.trace_graph import TensorElsewhere
from tests.operations import operations_of

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


@pytest.fixture
def with_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the CPU for a device whose traces are graphs."""
    for room in (capture, traced_loss):
        monkeypatch.setattr(room, "uses_graphs", lambda device: True)


class OneUneven(A2C):
    """Takes its second minibatch for one that differs in size."""

    n_steps = 0

    def gradient_step(self, loss: Any, minibatch: Any = None, **options: Any) -> None:
        self.n_steps += 1
        super().gradient_step(loss, minibatch, **{**options, "even": self.n_steps != 2})


def test_even_minibatches_are_traced_after_an_uneven_one_on_a_device_with_graphs(
    kit: SimpleNamespace, with_graphs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return run_trace(*arguments)

    monkeypatch.setattr(traced_loss, "run_trace", counted)
    networks = kit.make_actor_critic()
    module = OneUneven(actor_critic=networks)
    kit.fit(module, length=5)
    assert (module.n_traces, module.capture_refusal, len(calls)) == (1, None, 4)


@pytest.mark.slow
def test_a_module_can_be_fitted_any_number_of_times_on_a_device_with_graphs(
    kit: SimpleNamespace, with_graphs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Noted(capture.GraphedTrace):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            alive.add(self)

    monkeypatch.setattr(capture, "GraphedTrace", Noted)
    module = PPO(actor_critic=kit.make_actor_critic(), batch_size=20, clip_range=lambda progress: 0.2)
    for n_runs in range(1, MAX_TRACES + 3):
        kit.fit(module, length=2)
        module._apply(torch.clone)  # the trainer moves parameters and buffers from the device
        assert (module.n_traces, module.capture_refusal) == (n_runs, None)
        assert not alive, "graphs keep the memory of the device"


class Varying(A2C):
    """Its loss uses the acts of positive advantage only, so that shapes depend on values."""

    def loss(self, minibatch: Any) -> torch.Tensor:
        """Compute a loss."""
        (acts,) = minibatch.values()
        value = self.critic.value(0, acts.critic_inputs, acts.agent_id)
        return value[acts.advantage > 0].sum()


def test_a_loss_that_cannot_be_traced_on_one_kind_of_device_is_tried_on_another(kit: SimpleNamespace) -> None:
    module = Varying(actor_critic=kit.make_actor_critic())
    kit.fit(module)
    for device, is_refused in ((torch.device("cpu"), True), (torch.device("cuda", 0), False)):
        module._gradient_steps.start_run(device)
        assert (module.capture_refusal is not None) is is_refused


class Stops(pl.Callback):
    """Raises an error after the third batch."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 2:
            raise RuntimeError("stopped")


def test_a_run_that_fails_leaves_no_graphs_behind(kit: SimpleNamespace, with_graphs: None) -> None:
    module = A2C(actor_critic=kit.make_actor_critic())
    with pytest.raises(RuntimeError, match="stopped"):
        kit.fit(module, length=4, callbacks=[Stops()])
    tracer = module._gradient_steps.traced_losses._tracer
    assert tracer is not None and (tracer.n_made, tracer._traces) == (1, {})


class TwoLosses(A2C):
    """Takes a step on each of two losses, which read what cannot be watched in their first call of a run."""

    def on_fit_start(self) -> None:
        """Forget the calls of the previous run."""
        super().on_fit_start()
        self.called: set[str] = set()

    def training_step(self, rollout: Any, batch_idx: int) -> None:
        """Learn from a rollout."""
        (whole,) = self.make_learning_batch(rollout, 1.0).minibatches(1)
        self.gradient_step(self.loss, whole)
        self.gradient_step(self.second_loss, whole)

    def loss(self, minibatch: Any) -> torch.Tensor:
        """Compute the loss of A2C."""
        self.read("loss")
        return super().loss(minibatch)

    def second_loss(self, minibatch: Any) -> torch.Tensor:
        """Compute the same loss."""
        self.read("second_loss")
        return 2.0 * super().loss(minibatch)

    def read(self, name: str) -> None:
        """Read all attributes once."""
        if name not in self.called:
            self.read_all()
            self.called.add(name)

    def read_all(self) -> None:
        """Read what cannot be followed."""
        vars(self)


@pytest.mark.slow
def test_each_loss_of_a_run_may_fail_to_be_watched_once_on_a_device_with_graphs(
    kit: SimpleNamespace, with_graphs: None
) -> None:
    module = TwoLosses(actor_critic=kit.make_actor_critic())
    for n_runs in (1, 2):
        kit.fit(module, length=4)
        assert (module.n_traces, module.capture_refusal) == (2 * n_runs, None)


class Host(A2C):
    """Takes a step on each of two losses, one of which records a tensor of the host."""

    def training_step(self, rollout: Any, batch_idx: int) -> None:
        """Learn from a rollout."""
        (whole,) = self.make_learning_batch(rollout, 1.0).minibatches(1)
        self.gradient_step(self.loss, whole)
        self.gradient_step(self.recording_loss, whole)

    def recording_loss(self, minibatch: Any) -> torch.Tensor:
        """Compute the loss of A2C."""
        self.record("number", torch.arange(3).sum())
        return super().loss(minibatch)


@pytest.mark.slow
def test_a_tensor_of_the_host_keeps_only_its_loss_from_being_traced(
    kit: SimpleNamespace, with_graphs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(graph: Any, arguments: Any) -> None:  # as on a GPU
        if any("arange" in str(node.target) for node in graph.graph.nodes):
            raise TensorElsewhere(torch.ones(3), "constant")

    monkeypatch.setattr(capture, "check_reads_one_device", check)
    module = Host(actor_critic=kit.make_actor_critic())
    runs: list[int] = []
    monkeypatch.setattr(traced_loss, "run_trace", lambda *arguments: runs.append(1) or run_trace(*arguments))
    kit.fit(module, length=4)
    assert len(runs) == 4 and module.n_traces == 2
    refusal = module.capture_refusal
    assert refusal is not None and "reads or records a tensor of shape (3,) on the cpu" in refusal
    monkeypatch.setattr(capture, "check_reads_one_device", lambda graph, arguments: None)
    kit.fit(module, length=4)
    assert len(runs) == 3 * 4 and module.capture_refusal is None


def test_traces_outlast_a_run_on_the_cpu(kit: SimpleNamespace) -> None:
    module = A2C(actor_critic=kit.make_actor_critic())
    for _ in range(3):
        kit.fit(module, length=2)
    assert (module.n_traces, module.capture_refusal) == (1, None)


def test_traces_of_one_device_do_not_serve_another(kit: SimpleNamespace) -> None:
    module = A2C(actor_critic=kit.make_actor_critic())
    settings = []
    for device in (torch.device("cpu"), torch.device("cuda", 0)):
        module._device = device
        owner = module._loss_owner(0)
        assert owner is not None
        settings.append(owner.settings)
    assert settings[0] != settings[1]


@pytest.mark.parametrize("precisions", [("32-true", "bf16-mixed"), ("bf16-mixed", "32-true"), ("32-true", "bf16-true")])
def test_traces_of_one_precision_do_not_serve_another(kit: SimpleNamespace, precisions: tuple[str, str]) -> None:
    module = A2C(actor_critic=kit.make_actor_critic())
    for precision in precisions:
        kit.fit(module, precision=precision)
    assert (module.n_traces, module.capture_refusal) == (2, None)


def test_traces_of_one_rank_do_not_serve_several(kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    module = A2C(actor_critic=kit.make_actor_critic(), max_grad_norm=0.5)
    kit.fit(module)
    monkeypatch.setattr(step_plan, "world_size", lambda: 2)  # which limit the norm after averaging
    kit.fit(module)
    assert (module.n_traces, module.capture_refusal) == (2, None)


def test_recorded_numbers_are_not_copied_from_the_host() -> None:
    loss = torch.ones(())
    values = [RecordedValue("plain", 0.25, 0, 1.0), RecordedValue("count", 3, 0, torch.ones(()))]
    found = []
    operations = operations_of(lambda: found.extend(scalars_of(loss, values)))
    assert not any("lift" in name or "copy" in name for name in operations)
    assert [scalar.tolist() for scalar in found] == [1.0, 0.25, 3, 1.0]

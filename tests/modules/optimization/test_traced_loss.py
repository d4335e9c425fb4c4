"""Decisions on traces of losses: on a simulated device with graphs, and within several runs of one module."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from maze_pl.modules import A2C, PPO
from maze_pl.modules.optimization import capture, traced_loss
from maze_pl.modules.optimization.capture import MAX_TRACES, run_trace
from maze_pl.modules.optimization.traced_loss import RecordedValue, scalars_of
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


def test_traces_outlast_a_run_on_the_cpu(kit: SimpleNamespace) -> None:
    module = A2C(actor_critic=kit.make_actor_critic())
    for _ in range(3):
        kit.fit(module, length=2)
    assert (module.n_traces, module.capture_refusal) == (1, None)


def test_traces_of_one_device_do_not_serve_another(kit: SimpleNamespace) -> None:
    module = A2C(actor_critic=kit.make_actor_critic())
    optimizer: Any = module.configure_optimizers()
    settings = []
    for device in (torch.device("cpu"), torch.device("cuda", 0)):
        module._device = device
        owner = module._loss_owner(0, optimizer)
        assert owner is not None
        settings.append(owner.settings)
    assert settings[0] != settings[1]


def test_recorded_numbers_are_not_copied_from_the_host() -> None:
    loss = torch.ones(())
    values = [RecordedValue("plain", 0.25, 0, 1.0), RecordedValue("count", 3, 0, torch.ones(()))]
    found = []
    operations = operations_of(lambda: found.extend(scalars_of(loss, values)))
    assert not any("lift" in name or "copy" in name for name in operations)
    assert [scalar.tolist() for scalar in found] == [1.0, 0.25, 3, 1.0]

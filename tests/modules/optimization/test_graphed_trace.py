"""Gradients from graphs of a device; a simulated device calls the recorded function again."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from maze_pl.datamodules import ReplayDataModule, RolloutDataModule
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import PPO, SAC
from maze_pl.modules.optimization import capture as capture_room
from maze_pl.modules.optimization import graphed_trace, traced_loss
from maze_pl.modules.optimization.graphed_trace import GraphedTrace
from tests.devices import DEVICES
from tests.envs.tensors.tensor_envs import ENVS


def _gradient(weight: Tensor, inputs: Tensor, written: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient of the mean of (weight . input)^2 over the inputs [n, 2], and the mean."""
    product = inputs @ weight
    written.copy_((2.0 * product[:, None] * inputs).mean(0))
    return written, product.square().mean().reshape(1)


@pytest.mark.parametrize("device", DEVICES)
def test_a_graphed_trace_computes_with_the_current_inputs_and_parameters(device: str) -> None:
    weight = torch.tensor([1.0, 2.0], device=device)
    trace = GraphedTrace(_gradient, 1)
    scalars: list[Tensor] = []
    for scale in (1.0, 3.0):
        inputs = scale * torch.tensor([[1.0, 0.0], [1.0, 1.0]], device=device)
        gradient = torch.empty(2, device=device)
        result, scalar = trace(weight, inputs, gradient)
        assert result is gradient
        assert gradient.tolist() == [scale**2 * 4.0, scale**2 * 3.0]  # products 1 and 3
        scalars.append(scalar)
    weight.mul_(2.0)
    gradient = torch.empty(2, device=device)
    scalars.append(trace(weight, torch.tensor([[1.0, 0.0], [1.0, 1.0]], device=device), gradient)[1])
    assert gradient.tolist() == [8.0, 6.0]
    assert [float(scalar) for scalar in scalars] == [5.0, 45.0, 20.0], "earlier results are kept"


@pytest.mark.parametrize("device", DEVICES)
def test_a_graphed_trace_is_recorded_again_if_parameters_have_moved(device: str) -> None:
    trace = GraphedTrace(_gradient, 1)
    inputs = torch.tensor([[1.0, 1.0]], device=device)
    kept = []
    for value in (1.0, 5.0):
        weight = torch.tensor([value, 0.0], device=device)
        kept.append(weight)  # so that its memory is not used again
        assert float(trace(weight, inputs, torch.empty(2, device=device))[1]) == value**2


class _Scaled(nn.Module):
    """Gradient of the mean of (factor * weight . input)^2, for a factor that is a parameter or buffer of another."""

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        if isinstance(factor, nn.Parameter):
            self.factor = factor
        else:
            self.register_buffer("factor", factor)

    def forward(self, weight: Tensor, inputs: Tensor, written: Tensor) -> tuple[Tensor, Tensor]:
        return _gradient(self.factor * weight, inputs, written)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("is_parameter", [True, False])
def test_a_graphed_trace_is_recorded_again_if_what_it_only_reads_has_moved(
    is_parameter: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_recorded = 0

    class Counted(graphed_trace.DeviceGraph):
        def __init__(self, *arguments: Any) -> None:
            nonlocal n_recorded
            n_recorded += 1
            super().__init__(*arguments)

    monkeypatch.setattr(graphed_trace, "DeviceGraph", Counted)
    factor = torch.tensor(2.0, device=device)
    factor = nn.Parameter(factor) if is_parameter else factor
    trace = GraphedTrace(_Scaled(factor), 1)
    weight, inputs = torch.tensor([1.0, 0.0], device=device), torch.tensor([[1.0, 1.0]], device=device)
    kept = [factor.data]
    for value, expected in ((2.0, 1), (3.0, 1), (4.0, 2)):
        if value == 4.0:
            factor.data = torch.empty_like(factor)  # as moving a module does
            kept.append(factor.data)
        factor.data.fill_(value)
        assert float(trace(weight, inputs, torch.empty(2, device=device))[1]) == value**2
        assert n_recorded == expected


def _fit(name: str, capture: Any, device: str = "cpu") -> Any:
    """Train for two epochs."""
    pl.seed_everything(3, verbose=False)
    options: dict[str, Any] = {"epoch_length": 3, "evaluators": {}, "seed": 0}
    data: Any
    module: Any
    if name == "sac":
        data = ReplayDataModule(
            partial(GymMazeEnv, "Pendulum-v1"),
            num_actors=2,
            n_rollout_steps=2,
            num_batches_per_iter=4,
            batch_size=16,
            initial_buffer_size=64,
            **options,
        )
        module = SAC(spec=data.spec, capture=capture)
    else:
        data = RolloutDataModule(ENVS[name], n_envs=16, n_rollout_steps=8, **options)
        module = PPO(spec=data.spec, batch_size=64, capture=capture, lr=1e-3, max_grad_norm=0.5)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator=device,
        devices=1,
        logger=False,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, data)
    return module


@pytest.mark.parametrize("name", ["flat", "structured", "sac"])
def test_a_simulated_device_trains_as_eager_updates_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (capture_room, traced_loss):
        monkeypatch.setattr(room, "uses_graphs", lambda device: True)
    graphed, eager = _fit(name, "auto"), _fit(name, "off")
    assert graphed.capture_refusal is None
    assert _distance(graphed, eager) < 1e-4


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["flat", "structured", "sac"])
def test_graphs_of_updates_train_as_eager_updates_do(name: str) -> None:
    graphed, eager = _fit(name, "auto", "cuda"), _fit(name, "off", "cuda")
    assert graphed.capture_refusal is None
    assert _distance(graphed, eager) < 1e-2


def _distance(first: pl.LightningModule, second: pl.LightningModule) -> float:
    """Distance of the parameters, relative to their norm."""
    vectors = [parameters_to_vector(module.parameters()).detach() for module in (first, second)]
    return float((vectors[0] - vectors[1]).norm() / vectors[0].norm())

"""Hooks of parameters and modules have the same effect on updates with and without traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from maze_pl.modules import A2C
from maze_pl.modules.optimization.reads import LossObservation

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing", "ignore:For backward hooks to be called"),
]

N_BATCHES = 3


def zeros(_: Any, gradients: Any, *__: Any) -> Any:
    return tuple(None if gradient is None else gradient * 0 for gradient in gradients)


def detached(_: Any, __: Any, output: Any) -> Any:
    return output.detach() if isinstance(output, Tensor) else None


def of_tanh(register: str, hook: Any) -> Callable[[nn.Sequential], RemovableHandle]:
    """A hook of the second layer, which stops the gradient of the first."""
    return lambda body: getattr(body[1], register)(hook)


HOOKS: dict[str, Callable[[nn.Sequential], RemovableHandle]] = {
    "parameter": lambda body: body[0].weight.register_hook(torch.zeros_like),
    "forward": of_tanh("register_forward_hook", detached),
    "backward": of_tanh("register_full_backward_hook", zeros),
    "backward_pre": of_tanh("register_full_backward_pre_hook", lambda module, gradients: zeros(module, gradients)),
    "every_forward": lambda _: register_module_forward_hook(detached),
    "every_backward": lambda _: register_module_full_backward_hook(zeros),
}


@contextmanager
def removed(callback: Hooking) -> Iterator[None]:
    """Remove the hook of a callback in the end."""
    try:
        yield
    finally:
        callback.remove()


class Hooking(pl.Callback):
    """Registers a hook after a batch, and removes it after another.

    Attributes:
        weights: Weights of the first layer of the policy after each batch.
    """

    def __init__(self, register: Callable[[nn.Sequential], RemovableHandle], after: int, until: int = 1000) -> None:
        self._register, self._after, self._until = register, after, until
        self._handle: RemovableHandle | None = None
        self._n_batches = 0
        self.weights: list[Tensor] = []

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        self._handle = None

    def _follow(self, pl_module: Any) -> None:
        body = pl_module.policy.networks[0][0].body
        self.weights.append(body[0].weight.detach().clone())
        if self._n_batches == self._after:
            self._handle = self._register(body)
        if self._n_batches == self._until:
            self.remove()
        self._n_batches += 1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._follow(pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self._follow(pl_module)


def trained(kit: SimpleNamespace, callback: Hooking, capture: Any, epochs: int = 1) -> A2C:
    module = A2C(actor_critic=kit.make_actor_critic(), lr=0.01, optimizer="sgd", capture=capture)
    torch.manual_seed(1)
    with removed(callback):
        kit.fit(module, epochs=epochs, length=N_BATCHES, callbacks=[callback])
    return module


@pytest.mark.parametrize("after", [0, 1], ids=["when training starts", "within an epoch"])
@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_that_callbacks_add_are_called_by_traced_updates(kit: SimpleNamespace, hook: str, after: int) -> None:
    traced, eager = Hooking(HOOKS[hook], after), Hooking(HOOKS[hook], after)
    trained(kit, traced, "auto")
    trained(kit, eager, "off")
    assert len(traced.weights) == 1 + N_BATCHES
    for index, (ours, theirs) in enumerate(zip(traced.weights, eager.weights, strict=True)):
        assert torch.equal(ours, theirs), index
    if after:
        assert not torch.equal(traced.weights[0], traced.weights[1])
    if not hook.startswith("every"):
        momentum = 0.9  # of plain SGD, which still moves the weights, but by less each time
        moves = [(later - now).norm() for now, later in pairwise(traced.weights[after:])]
        for earlier, later in pairwise(moves):
            torch.testing.assert_close(later, momentum * earlier)


def test_updates_are_traced_again_once_a_gradient_hook_is_removed(
    kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("maze_pl.modules.optimization.traced_loss.rank_zero_info", said.append)
    callback = Hooking(HOOKS["parameter"], after=0, until=3)
    module = trained(kit, callback, "auto", epochs=2)
    assert (module.n_traces, module.capture_refusal) == (1, None)
    reason = "updates are computed by autograd while parameters have gradient hooks (register_hook)"
    assert said.count(reason) == 1
    eager = Hooking(HOOKS["parameter"], after=0, until=3)
    trained(kit, eager, "off", epochs=2)
    assert torch.equal(callback.weights[3], eager.weights[3])
    torch.testing.assert_close(callback.weights[-1], eager.weights[-1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_hooks_on_the_accumulation_of_gradients_are_refused(kit: SimpleNamespace, capture: str) -> None:
    callback = Hooking(lambda body: body[0].weight.register_post_accumulate_grad_hook(lambda _: None), after=1)
    with pytest.raises(
        ValueError, match=r"register_post_accumulate_grad_hook, which would never be called.*register_hook"
    ):
        trained(kit, callback, capture)


def test_updates_with_a_hook_that_cannot_be_watched_are_not_traced(kit: SimpleNamespace, tmp_path: Path) -> None:
    with (tmp_path / "layers.txt").open("w") as file:

        def write(module: Any, *_: Any) -> None:
            file.write(f"{type(module).__name__}\n")

        callbacks = [Hooking(lambda _: register_module_forward_hook(write), after=1) for _ in range(2)]
        module = trained(kit, callbacks[0], "auto")
        trained(kit, callbacks[1], "off")
    assert (
        module.capture_refusal is not None
        and "TextIOWrapper, whose changes cannot be noticed" in module.capture_refusal
    )
    assert torch.equal(callbacks[0].weights[-1], callbacks[1].weights[-1])
    assert "Tanh" in (tmp_path / "layers.txt").read_text().split()


class Loss(pl.LightningModule):
    """A loss of a module with a layer."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self._device = torch.device(device, 0)

    def loss(self) -> Tensor:
        return self.layer(torch.ones(3, 2)).mean()


BACKWARD_HOOKS: list[Callable[[nn.Module], RemovableHandle]] = [
    lambda layer: layer.register_full_backward_hook(zeros),
    lambda layer: layer.register_full_backward_pre_hook(zeros),
    lambda _: register_module_full_backward_hook(zeros),
    lambda _: register_module_full_backward_pre_hook(zeros),
]


@pytest.mark.parametrize("register", BACKWARD_HOOKS, ids=["layer", "layer, before", "every", "every, before"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_backward_hooks_are_observed_on_each_device(
    device: str, register: Callable[[nn.Module], RemovableHandle]
) -> None:
    module = Loss(device)
    observation = LossObservation(module, [], [], [])
    loss = module.loss
    handle = register(module.layer)
    try:
        observation.run(lambda: torch.autograd.grad(loss(), list(module.parameters())))
    finally:
        handle.remove()
    assert observation.refused is None


def test_backward_passes_run_in_the_thread_that_is_observed() -> None:
    module = Loss("cpu")
    uses_threads = []
    loss = module.loss

    def compute() -> None:
        value = loss()
        value.register_hook(lambda _: uses_threads.append(torch._C._is_multithreading_enabled()))
        torch.autograd.grad(value, list(module.parameters()))

    LossObservation(module, [], [], []).run(compute)
    compute()
    assert uses_threads == [False, True]

"""Stochastic gradient descent with momentum on flat buffers."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import SGD
from torch.optim.sgd import sgd

from maze_pl.modules.optimization.flat_optimizer import Arguments, FlatOptimizer


class FlatSGD(FlatOptimizer, SGD):
    """Stochastic gradient descent whose state lives in flat buffers, see `FlatOptimizer`.

        b <- m * b + (1 - d) * (g + w * theta),   theta <- theta - lr * b

    with b = g + w * theta in the first step. With Nesterov momentum, theta is moved by g + w * theta + m * b.

    Args:
        params: Parameters, or parameter groups as dictionaries; a group may be empty.
        lr: Learning rate.
        momentum: m above; without momentum there is no state.
        dampening: d above.
        weight_decay: L2 penalty, w above.
        nesterov: Use Nesterov momentum.
    """

    _moments: ClassVar[tuple[str, ...]] = ("momentum_buffer",)

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        options: dict[str, Any] = {"momentum": momentum, "dampening": dampening, "nesterov": nesterov}
        super().__init__(params, lr=lr, weight_decay=weight_decay, fused=True, **options)
        self._has_momentum: list[bool] = []  # by stretch: a step has filled its part of the buffer
        self._bind()

    def _divide(self) -> None:
        self._has_momentum = []
        super()._divide()

    def _age(self, parameter: Tensor) -> bool:
        return self.state.get(parameter, {}).get("momentum_buffer") is not None

    def _restore(self, parameter: Tensor) -> None:
        self._has_momentum.append(self._age(parameter))

    def _state_of(self, index: int, moments: dict[str, Tensor]) -> dict[str, Any]:
        return moments if self._has_momentum[index] else {}

    def _arguments_of(self, group: dict[str, Any]) -> Arguments:
        options = group["momentum"], group["dampening"], group["weight_decay"], group["nesterov"]
        return group["lr"], *options

    def _step_of(self, arguments: Arguments, indices: list[int], buffers: list[list[Tensor]]) -> None:
        lr, momentum, dampening, decay, nesterov = arguments
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": decay, "nesterov": nesterov}
        parameters, gradients, moments = buffers
        is_inexact = parameters[0].is_cpu and parameters[0].dtype.itemsize < 4  # see `_plain_step`
        update: Any = _plain_step if is_inexact else torch._fused_sgd_
        for is_first in (True, False):
            chosen = [place for place, index in enumerate(indices) if self._has_momentum[index] is not is_first]
            if not chosen:
                continue
            lists = [[parts[place] for place in chosen] for parts in (parameters, gradients)]
            with_momentum = [moments[place] for place in chosen] if momentum else []
            first = bool(momentum) and is_first
            update(*lists, with_momentum, maximize=False, is_first_step=first, **options)
        if momentum:
            self._note_momentum(indices)

    def _note_momentum(self, indices: list[int]) -> None:
        """Show the momentum in the state of stretches that took their first step."""
        for index in indices:
            if self._has_momentum[index]:
                continue
            self._has_momentum[index] = True
            start = self._stretches[index].low
            for parameter in self._stretches[index].parameters:
                stop = start + parameter.numel()
                self.state[parameter] = {"momentum_buffer": self._buffers[2][start:stop].view(parameter.shape)}
                start = stop


def _plain_step(
    parameters: list[Tensor],
    gradients: list[Tensor],
    moments: list[Tensor],
    *,
    is_first_step: bool,
    **options: Any,
) -> None:
    """Do the same as `torch._fused_sgd_`, which on a CPU leaves most parameters of half precision as they are."""
    buffers: list[Tensor | None] = [None] * len(moments) if is_first_step else [*moments]
    sgd(parameters, gradients, buffers, foreach=False, fused=False, **options)
    if is_first_step:
        for moment, first in zip(moments, buffers, strict=True):
            assert first is not None
            moment.copy_(first)

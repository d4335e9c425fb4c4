"""Preparation of gradient steps: everything that is the same for all steps of one training batch."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.plugins import MixedPrecision, Precision
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor
from torch.nn.utils import parameters_to_vector
from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer

from maze_pl.modules.optimization.flat_optimizer import FlatOptimizer
from maze_pl.system.ranks import world_size


@dataclass(frozen=True, slots=True)
class LossOwner:
    """Module whose losses may be traced.

    Attributes:
        module: The module; its methods are the losses.
        settings: Values that a traced loss depends on besides the state that it reads.
        opaque: Methods without effect on a loss, or with an effect that `settings` account for.
    """

    module: pl.LightningModule
    settings: tuple[object, ...]
    opaque: tuple[CodeType, ...]


@dataclass(slots=True)
class StepPlan:
    """Values that are the same for all steps of an optimiser during one batch.

    Attributes:
        index: Index of the optimiser in the algorithm.
        is_only: True if it is the only optimiser.
        wrapper: Lightning's wrapper of the optimiser.
        max_grad_norm: Maximum L2 norm of the gradient; 0 for no limit.
        parameters: Parameters to differentiate with respect to.
        gradient: Buffer that the flat gradient is written into.
        direct: True if no hook observes a step, so that the wrapper only counts it.
        n_ranks: Number of processes that train together.
        by_user: True if user code runs between two steps, which may change what the loss reads.
        owner: Module whose losses are traced; None if nothing can be traced.
    """

    index: int
    is_only: bool
    wrapper: LightningOptimizer
    max_grad_norm: float
    parameters: list[Tensor]
    gradient: Tensor
    direct: bool
    n_ranks: int
    by_user: bool
    owner: LossOwner | None
    _views: list[Tensor] = field(default_factory=list)

    @property
    def views(self) -> list[Tensor]:
        """Views of `gradient`, one for each parameter."""
        if not self._views:
            parts = torch.split_with_sizes(self.gradient, [parameter.numel() for parameter in self.parameters])
            self._views = [part.view_as(parameter) for part, parameter in zip(parts, self.parameters, strict=True)]
        return self._views

    def gradient_of(self, parameters: Sequence[Tensor]) -> Tensor | None:
        """Return the flat gradient of some parameters; None if they are not consecutive ones of the plan."""
        start = 0
        for place, parameter in enumerate(self.parameters):
            if parameters and parameter is parameters[0]:
                of_plan = self.parameters[place : place + len(parameters)]
                if len(of_plan) == len(parameters) and all(map(operator.is_, of_plan, parameters)):
                    return self.gradient[start : start + sum(map(Tensor.numel, parameters))]
            start += parameter.numel()
        return None


def make_plan(
    module: pl.LightningModule,
    index: int,
    max_grad_norm: float,
    owner: LossOwner | None,
    *,
    skip_idle: bool = False,
) -> StepPlan:
    """Plan the steps of an optimiser whose learning rates are set; frozen parameters are left out.

    Args:
        module: The algorithm, attached to its trainer.
        index: Index of the optimiser in the algorithm.
        max_grad_norm: Maximum L2 norm of the gradient; 0 for no limit.
        owner: Description of the module if its losses may be traced.
        skip_idle: Leave out groups with a learning rate of 0 also if the optimiser is not flat.

    Raises:
        ValueError: A parameter has hooks that are never called.
    """
    wrapper = optimizer_of(module, index)
    optimizer = wrapper.optimizer
    parameters: list[Tensor]
    gradient: Tensor | None
    if isinstance(optimizer, FlatOptimizer):
        parameters, gradient = optimizer.active_parameters(), optimizer.active_gradient()
    else:
        parameters, idle = _active_and_idle(optimizer, skip_idle)
        gradient = None
        for parameter in idle:
            parameter.grad = None  # so that the optimiser skips it
    _refuse_hooks_of_accumulation(parameters)
    is_unobserved = _is_unobserved(module, optimizer)
    direct = gradient is not None and is_unobserved
    if not parameters:  # all learning rates are 0, or everything is frozen
        gradient, owner = torch.zeros(0, device=module.device), None
    elif gradient is None:  # traces write into one tensor
        gradient = torch.zeros_like(parameters_to_vector(parameters))
    n_ranks = world_size()
    if owner is not None:
        idle_groups = tuple(group["lr"] == 0.0 for group in optimizer.param_groups)
        further = idle_groups, _frozen(optimizer), gradient.dtype, _autocast_type(gradient.device), n_ranks
        owner = replace(owner, settings=(*owner.settings, *further))
    return StepPlan(
        index=index,
        is_only=isinstance(module.optimizers(), LightningOptimizer),
        wrapper=wrapper,
        max_grad_norm=max_grad_norm,
        parameters=parameters,
        gradient=gradient,
        direct=direct,
        n_ranks=n_ranks,
        by_user=not is_unobserved or not _is_shipped(module, optimizer),
        owner=owner,
    )


def _active_and_idle(optimizer: Optimizer, skip_idle: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters that a step changes, and others: frozen, or with a learning rate of 0."""
    active: list[Tensor] = []
    idle: list[Tensor] = []
    for group in optimizer.param_groups:
        is_idle = skip_idle and group["lr"] == 0.0
        for parameter in group["params"]:
            chosen = idle if is_idle or not parameter.requires_grad else active
            chosen.append(parameter)
    return active, idle


def _refuse_hooks_of_accumulation(parameters: Sequence[Any]) -> None:
    """Raise ValueError if a parameter has a hook on the accumulation of its gradient."""
    if any(parameter._post_accumulate_grad_hooks for parameter in parameters):
        came = "a parameter has a hook by register_post_accumulate_grad_hook, which would never be called"
        raise ValueError(f"{came}: gradients are computed, not accumulated; use register_hook")


def _frozen(optimizer: Optimizer) -> tuple[int, ...]:
    """Return the places of parameters that require no gradient, frozen by a callback."""
    every = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return tuple(place for place, parameter in enumerate(every) if not parameter.requires_grad)


def _autocast_type(device: torch.device) -> torch.dtype | None:
    """Return the type that mixed precision computes in; None without mixed precision."""
    if not torch.is_autocast_enabled(device.type):
        return None
    return torch.get_autocast_dtype(device.type)


def _is_shipped(module: pl.LightningModule, optimizer: Optimizer) -> bool:
    """True if neither the algorithm nor the optimiser runs code of users."""
    packages = {type(one).__module__.partition(".")[0] for one in (module, optimizer)}
    return packages <= {"maze_pl", "torch"}


def optimizer_of(module: pl.LightningModule, index: int) -> LightningOptimizer:
    """Return Lightning's wrapper of an optimiser of a module.

    Raises:
        IndexError: There are fewer optimisers.
    """
    given = module.optimizers()
    every = given if isinstance(given, list) else [given]
    if not 0 <= index < len(every):
        came = f"gradient_step of {type(module).__name__} got optimizer={index}"
        raise IndexError(f"{came}; configure_optimizers returned {len(every)}, which are counted from 0")
    wrapper = every[index]
    assert isinstance(wrapper, LightningOptimizer)
    return wrapper


def _is_unobserved(module: pl.LightningModule, optimizer: Optimizer) -> bool:
    """True if no hook observes steps of this optimiser, so that the cheaper direct call will do."""
    trainer = module.trainer
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    own_hooks = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    global_hooks = (
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    )
    return (
        not any((*own_hooks, *global_hooks))
        and "step" not in vars(optimizer)  # learning-rate schedulers of torch patch it
        and type(trainer.precision_plugin) in (Precision, MixedPrecision)
        and type(trainer.strategy) in (SingleDeviceStrategy, DDPStrategy)
        and not is_overridden("on_before_optimizer_step", module)
        and not any(is_overridden("on_before_optimizer_step", item, pl.Callback) for item in callbacks)
    )

"""How an algorithm steps down the gradient of its loss, and what is noticed on the way.

A step is: the gradient by autograd or from a record, its mean over ranks, its norm limited, the optimiser called. For
small networks what stands around the arithmetic costs as much as the arithmetic itself, so whatever is the same for all
steps of a rollout is found out once (`_Plan`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.plugins import MixedPrecision, Precision
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from pytorch_lightning.utilities import rank_zero_info
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor
from torch.nn import Parameter
from torch.nn.utils import parameters_to_vector
from torch.optim import optimizer as torch_optimizer

from maze_pl.core.actor_id import StepKey
from maze_pl.core.ranks import mean_over_ranks, sum_over_ranks, world_size
from maze_pl.modules.capture import GradientRecorder, replay
from maze_pl.modules.minibatches import Minibatch, flatten_minibatch
from maze_pl.modules.optimizer import FlatAdam, gradient_norm, limit_norm

if TYPE_CHECKING:
    from maze_pl.modules.algorithm import AlgorithmModule

Recorded = tuple[str, Tensor | float, StepKey | None, float]
"""Name, value, step key and count of a statistic."""

LossOf = Callable[[Any], Tensor]
"""Gives a loss from a minibatch."""

Described = tuple[list[tuple[str, StepKey | None]], list[float]]
"""Names and step keys of what a loss recorded, and how many things each value is the sum of."""


@dataclass(slots=True)
class _Plan:
    """What is the same for all steps of an optimiser while a batch is learned from.

    Attributes:
        index: Which optimiser of the algorithm.
        is_only: Whether there are no others.
        wrapper: The optimiser as Lightning has it.
        parameters: What to differentiate by.
        gradient: What the flat gradient is written into.
        views: The parts of it that are the gradients of the parameters.
        direct: Whether nothing asks to be told of a step but what the wrapper counts.
        settings: All but tensors that the loss and what follows depend on, None if nothing can be recorded.
    """

    index: int
    is_only: bool
    wrapper: LightningOptimizer
    parameters: list[Tensor]
    gradient: Tensor
    views: list[Tensor]
    direct: bool
    settings: Any


class Updates:
    """Carries out the optimisation steps of an algorithm.

    Args:
        module: The algorithm.

    Attributes:
        recorder: Knows why nothing is replayed any more, where that is so.
        records: What the loss that is being computed has recorded, None while none is.
    """

    def __init__(self, module: AlgorithmModule) -> None:
        self._module = module
        self.recorder = GradientRecorder(module)
        self.records: list[Recorded] | None = None
        self._described: dict[Any, Described] = {}
        self._plans: dict[int, _Plan] = {}
        self._checked: set[str] = set()  # losses whose record was compared with autograd in this epoch
        # Whose norms are recorded.
        self._parts: list[tuple[str, StepKey, list[Parameter]]] | None = None
        self._learning_rate = 0.0
        # Of each step the norm of the gradient, where that is limited, the loss, and the values that it recorded.
        self._steps: list[tuple[Described, Tensor]] = []
        self._gradients: dict[int, Tensor] = {}  # by optimiser, the latest one

    def __reduce__(self) -> Any:
        return Updates, (self._module,)  # records cannot be copied or sent to another process

    def start_epoch(self) -> None:
        """Compare the next replayed gradient with autograd, and look anew at what the networks consist of."""
        self._checked, self._parts = set(), None

    def start_batch(self, learning_rate: float) -> None:
        """Find out anew what is the same for all steps."""
        self._learning_rate, self._plans = learning_rate, {}

    def optimize(self, loss: Tensor, index: int, record_norms: bool) -> None:
        """See `AlgorithmModule.optimize`."""
        self._by_autograd(self._plan(index), loss, [], record_norms)

    def descend(self, minibatch: Minibatch, loss: LossOf, index: int, even: bool, record_norms: bool) -> None:
        """See `AlgorithmModule.descend`."""
        plan = self._plan(index)
        if not (even and self._by_replay(plan, minibatch, loss, record_norms)):
            total, records = self.compute(minibatch, loss)
            self._by_autograd(plan, total, records, record_norms)

    def last_recorded(self, name: str) -> dict[StepKey, Tensor]:
        """See `AlgorithmModule.last_recorded`."""
        (described, _), values = self._steps[-1]
        pairs = zip(described, values[len(values) - len(described) :], strict=True)
        return {step_key: value for (recorded, step_key), value in pairs if recorded == name and step_key is not None}

    def compute(self, minibatch: Minibatch, loss: LossOf) -> tuple[Tensor, list[Recorded]]:
        """The loss, and what it recorded instead of adding it to the statistics."""
        records = self.records = []
        try:
            return loss(minibatch), records
        finally:
            self.records = None

    # ------------------------------------------------------------------------------------------------------ steps

    def _by_autograd(self, plan: _Plan, loss: Tensor, records: Sequence[Recorded], record_norms: bool) -> None:
        if loss.requires_grad:  # no `backward`: strategies have put hooks where gradients are accumulated
            gradients = torch.autograd.grad(loss, plan.parameters, allow_unused=True, materialize_grads=True)
        else:
            gradients = tuple(map(torch.zeros_like, plan.parameters))
        torch._foreach_copy_(plan.views, gradients)
        for parameter, view in () if plan.direct else zip(plan.parameters, plan.views, strict=True):
            parameter.grad = view
        recorded = (torch.as_tensor(value, device=loss.device) for _, value, *_ in records)
        values = torch.stack([value.detach() for value in (loss, *recorded)])
        self._step(plan, _described(records), values, record_norms)

    def _by_replay(self, plan: _Plan, minibatch: Minibatch, loss: LossOf, record_norms: bool) -> bool:
        if plan.settings is None or self.recorder.refused is not None:
            return False
        tensors, rebuild, structure = flatten_minibatch(minibatch)
        key = loss.__name__, structure, tuple((tensor.shape, tensor.dtype) for tensor in tensors), plan.settings

        def of_tensors(inputs: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
            total, records = self.compute(rebuild(inputs), loss)
            self._described[key] = _described(records)
            return total, [total, *(torch.as_tensor(value) for _, value, *_ in records)]

        # With several ranks the mean over them comes between the gradient and its limit.
        limit, check = self._module.max_grad_norm if world_size() == 1 else 0.0, loss.__name__ not in self._checked
        record = self.recorder.record(key, of_tensors, plan.parameters, tensors, plan.gradient, limit, check=check)
        if record is None:
            rank_zero_info(f"updates are computed by autograd, step by step: {self.recorder.refused}")
            return False
        self._checked.add(loss.__name__)
        _, values = replay(record, [*plan.parameters, *tensors, plan.gradient])
        self._step(plan, self._described[key], values, record_norms)
        return True

    def _step(self, plan: _Plan, described: Described, values: Tensor, record_norms: bool) -> None:
        """Average the gradient over ranks, limit its norm where a record has not done that, and step."""
        limit, flat = self._module.max_grad_norm, plan.gradient
        if world_size() > 1:
            mean_over_ranks(flat)
        if limit > 0.0 and len(values) - len(described[0]) == 1:
            values = torch.cat([limit_norm(flat, limit).reshape(1).to(values.dtype), values])
        if plan.direct:
            plan.wrapper._on_before_step()
            plan.wrapper.optimizer.apply()  # type: ignore[attr-defined]
            plan.wrapper._on_after_step()
        else:
            plan.wrapper.step()
        self._gradients[plan.index] = flat
        self._steps.append((described, values))
        if record_norms:
            self._record_gradient_norms(plan, (values[0] / limit).clamp(min=1.0) if limit > 0.0 else 1.0)

    def _record_gradient_norms(self, plan: _Plan, factor: Tensor | float) -> None:
        """Record the norms of the gradients of policies and critics, times the factor by which all were reduced."""
        module = self._module
        if self._parts is None:
            parts = [] if module.critic is None else module.critic.parts
            self._parts = [
                (name, step_key, list(network.parameters()))
                for name, networks in (("policy_grad_norm", module.policy.networks), ("critic_grad_norm", parts))
                for step_key, network in zip(module.spec.step_keys, networks, strict=False)
            ]
        own = {id(parameter) for parameter in plan.parameters}
        for name, step_key, parameters in self._parts:
            if plan.is_only or any(id(parameter) in own for parameter in parameters):
                whole = own == {id(parameter) for parameter in parameters}  # of which the norm is one operation
                norm = torch.linalg.vector_norm(plan.gradient) if whole else gradient_norm(parameters)
                module.record(name, norm * factor, step_key)

    # ------------------------------------------------------------------------------------------------ preparation

    def _plan(self, index: int) -> _Plan:
        if index not in self._plans:
            self._plans[index] = self._make_plan(index)
        return self._plans[index]

    def _make_plan(self, index: int) -> _Plan:
        module, chosen = self._module, self._module.optimizers()
        wrapper, is_only = (chosen[index], False) if isinstance(chosen, list) else (chosen, True)
        optimizer, gradient, settings = wrapper.optimizer, None, None
        parameters = [item for group in optimizer.param_groups for item in group["params"]]
        if isinstance(optimizer, FlatAdam):
            for group in optimizer.param_groups:
                group["lr"] = module.learning_rate_of(group.get("name", ""), self._learning_rate)
            parameters, gradient = optimizer.active_parameters(), optimizer.active_gradient()
        direct = gradient is not None and _unobserved(module, wrapper)
        if gradient is None:
            gradient = torch.zeros_like(parameters_to_vector(parameters))
        elif module.capture == "auto" and module.device.type == "cpu":
            public = [pair for pair in vars(module).items() if pair[0][0] != "_" and pair[0] != "env_steps"]
            plain = tuple(pair for pair in public if isinstance(pair[1], bool | int | float | str | None))
            settings = index, plain, module.in_critic_burn_in, module.networks.training
        parts = torch.split_with_sizes(gradient, [parameter.numel() for parameter in parameters])
        views = [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]
        return _Plan(index, is_only, wrapper, parameters, gradient, views, direct, settings)

    # ----------------------------------------------------------------------------------------------------- the end

    def finish(self, *, alone: bool = False) -> list[tuple[str, StepKey | None, float, float]]:
        """Sums of what was recorded since the last call: name, step key, sum and count. All ranks must call it.

        Args:
            alone: Ask no other rank.

        Raises:
            ValueError: A loss, what it recorded, or a gradient was not finite.
        """
        steps, self._steps, self._plans = self._steps, [], {}
        if not steps:
            return []
        sums: dict[tuple[str, StepKey | None], tuple[float, float]] = {}
        failed: list[str] = []
        for index, ((described, counts), values) in enumerate(steps):
            numbers = values.tolist()
            first = len(numbers) - len(described)
            if not failed and not math.isfinite(sum(numbers)):
                names = [name if key is None else f"{name} of step key {key!r}" for name, key in described]
                pairs = zip([*["gradient", "loss"][2 - first :], *names], numbers, strict=True)
                failed = [name for name, number in pairs if not math.isfinite(number)]
                failed.append(f"optimisation step {index + 1} of {len(steps)}")
            for statistic, number, count in zip(described, numbers[first:], counts, strict=True):
                total, total_count = sums.get(statistic, (0.0, 0.0))
                sums[statistic] = total + number, total_count + count
        latest = self._gradients.values()
        if not failed and not all(math.isfinite(float(torch.linalg.vector_norm(flat))) for flat in latest):
            failed = ["gradient", "the last optimisation step"]
        self._raise_if(failed, alone)
        return [(name, step_key, total, count) for (name, step_key), (total, count) in sums.items()]

    def _raise_if(self, failed: list[str], alone: bool) -> None:
        module = self._module
        if world_size() > 1 and not alone:
            n_failed = int(sum_over_ranks(torch.tensor(float(bool(failed)), device=module.device)))
            if n_failed and not failed:
                failed = ["a loss", "another rank"]
        if not failed:
            return
        *names, where = failed
        raise ValueError(
            f"{', '.join(names)} became NaN or infinite in epoch {module.current_epoch}, at env step "
            f"{module.env_steps} ({where}): look for rewards and observations that are not finite or very large, lower "
            f"lr={module.lr:g}, and limit the gradient with max_grad_norm (it is {module.max_grad_norm:g})"
        )


def _described(records: Sequence[Recorded]) -> Described:
    return [(name, step_key) for name, _, step_key, _ in records], [count for *_, count in records]


def _unobserved(module: AlgorithmModule, wrapper: LightningOptimizer) -> bool:
    """Whether a step of this optimiser does no more than step and count: telling nobody costs less."""
    optimizer, trainer = wrapper.optimizer, module.trainer
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    own_hooks = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    global_hooks = torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks
    return (
        not any((*own_hooks, *global_hooks))
        and "step" not in vars(optimizer)  # learning rate schedulers of torch put one there
        and type(trainer.precision_plugin) in (Precision, MixedPrecision)
        and type(trainer.strategy) in (SingleDeviceStrategy, DDPStrategy)
        and not is_overridden("on_before_optimizer_step", module)
        and not any(is_overridden("on_before_optimizer_step", item, pl.Callback) for item in callbacks)
    )

"""The gradient step of an algorithm, and the statistics recorded along the way.

A step computes the gradient by autograd or from a record, averages it over ranks, limits its norm
and calls the optimiser. For small networks the overhead costs as much as the arithmetic, so
everything that is the same for all steps of a rollout is determined once (`_Plan`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, MethodType
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
from maze_pl.modules.on_policy.minibatches import Minibatch, flatten_minibatch
from maze_pl.modules.optimization.capture import GradientRecorder, replay
from maze_pl.modules.optimization.flat_optimizer import FlatAdam, gradient_norm, limit_norm
from maze_pl.modules.optimization.reads import Observation
from maze_pl.modules.optimization.watch import Watch
from maze_pl.system.ranks import mean_over_ranks, sum_over_ranks, world_size

if TYPE_CHECKING:
    from maze_pl.modules.algorithm import AlgorithmModule

Recorded = tuple[str, Tensor | float, StepKey | None, float]
"""Name, value, step key and count of a statistic."""

LossOf = Callable[[Any], Tensor]
"""Function from a minibatch to its loss."""

RatesOf = Callable[[int, int], Sequence[float]]
"""Function from an optimiser's index and number of groups to the learning rates of the groups."""

Described = tuple[list[tuple[str, StepKey | None]], list[float]]
"""Names and step keys of the values that a loss recorded, and the number of summands of each."""


@dataclass(slots=True)
class _Plan:
    """Values that are the same for all steps of an optimiser during one batch.

    Attributes:
        index: Index of the optimiser in the algorithm.
        is_only: True if it is the only optimiser.
        wrapper: Lightning's wrapper of the optimiser.
        parameters: Parameters to differentiate with respect to.
        gradient: Buffer that the flat gradient is written into.
        views: Views of `gradient`, one for each parameter.
        direct: True if no hook observes a step, so that the wrapper only counts it.
        by_user: True if user code runs between two steps, which may change what the loss reads.
        settings: Dependencies of a record besides the watched state; None if nothing can be
            recorded.
    """

    index: int
    is_only: bool
    wrapper: LightningOptimizer
    parameters: list[Tensor]
    gradient: Tensor
    views: list[Tensor]
    direct: bool
    by_user: bool
    settings: Any


@dataclass(slots=True)
class _Traced:
    """A recorded loss.

    Attributes:
        watch: State that the loss has read.
        made: Batch in which the loss was observed.
        verified: Latest batch in which the watched state was found unchanged.
        described: Statistics that the loss recorded while its operations were recorded.
    """

    watch: Watch
    made: int
    verified: int
    described: Described


class Updates:
    """Optimisation steps of an algorithm.

    Args:
        module: The algorithm.

    Attributes:
        recorder: Records of gradients, and the reason if nothing is replayed any more.
        records: Statistics recorded by the loss that is being computed; None outside of a loss.
    """

    def __init__(self, module: AlgorithmModule) -> None:
        self._module = module
        self.recorder = GradientRecorder(module)
        self.records: list[Recorded] | None = None
        self._traced: dict[Any, _Traced] = {}
        self._batch = 0  # number of the current batch
        self._plans: dict[int, _Plan] = {}
        self._rates_of: RatesOf = _none_yet
        self._checked: set[str] = set()  # losses whose record was compared with autograd in this epoch
        # Networks whose gradient norms are recorded.
        self._parts: list[tuple[str, StepKey, list[Parameter]]] | None = None
        # For each step: the gradient norm if it is limited, the loss, and the values it recorded.
        self._steps: list[tuple[Described, Tensor]] = []
        self._gradients: dict[int, Tensor] = {}  # by optimiser, the latest one

    def __reduce__(self) -> Any:
        return Updates, (self._module,)  # records cannot be copied or sent to another process

    def start_epoch(self) -> None:
        """Have the next replayed gradient checked against autograd, and list the networks again."""
        self._checked, self._parts = set(), None

    def start_batch(self, rates_of: RatesOf) -> None:
        """Set the learning rates of a new batch, and discard the plans of the previous one."""
        self._rates_of, self._plans = rates_of, {}
        self._batch += 1

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
        """Return the loss, and the values that it recorded instead of adding them to statistics."""
        records = self.records = []
        try:
            return loss(minibatch), records
        finally:
            self.records = None

    # ------------------------------------------------------------------------------------------------------ steps

    def _by_autograd(self, plan: _Plan, loss: Tensor, records: Sequence[Recorded], record_norms: bool) -> None:
        if loss.requires_grad:  # not `backward`: strategies hook into the accumulation of gradients
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
        """Step from a record, or by autograd while observing the loss; False if neither is done."""
        if plan.settings is None or self.recorder.refused is not None:
            return False
        if not (isinstance(loss, MethodType) and loss.__self__ is self._module):
            self._refuse(f"the loss is not a method of {type(self._module).__name__}")
            return False
        tensors, rebuild, structure = flatten_minibatch(minibatch)
        key = loss.__func__, structure, tuple((tensor.shape, tensor.dtype) for tensor in tensors), plan.settings
        traced = self._traced.get(key)
        if traced is not None and not self._is_valid(key, traced, plan):
            traced = None
        if traced is None:
            if self.recorder.refused is not None:
                return False
            traced = self._observe(plan, minibatch, loss, record_norms)
            if traced is None:
                return True
            self._traced[key] = traced

        def of_tensors(inputs: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
            total, records = self.compute(rebuild(inputs), loss)
            traced.described = _described(records)
            return total, [total, *(torch.as_tensor(value) for _, value, *_ in records)]

        # With several ranks the gradient is averaged before its norm is limited.
        limit, check = self._module.max_grad_norm if world_size() == 1 else 0.0, loss.__name__ not in self._checked
        record = self.recorder.record(key, of_tensors, plan.parameters, tensors, plan.gradient, limit, check=check)
        if record is None:
            self._refuse(str(self.recorder.refused))
            return False
        self._checked.add(loss.__name__)
        _, values = replay(record, [*plan.parameters, *tensors, plan.gradient])
        self._step(plan, traced.described, values, record_norms)
        return True

    def _is_valid(self, key: Any, traced: _Traced, plan: _Plan) -> bool:
        """True if nothing that a recorded loss depends on has changed."""
        if traced.verified == self._batch and not plan.by_user and not traced.watch.moves:
            return True
        change = traced.watch.change()
        if change is None:
            traced.verified = self._batch
            return True
        del self._traced[key]
        self.recorder.forget(key, change)
        if traced.made == self._batch:
            self.recorder.refused = f"what the loss reads changes from update to update: {change}"
        if self.recorder.refused is not None:
            self._refuse(self.recorder.refused)
        return False

    def _observe(self, plan: _Plan, minibatch: Minibatch, loss: LossOf, record_norms: bool) -> _Traced | None:
        """Find the state that a loss reads, to watch it; return None if it cannot be watched.

        In that case the step is taken by autograd.
        This way a loss that changes the state that it reads is computed only once per step.
        """
        module, random_state = self._module, torch.get_rng_state()
        observation = Observation(module, _opaque(), _forbidden(), [minibatch, *minibatch.values()])

        def compute() -> tuple[Tensor, list[Recorded]]:
            total, records = self.compute(minibatch, loss)
            if total.requires_grad:
                torch.autograd.grad(total, plan.parameters, allow_unused=True, retain_graph=True)
            return total, records

        total, records = observation.run(compute)
        if observation.refused is None:
            torch.set_rng_state(random_state)
            return _Traced(observation.watch, self._batch, self._batch, ([], []))
        self._refuse(observation.refused)
        self._by_autograd(plan, total, records, record_norms)
        return None

    def _refuse(self, reason: str) -> None:
        """Stop recording for good, and log the reason."""
        self.recorder.refused = reason
        rank_zero_info(f"each update is computed by autograd, with the same numbers but more slowly: {reason}")

    def _step(self, plan: _Plan, described: Described, values: Tensor, record_norms: bool) -> None:
        """Average the gradient over ranks, limit its norm unless a record has done so, and step."""
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
        """Record gradient norms of policies and critics, times `factor`, which undoes clipping."""
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
                whole = own == {id(parameter) for parameter in parameters}  # one operation
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
            rates = self._rates_of(index, len(optimizer.param_groups))
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = module.learning_rate_of(group.get("name", ""), rate)
            parameters, gradient = optimizer.active_parameters(), optimizer.active_gradient()
        direct = gradient is not None and _unobserved(module, wrapper)
        if gradient is None:
            gradient = torch.zeros_like(parameters_to_vector(parameters))
        elif module.capture == "auto" and module.device.type == "cpu":
            settings = index, module.max_grad_norm, module.in_critic_burn_in, module.networks.training
        parts = torch.split_with_sizes(gradient, [parameter.numel() for parameter in parameters])
        views = [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]
        by_user = not direct or type(module).__module__.partition(".")[0] != "maze_pl"
        return _Plan(index, is_only, wrapper, parameters, gradient, views, direct, by_user, settings)

    # ----------------------------------------------------------------------------------------------------- the end

    def finish(self, *, alone: bool = False) -> list[tuple[str, StepKey | None, float, float]]:
        """Return sums since the last call: name, step key, sum and count; a collective call.

        Args:
            alone: Do not communicate with other ranks.

        Raises:
            ValueError: A loss, a value that it recorded, or a gradient was not finite.
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


def _opaque() -> list[CodeType]:
    """Methods of algorithms without effect on a loss, or with one that records account for."""
    from maze_pl.modules.algorithm import AlgorithmModule

    burn_in: Any = AlgorithmModule.in_critic_burn_in
    return [AlgorithmModule.record.__code__, burn_in.fget.__code__]


def _forbidden() -> list[CodeType]:
    """Functions that a recorded loss must not call."""
    functions: tuple[Any, ...] = (pl.LightningModule.log, pl.LightningModule.log_dict, mean_over_ranks, sum_over_ranks)
    return [function.__code__ for function in functions]


def _none_yet(index: int, n_groups: int) -> Sequence[float]:
    raise RuntimeError("a step of an optimiser was asked for outside of a training batch")


def _described(records: Sequence[Recorded]) -> Described:
    return [(name, step_key) for name, _, step_key, _ in records], [count for *_, count in records]


def _unobserved(module: AlgorithmModule, wrapper: LightningOptimizer) -> bool:
    """True if no hook observes steps of this optimiser, so that the cheaper direct call will do."""
    optimizer, trainer = wrapper.optimizer, module.trainer
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    own_hooks = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    global_hooks = torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks
    return (
        not any((*own_hooks, *global_hooks))
        and "step" not in vars(optimizer)  # learning-rate schedulers of torch patch it
        and type(trainer.precision_plugin) in (Precision, MixedPrecision)
        and type(trainer.strategy) in (SingleDeviceStrategy, DDPStrategy)
        and not is_overridden("on_before_optimizer_step", module)
        and not any(is_overridden("on_before_optimizer_step", item, pl.Callback) for item in callbacks)
    )

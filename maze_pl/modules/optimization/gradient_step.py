"""The gradient step of an algorithm, and the statistics recorded along the way.

A step computes the gradient, averages it over ranks, limits its norm and calls the optimiser. For
small networks the overhead costs as much as the arithmetic, so everything that is the same for all
steps of a batch is determined once (`StepPlan`), and the gradient comes from a trace where one can
be made (`TracedLosses`); otherwise it comes from autograd, with the same numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.modules.optimization.flat_optimizer import gradient_norm, limit_norm
from maze_pl.modules.optimization.recorded_values import Computed, Described, Evaluated, RecordedValue, scalars_of
from maze_pl.modules.optimization.step_plan import StepPlan
from maze_pl.modules.optimization.traced_loss import LossOf, TracedLosses
from maze_pl.system.ranks import mean_over_ranks, sum_over_ranks, world_size


class NetworkParameters(NamedTuple):
    """Parameters whose gradient norm is recorded.

    Attributes:
        name: Name of the statistic.
        step_key: Step key of the network.
        parameters: The network's parameters.
    """

    name: str
    step_key: StepKey
    parameters: Sequence[Tensor]


class StatisticSum(NamedTuple):
    """Sum of the values that losses have recorded under one name and step key."""

    name: str
    step_key: StepKey | None
    total: float
    n_summands: float


class Finished(NamedTuple):
    """Statistics of some steps.

    Attributes:
        sums: Sums of the values that losses have recorded.
        failed: Names of values that are not finite, followed by the step in which they occurred;
            empty if all are finite.
        n_steps: Number of steps.
    """

    sums: list[StatisticSum]
    failed: list[str]
    n_steps: int

    def failed_anywhere(self, device: torch.device) -> list[str]:
        """Return `failed`, or that another rank failed; a collective call if there were steps.

        Args:
            device: Device of the algorithm.
        """
        if self.n_steps and world_size() > 1:
            n_failed = int(sum_over_ranks(torch.tensor(float(bool(self.failed)), device=device)))
            if n_failed and not self.failed:
                return ["a loss", "another rank"]
        return self.failed


class GradientSteps:
    """Gradient steps on the losses of one algorithm.

    Attributes:
        plans: Plans of the current batch, by optimiser; None before the first batch.
        traced_losses: Traces of losses.
        values: Values recorded by the loss that is being computed; None outside of a loss.
    """

    def __init__(self) -> None:
        self.plans: dict[int, StepPlan] | None = None
        self.values: list[RecordedValue] | None = None
        self.traced_losses = TracedLosses(self.evaluate)
        self._has_stepped = False  # in the current batch
        self._steps: list[Computed] = []  # since the statistics were last finished
        self._gradients: dict[int, Tensor] = {}  # by optimiser, the latest one
        self._networks: Sequence[NetworkParameters] | None = None  # of the current epoch
        self._device_type: str | None = None  # of the latest run

    def __reduce__(self) -> Any:
        return GradientSteps, ()  # traces cannot be copied or sent to another process

    def start_run(self, device: torch.device) -> None:
        """Forget the previous run, which may have failed.

        Args:
            device: Device of the algorithm. Losses that the CPU cannot trace may be traced on a GPU.
        """
        self.end_run()
        if self._device_type not in (None, device.type):
            self.traced_losses = TracedLosses(self.evaluate)
        self._device_type = device.type
        self.traced_losses.start_run()

    def end_run(self) -> None:
        """Release the memory of the device, from which tensors move when a run ends."""
        self.plans = None
        self._gradients = {}
        self.traced_losses.discard_graphs()

    def start_epoch(self) -> None:
        """Have the next traced gradient of each loss checked against autograd; forget steps of an epoch that failed."""
        self._networks = None
        self._steps = []
        self.traced_losses.start_epoch()

    def start_batch(self) -> None:
        """Discard the plans of the previous batch; state that losses read may have changed since."""
        self.plans = {}
        self._has_stepped = False
        self.traced_losses.start_batch()

    def plans_of_batch(self) -> dict[int, StepPlan]:
        """Return the plans of the current batch, by optimiser.

        Raises:
            RuntimeError: There is no batch.
        """
        if self.plans is None:
            raise RuntimeError("gradient_step was called outside of a training batch")
        return self.plans

    def refuse_result(self, outputs: Any, name: str) -> None:
        """Refuse a batch in which a loss was returned to Lightning, but no step was taken.

        Args:
            outputs: Result of `training_step`, as Lightning passes it on.
            name: Name of the algorithm.

        Raises:
            TypeError: It is so.
        """
        if isinstance(outputs, Mapping) and "loss" in outputs and not self._has_stepped:
            came = f"training_step of {name} returned a loss, which is not minimised, and took no gradient step"
            raise TypeError(f"{came}: pass the loss to self.gradient_step, and return nothing")

    # ------------------------------------------------------------------------------------------------------- a step

    def step_on_minibatch(self, plan: StepPlan, loss: LossOf, minibatch: Any, *, even: bool, traced: bool) -> None:
        """Compute the loss of a minibatch and take one step.

        Args:
            plan: Plan of the step.
            loss: Function from the minibatch to a scalar.
            minibatch: Input of the loss.
            even: Whether all minibatches have the same shapes.
            traced: Whether the loss may be traced.
        """
        computed: Computed | Evaluated | None = None
        if traced:
            computed = self.traced_losses.gradient(plan, loss, minibatch, even=even)
        elif plan.owner is not None:
            self.traced_losses.note_untraced(loss)
        if computed is None:
            computed = self.evaluate(loss, minibatch)
        if isinstance(computed, Evaluated):
            computed = self._by_autograd(plan, computed)
        self._step(plan, computed)

    def step_on_scalar(self, plan: StepPlan, loss: Tensor) -> None:
        """Take one step on a loss that is computed already."""
        _require_scalar(loss, "the loss of gradient_step")
        self._step(plan, self._by_autograd(plan, Evaluated(loss, [])))

    def evaluate(self, loss: LossOf, minibatch: Any) -> Evaluated:
        """Compute a loss; the values that it records are returned instead of being added to statistics."""
        values = self.values = []
        try:
            result = loss(minibatch)
            _require_scalar(result, f"the loss {getattr(loss, '__qualname__', loss)}")
            return Evaluated(result, values)
        finally:
            self.values = None

    def _by_autograd(self, plan: StepPlan, evaluated: Evaluated) -> Computed:
        """Write the gradient of a loss by autograd; zero if the loss depends on no parameter."""
        loss, values = evaluated
        if plan.parameters:
            if loss.requires_grad:  # not `backward`: strategies hook into the accumulation of gradients
                gradients = torch.autograd.grad(loss, plan.parameters, allow_unused=True, materialize_grads=True)
            else:
                gradients = tuple(map(torch.zeros_like, plan.parameters))
            torch._foreach_copy_(plan.views, gradients)
        numbers = torch.stack([scalar.detach() for scalar in scalars_of(loss, values)])
        described = Described.of(values)
        if self._steps and self._steps[-1].described == described:
            described = self._steps[-1].described  # `finish` adds up steps that share their description
        return Computed(described, numbers, has_norm=False)

    def _step(self, plan: StepPlan, computed: Computed) -> None:
        """Average the gradient over ranks, limit its norm unless a trace has done so, and step."""
        if plan.n_ranks > 1:
            mean_over_ranks(plan.gradient)
        if plan.max_grad_norm > 0.0 and not computed.has_norm:
            norm = limit_norm(plan.gradient, plan.max_grad_norm)
            numbers = torch.cat([norm.reshape(1).to(computed.numbers.dtype), computed.numbers])
            computed = Computed(computed.described, numbers, has_norm=True)
        _step_optimizer(plan)
        self._has_stepped = True
        self._gradients[plan.index] = plan.gradient
        self._steps.append(computed)

    # ----------------------------------------------------------------------------------------------- after the step

    def last_recorded(self, name: str) -> dict[StepKey, Tensor]:
        """Return, by step key, the values that the loss of the latest step recorded under a name."""
        latest = self._steps[-1]
        found = {}
        for place, (recorded, step_key) in enumerate(latest.described.names, latest.first):
            if recorded == name and step_key is not None:
                found[step_key] = latest.numbers[place]
        return found

    def norms(self, plan: StepPlan, list_networks: Callable[[], list[NetworkParameters]]) -> list[RecordedValue]:
        """Return the gradient norms of the latest step before clipping, of networks that it concerns.

        Args:
            plan: Plan of the step.
            list_networks: Function that lists the networks of the algorithm; called once per epoch.
        """
        factor: Tensor | None = None  # undoes clipping
        if plan.max_grad_norm > 0.0:
            factor = (self._steps[-1].numbers[0] / plan.max_grad_norm).clamp(min=1.0)
        stepped = {id(parameter) for parameter in plan.parameters}
        if self._networks is None:
            self._networks = list_networks()
        norms = []
        for name, step_key, parameters in self._networks:
            if plan.is_only or any(id(parameter) in stepped for parameter in parameters):
                flat = plan.gradient_of(parameters)
                norm = gradient_norm(parameters) if flat is None else torch.linalg.vector_norm(flat)
                norms.append(RecordedValue(name, norm if factor is None else norm * factor, step_key, 1.0))
        return norms

    def finish(self) -> Finished:
        """Return the statistics of all steps since the last call, and discard the plans."""
        steps, self._steps = self._steps, []
        if self.plans is not None:
            self.plans = {}
        if not steps:
            return Finished([], [], 0)
        numbers = _on_host(steps)
        failed = _failed_values(steps, numbers)
        latest = self._gradients.values()
        if not failed and not all(math.isfinite(float(torch.linalg.vector_norm(flat))) for flat in latest):
            failed = ["gradient", "the last optimisation step"]
        return Finished(_summed(steps, numbers), failed, len(steps))


def _require_scalar(loss: Any, what: str) -> None:
    """Raise TypeError for a loss that is not a tensor with a single number."""
    if isinstance(loss, Tensor) and loss.dim() == 0:
        return
    came = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
    remedy = "reduce it, by mean() or sum()" if isinstance(loss, Tensor) else "return the result"
    raise TypeError(f"{what} is {came}; expected a scalar tensor: {remedy}")


def _step_optimizer(plan: StepPlan) -> None:
    """Step the optimiser by the gradient."""
    if plan.direct:
        plan.wrapper._on_before_step()
        plan.wrapper.optimizer.apply()  # type: ignore[attr-defined]
        plan.wrapper._on_after_step()
        return
    for parameter, view in zip(plan.parameters, plan.views, strict=True):
        parameter.grad = view.to(parameter.dtype)  # half precision of networks alone has two types
    plan.wrapper.step()


def _on_host(steps: Sequence[Computed]) -> list[list[float]]:
    """Return the numbers of each step, in one transfer, which waits for the device."""
    everything = torch.cat([step.numbers for step in steps]).tolist()
    rest = iter(everything)
    return [list(itertools.islice(rest, step.numbers.numel())) for step in steps]


def _summed(steps: Sequence[Computed], numbers: Sequence[list[float]]) -> list[StatisticSum]:
    """Add up the values that losses have recorded, by name and step key.

    Args:
        steps: The steps.
        numbers: The numbers of each.
    """
    groups: dict[int, tuple[Computed, list[list[float]]]] = {}  # steps with one description: the first, all numbers
    for step, of_step in zip(steps, numbers, strict=True):
        groups.setdefault(id(step.described), (step, []))[1].append(of_step)
    sums: dict[tuple[str, StepKey | None], tuple[float, float]] = {}
    for step, rows in groups.values():
        columns = [sum(column) for column in zip(*rows, strict=True)]
        values = columns[step.first : step.first + len(step.described.names)]
        counts = step.counts(columns, len(rows))
        for statistic, value, count in zip(step.described.names, values, counts, strict=True):
            total, total_count = sums.get(statistic, (0.0, 0.0))
            sums[statistic] = total + value, total_count + count
    return [StatisticSum(*statistic, *total) for statistic, total in sums.items()]


def _failed_values(steps: Sequence[Computed], numbers: Sequence[list[float]]) -> list[str]:
    """Return the names of values that are not finite in the first step that has any, and that step; or nothing.

    Args:
        steps: The steps.
        numbers: The numbers of each: the norm of the gradient if it is limited, the loss, recorded values.
    """
    for index, (step, of_step) in enumerate(zip(steps, numbers, strict=True)):
        if math.isfinite(sum(of_step)):
            continue
        names = ["gradient", "loss"] if step.has_norm else ["loss"]
        names += [name if key is None else f"{name} of step key {key!r}" for name, key in step.described.names]
        failed = [name for name, number in zip(names, of_step, strict=False) if not math.isfinite(number)]
        if failed:
            return [*failed, f"optimisation step {index + 1} of {len(steps)}"]
    return []


def divergence(failed: Sequence[str], where: str, lr: float, max_grad_norm: float) -> str:
    """Return the message for values that are not finite.

    Args:
        failed: Names of the values, and the optimisation step in which they occurred.
        where: Epoch and environment step.
        lr: Learning rate of the algorithm.
        max_grad_norm: Maximum norm of its gradients.
    """
    *names, step = failed
    came = f"{', '.join(names)} became NaN or infinite in {where} ({step})"
    remedy = f"lower lr={lr:g}, and limit the gradient with max_grad_norm (it is {max_grad_norm:g})"
    return f"{came}: look for rewards and observations that are not finite or very large, {remedy}"

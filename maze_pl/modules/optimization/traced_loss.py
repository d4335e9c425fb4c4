"""Gradients of losses from traces: made once, run again while nothing that the loss reads changes.

This is the only place that decides if an update is traced. `reads` finds the state that a
loss depends on, `watch` notices its changes, and `capture` traces and runs the operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, MethodType
from typing import Any, TypeGuard

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor

from maze_pl.agents.changed_inputs import versions_of
from maze_pl.core.actor_id import StepKey
from maze_pl.core.torch_random_state import restore_torch_random_state, torch_random_state
from maze_pl.modules.optimization.any_size import SMALLEST, VaryingSizes
from maze_pl.modules.optimization.capture import FOR_CHANGES, GradientTracer, run_trace
from maze_pl.modules.optimization.flat_minibatch import Samples, changed_in_place, flatten, is_flat
from maze_pl.modules.optimization.reads import LossObservation
from maze_pl.modules.optimization.recorded_values import Computed, Described, Evaluated, scalars_of
from maze_pl.modules.optimization.step_plan import LossOwner, StepPlan
from maze_pl.modules.optimization.watch import Watch
from maze_pl.system.device_graph import uses_graphs
from maze_pl.system.ranks import mean_over_ranks, sum_over_ranks

LossOf = Callable[[Any], Tensor]
"""Function from a minibatch to its loss."""

N_UPDATES_BEFORE = 200
"""Number of updates with uneven minibatches before a loss is traced for any sizes.

Tracing takes about as long as it saves in several hundred updates."""

_TRACED_ON = ("cpu", "cuda")

Evaluate = Callable[[LossOf, Any], Evaluated]
"""Function that computes a loss of a minibatch."""


@dataclass(slots=True)
class _Traced:
    """A traced loss.

    Attributes:
        watch: State that the loss has read.
        made: Batch in which the loss was observed.
        verified: Latest batch in which the watched state was found unchanged.
        described: Statistics that the loss recorded while its operations were traced.
    """

    watch: Watch
    made: int
    verified: int
    described: Described


class TracedLosses:
    """Traces of losses, and the decision for each step if one can be run.

    Each decision is logged once.

    Args:
        evaluate: Function that computes a loss.
    """

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._tracer: GradientTracer | None = None
        self._refused: str | None = None
        self._traced: dict[Any, _Traced] = {}
        self._batch = 0  # number of the current batch
        self._checked: set[str] = set()  # losses compared with autograd in this epoch
        self._n_uneven: Counter[str] = Counter()  # by loss, updates with uneven minibatches
        self._said: set[str] = set()
        self._n_failed: Counter[str] = Counter()  # by loss, observations that could not be watched
        self._refused_losses: dict[str, str] = {}  # losses that cannot be traced on this device, with the reason

    @property
    def refused(self) -> str | None:
        """Reason why no loss is traced any longer; None if losses are."""
        return self._refused or (None if self._tracer is None else self._tracer.refused)

    @property
    def refused_any(self) -> str | None:
        """Reason why a loss is not traced, or no loss is; None if all of them are."""
        return self.refused or next(iter(self._refused_losses.values()), None)

    @property
    def n_made(self) -> int:
        """Number of traces made so far."""
        return 0 if self._tracer is None else self._tracer.n_made

    def start_run(self) -> None:
        """Try losses again that could not be watched or traced on the device of the previous run."""
        self._n_failed.clear()
        self._refused_losses.clear()
        if self._tracer is not None:
            self._tracer.admit_losses()

    def start_epoch(self) -> None:
        """Have the next gradient of each trace checked against autograd."""
        self._checked = set()

    def start_batch(self) -> None:
        """Note that a batch begins, before which watched state may have changed."""
        self._batch += 1

    def discard_graphs(self) -> None:
        """Drop traces that are graphs of a device: a run begins or ends, and its tensors move."""
        keys = set() if self._tracer is None else self._tracer.discard_graphs()
        for key in keys:
            self._traced.pop(key, None)

    def gradient(self, plan: StepPlan, loss: LossOf, minibatch: Any, *, even: bool) -> Computed | Evaluated | None:
        """Write the gradient of a loss from its trace, which is made if there is none.

        A loss that turns out to be unsuitable while it is observed has been computed once. It is
        returned then, as computing it again could change what it reads.

        Args:
            plan: Plan of the step.
            loss: Function from the minibatch to a scalar.
            minibatch: Input of the loss.
            even: Whether all minibatches have the same shapes. Otherwise a trace serves any sizes.

        Returns:
            The numbers of the step; the loss, if only that was computed; None if nothing was.
        """
        owner = plan.owner
        if not self._may_trace(loss, plan, minibatch) or owner is None:
            return None
        sizes = None
        # An even minibatch among others needs no separate trace, unless no trace serves any sizes.
        if not even or (self._n_uneven[loss.__name__] and not uses_graphs(plan.gradient.device)):
            sizes = self._varying_sizes(loss, plan, minibatch)
            if sizes is None:
                return None
        tensors, rebuild, structure = flatten(minibatch)
        if sizes is None:
            shapes: tuple[object, ...] = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        else:
            shapes = sizes.shapes_of(tensors)
        key = self._key(loss.__func__, structure, shapes, owner.settings, sizes=sizes)
        traced = self._valid(key, plan)
        is_new = traced is None
        if traced is None:
            if not self._may_make(key, loss, owner, sizes):
                return None
            found = self._observed(plan, loss, minibatch)
            if isinstance(found, Evaluated):
                return found
            traced = self._traced[key] = found

        def of_tensors(inputs: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
            total, values = self._evaluate(loss, rebuild(inputs))
            traced.described = Described.of(values)
            return total, scalars_of(total, values)

        # With several ranks the gradient is averaged before its norm is limited.
        limit = plan.max_grad_norm if plan.n_ranks == 1 else 0.0
        check = loss.__name__ not in self._checked
        tracer = self._tracer_of(owner.module)
        arguments = plan.parameters, tensors, plan.gradient, limit
        trace = tracer.trace(key, of_tensors, *arguments, sizes=sizes, check=check)
        if trace is None:
            self._give_up(loss, tracer, key)
            return None
        self._checked.add(loss.__name__)
        if is_new:
            serving = "of one shape" if sizes is None else "with any numbers of acts"
            self._say(f"updates by {_name(loss)} are traced; each trace serves minibatches {serving}")
        _, numbers = run_trace(trace, [*plan.parameters, *tensors, plan.gradient])
        return Computed(traced.described, numbers, has_norm=limit > 0.0)

    def note_untraced(self, loss: LossOf) -> None:
        """Log that a step was asked not to trace its loss, which does more than compute its result."""
        self._say(f"updates by {_name(loss)} are computed by autograd: the loss also keeps values, such as TD errors")

    def _may_trace(self, loss: LossOf, plan: StepPlan, minibatch: Any) -> TypeGuard[MethodType]:
        """True if losses are traced, and this one is a method that takes a dict of samples.

        Hooks of parameters belong to the tensors, not to the values that a trace gets.
        """
        owner = plan.owner
        device = plan.gradient.device
        if device.type not in _TRACED_ON:
            self._say(f"each update is computed by autograd: updates on {device.type} devices are not traced")
        if owner is None or self.refused is not None:
            return False
        if not (isinstance(loss, MethodType) and loss.__self__ is owner.module):
            self._refuse(f"the loss is not a method of {type(owner.module).__name__}")
            return False
        if loss.__name__ in self._refused_losses:
            return False
        if not is_flat(minibatch):
            self._refuse(f"the minibatch, a {type(minibatch).__name__}, is not a dict of samples by step key")
            return False
        if any(parameter._backward_hooks for parameter in plan.parameters):
            self._say("updates are computed by autograd while parameters have gradient hooks (register_hook)")
            return False
        return True

    def _varying_sizes(
        self, loss: MethodType, plan: StepPlan, minibatch: Mapping[StepKey, Samples]
    ) -> VaryingSizes | None:
        """Count an uneven update; return its sizes, None if autograd is to compute it."""
        self._n_uneven[loss.__name__] += 1
        if uses_graphs(plan.gradient.device):
            self._say(f"minibatches of different sizes are computed by autograd by {_name(loss)} on a GPU")
            return None
        if self._n_uneven[loss.__name__] <= N_UPDATES_BEFORE:
            return None
        sizes = VaryingSizes.of(samples.tensors() for samples in minibatch.values())
        if min(sizes.values, default=SMALLEST) < SMALLEST:
            self._say(f"minibatches with a single act of a step key are computed by autograd by {_name(loss)}")
            return None
        return sizes

    def _may_make(self, key: Any, loss: MethodType, owner: LossOwner, sizes: VaryingSizes | None) -> bool:
        """True if another trace may be made."""
        if self.refused is not None:
            return False
        tracer = self._tracer_of(owner.module)
        if sizes is not None and self._traced and not tracer.may_make(key):
            self._say(f"{_name(loss)} has {tracer.n_made} traces, other minibatches are computed by autograd")
            return False
        return True

    def _key(self, *fields: Any, sizes: VaryingSizes | None) -> tuple[Any, ...]:
        """Return the key of the trace that admits these sizes, or of the next one to be made."""
        if sizes is None:
            return fields
        number = 0
        while (*fields, number) in self._traced and not self._tracer_admits((*fields, number), sizes):
            number += 1
        return *fields, number

    def _tracer_admits(self, key: Any, sizes: VaryingSizes) -> bool:
        return self._tracer is not None and self._tracer.admits(key, sizes)

    def _say(self, text: str) -> None:
        """Log a message, once."""
        if text not in self._said:
            self._said.add(text)
            rank_zero_info(text)

    def _tracer_of(self, module: pl.LightningModule) -> GradientTracer:
        if self._tracer is None:
            self._tracer = GradientTracer(module)
        return self._tracer

    def _valid(self, key: Any, plan: StepPlan) -> _Traced | None:
        """Return a traced loss; None if there is none, or if what it depends on has changed."""
        traced = self._traced.get(key)
        if traced is None or (traced.verified == self._batch and not plan.by_user and not traced.watch.moves):
            return traced
        change = traced.watch.change()
        if change is None:
            traced.verified = self._batch
            return traced
        del self._traced[key]
        if self._tracer is not None:
            self._tracer.forget(key, change)
        if traced.made == self._batch:
            fault = f"what the loss may read changes from update to update: {change}"
            self._refused = f"{fault}; {FOR_CHANGES}"
        if self.refused is not None:
            self._refuse(self.refused)
        return None

    def _observed(self, plan: StepPlan, loss: LossOf, minibatch: Mapping[StepKey, Samples]) -> _Traced | Evaluated:
        """Find the state that a loss reads, to watch it.

        Returns:
            The watched state; the loss if it cannot be watched. This way a loss that changes the
            state that it reads is computed only once per step.
        """
        assert plan.owner is not None
        random_state = torch_random_state(plan.gradient.device)
        inputs = [minibatch, *minibatch.values()]
        tensors = flatten(minibatch)[0]
        versions = versions_of(tensors)
        observation = LossObservation(plan.owner.module, plan.owner.opaque, _forbidden(), inputs)

        def compute() -> Evaluated:
            evaluated = self._evaluate(loss, minibatch)
            if evaluated.loss.requires_grad:
                torch.autograd.grad(evaluated.loss, plan.parameters, allow_unused=True, retain_graph=True)
            return evaluated

        evaluated: Evaluated = observation.run(compute)
        is_changed = [one != other for one, other in zip(versions, versions_of(tensors), strict=True)]
        if changed := changed_in_place(minibatch, is_changed):
            observation.refused = f"computing the loss changes its minibatch in place, {changed}; change a clone"
        if observation.refused is None:
            restore_torch_random_state(random_state, plan.gradient.device)
            return _Traced(observation.watch, self._batch, self._batch, Described([], []))
        name: str = loss.__name__
        self._n_failed[name] += 1
        # Libraries load parts when a GPU is first used.
        if self._n_failed[name] > 1 or not uses_graphs(plan.gradient.device):
            self._refuse(observation.refused)
        return evaluated

    def _give_up(self, loss: MethodType, tracer: GradientTracer, key: Any) -> None:
        """Stop tracing a loss that its tracer has refused, or all losses."""
        reason = tracer.refused_loss(key)
        if reason is None:
            self._refuse(str(tracer.refused))
            return
        del self._traced[key]
        self._refused_losses[loss.__name__] = reason
        self._say(f"updates by {_name(loss)} are computed by autograd: {reason}")

    def _refuse(self, reason: str) -> None:
        """Stop tracing for good, and log the reason."""
        self._refused = reason
        rank_zero_info(f"each update is computed by autograd, which is slower than a trace: {reason}")


def _name(loss: LossOf) -> str:
    return getattr(loss, "__qualname__", repr(loss))


def _forbidden() -> list[CodeType]:
    """Functions that a traced loss must not call."""
    functions: tuple[Any, ...] = (
        pl.LightningModule.log,
        pl.LightningModule.log_dict,
        mean_over_ranks,
        sum_over_ranks,
    )
    return [function.__code__ for function in functions]

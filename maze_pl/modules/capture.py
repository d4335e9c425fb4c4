"""The gradient of a loss, recorded once as a flat list of tensor operations and replayed without autograd.

For small networks most of an update is the work of finding out what to compute, which is the same for every minibatch.
Recording it (`make_fx`) and running the record in TorchScript takes less than half of the time. Everything that is not
a tensor is baked into the record: it is kept for one combination of shapes and plain attributes of the algorithm,
checked against autograd when it is made and once in every epoch, and given up with a message where it does not agree.

`torch.jit` is deprecated; nothing outside this file knows of it.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from maze_pl.core.actor_id import StepKey
from maze_pl.modules.graph import check_shapes_are_fixed, simplified
from maze_pl.modules.minibatches import Minibatch, flatten_minibatch
from maze_pl.modules.optimizer import limit_norm

MAX_RECORDS = 4

Function = Callable[..., tuple[Tensor, Tensor]]

Recorded = tuple[str, Tensor | float, StepKey | None, float]
"""Name, value, step key and count of a statistic."""

Described = list[tuple[str, StepKey | None]]
"""Names and step keys of statistics."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is done with a gradient.

    Attributes:
        gradient: What the flat gradient is written into.
        max_norm: Largest L2 norm of the gradient; 0 means without limit. Where there is one, the norm that the gradient
            had comes before the scalars of the loss.
    """

    gradient: Tensor
    max_norm: float = 0.0


class GradientRecorder:
    """Replays gradients of a loss, one record for each key.

    Args:
        module: Owner of the parameters; a loss that changes its buffers is refused.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._records: dict[Any, Function] = {}
        self.refused: str | None = None  # why nothing is recorded any more

    def record(
        self,
        key: Any,
        loss: Callable[[Sequence[Tensor]], tuple[Tensor, Sequence[Tensor]]],
        parameters: Sequence[Tensor],
        inputs: Sequence[Tensor],
        check: bool,
        target: Target,
    ) -> Function | None:
        """What `replay` computes the gradient with.

        Args:
            key: All that the loss and the target depend on beside tensors.
            loss: Gives a scalar, and further scalars, from the inputs.
            parameters: What to differentiate by.
            inputs: The tensors of a minibatch.
            check: Whether to compare with autograd.
            target: What to do with the gradient.

        Returns:
            A function of parameters, inputs and the target's tensor, which gives the flat gradient by `parameters` and
            the scalars; None if this cannot be recorded, then the target has not changed.
        """
        if self.refused is not None:
            return None
        full_key = (key, shapes_of(inputs))
        record = self._records.get(full_key)
        if record is None:
            if len(self._records) == MAX_RECORDS:
                self.refused = f"minibatches have more than {MAX_RECORDS} different shapes or settings"
                return None
            record = self._make(loss, parameters, inputs, target)
            if record is None:
                return None
            self._records[full_key] = record
            check = True
        if check and not self._agrees(record, loss, parameters, inputs, target):
            self.refused = "the recorded update gave other numbers than autograd"
            return None
        return record

    def _function(self, loss: Any, parameters: Sequence[Tensor], max_norm: float) -> Function:
        """All that is done, as a function of tensors only."""
        # Each module is asked once, by one of its names: what functional_call ties by itself, it swaps once for each
        # name of a module that is shared, and does not restore.
        position = {id(parameter): index for index, parameter in enumerate(parameters)}
        owner = _Owner(self._module, loss)
        places = {
            name: position[id(parameter)]
            for path, part in owner.named_modules()
            for name, parameter in part.named_parameters(path, recurse=False, remove_duplicate=False)
            if id(parameter) in position
        }

        def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
            inputs, written = tensors[len(parameters) : -1], tensors[-1]
            with torch.enable_grad():
                leaves = [tensor.detach().requires_grad_() for tensor in tensors[: len(parameters)]]
                named = {name: leaves[index] for name, index in places.items()}
                total, scalars = functional_call(owner, named, (inputs,), tie_weights=False)
                gradients = torch.autograd.grad(total, leaves, allow_unused=True)
            parts = [
                torch.zeros_like(leaf).reshape(-1) if gradient is None else gradient.reshape(-1)
                for leaf, gradient in zip(leaves, gradients, strict=True)
            ]
            with torch.no_grad():
                flat = torch.cat(parts, out=written)
                norms = [limit_norm(flat, max_norm)] if max_norm > 0.0 else []
            return flat, torch.stack([*norms, *(scalar.detach() for scalar in scalars)])

        return function

    def _make(
        self, loss: Any, parameters: Sequence[Tensor], inputs: Sequence[Tensor], target: Target
    ) -> Function | None:
        random_state = torch.get_rng_state()
        buffers = list(self._module.buffers())
        former = [buffer.clone() for buffer in buffers]
        arguments = [*(parameter.detach() for parameter in parameters), *inputs, torch.empty_like(target.gradient)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecations of what this file stands in front of
                graph = make_fx(self._function(loss, parameters, target.max_norm))(*arguments)
                check_shapes_are_fixed(graph)
                record: Function = torch.jit.script(simplified(graph, arguments)).forward
                replay(record, arguments)
        except Exception as error:  # whatever cannot be recorded is computed by autograd, where real errors show
            self.refused = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
            return None
        finally:
            torch.set_rng_state(random_state)
            changed = [pair for pair in zip(buffers, former, strict=True) if not torch.equal(*pair)]
            with torch.no_grad():
                for buffer, value in changed:
                    buffer.copy_(value)
        if changed:
            self.refused = "computing the loss changes buffers, such as those of batch normalisation"
            return None
        return record

    def _agrees(
        self, record: Function, loss: Any, parameters: Sequence[Tensor], inputs: Sequence[Tensor], target: Target
    ) -> bool:
        """Whether the record gives what autograd gives."""
        arguments = [*(parameter.detach() for parameter in parameters), *inputs]
        random_state = torch.get_rng_state()
        found = replay(record, [*arguments, torch.empty_like(target.gradient)])
        torch.set_rng_state(random_state)
        wanted = self._function(loss, parameters, target.max_norm)(*arguments, torch.empty_like(target.gradient))
        torch.set_rng_state(random_state)
        return all(
            torch.allclose(ours, autograds, rtol=1e-3, atol=1e-5, equal_nan=True)
            for ours, autograds in zip(found, wanted, strict=True)
        )


def replay(record: Function, arguments: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Run a record as it is: it leaves TorchScript nothing to improve, and trying takes longer than a few updates."""
    with torch.no_grad(), torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
        return record(*arguments)


def shapes_of(tensors: Sequence[Tensor]) -> tuple[tuple[torch.Size, torch.dtype], ...]:
    """Shapes and types."""
    return tuple((tensor.shape, tensor.dtype) for tensor in tensors)


@dataclass(slots=True)
class Replayed:
    """What replaying a loss gave.

    Attributes:
        gradient: The flat gradient.
        described: What the loss recorded.
        values: The norm of the gradient, where that is limited, the loss, and what the loss recorded.
        counts: How many things each of the recorded values is the sum of.
    """

    gradient: Tensor
    described: Described
    values: Tensor
    counts: list[float]


@dataclass(slots=True)
class _Latest:
    """The record that was replayed last, and for what."""

    settings: Any
    structure: Any
    shapes: Any
    record: Function
    described: Described
    counts: list[float]


class ReplayedLoss:
    """Replays the gradient of an algorithm's loss together with the statistics that the loss records.

    Args:
        module: The algorithm.
        compute: Gives the loss of a minibatch and what it records.
    """

    def __init__(self, module: nn.Module, compute: Callable[[Minibatch], tuple[Tensor, Sequence[Recorded]]]) -> None:
        self._recorder = GradientRecorder(module)
        self._compute = compute
        self._described: dict[Any, tuple[Described, list[float]]] = {}
        self._latest: _Latest | None = None

    @property
    def refused(self) -> str | None:
        """Why nothing is replayed any more, None if it is."""
        return self._recorder.refused

    def __call__(
        self,
        minibatch: Minibatch,
        parameters: Sequence[Tensor],
        leaves: Sequence[Tensor],
        settings: Any,
        check: bool,
        target: Target,
    ) -> Replayed | None:
        """The gradient and statistics of a minibatch, None if they cannot be replayed.

        Args:
            minibatch: What the loss is computed from.
            parameters: What to differentiate by.
            leaves: The same, detached.
            settings: All else that the loss and the target depend on.
            check: Whether to compare with autograd.
            target: What to do with the gradient.
        """
        tensors, rebuild, structure = flatten_minibatch(minibatch)
        shapes, latest = shapes_of(tensors), self._latest
        # Comparing with the record before is cheaper than looking for one; settings are the same object for a while.
        if (
            check
            or latest is None
            or latest.settings is not settings
            or latest.structure != structure
            or latest.shapes != shapes
        ):
            key = (structure, settings)

            def loss(inputs: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
                total, records = self._compute(rebuild(inputs))
                described = [(name, step_key) for name, _, step_key, _ in records]
                self._described[key] = described, [count for *_, count in records]
                return total, [total, *(torch.as_tensor(value) for _, value, *_ in records)]

            record = self._recorder.record(key, loss, parameters, tensors, check, target)
            if record is None:
                return None
            latest = self._latest = _Latest(settings, structure, shapes, record, *self._described[key])
        gradient, values = replay(latest.record, [*leaves, *tensors, target.gradient])
        return Replayed(gradient, latest.described, values, latest.counts)


class _Owner(nn.Module):
    """Calls the loss while `functional_call` has other parameters in place."""

    def __init__(self, module: nn.Module, loss: Callable[[Sequence[Tensor]], Any]) -> None:
        super().__init__()
        self.module = module
        self._loss = loss

    def forward(self, inputs: Sequence[Tensor]) -> Any:
        """The loss of these inputs."""
        return self._loss(inputs)

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

from maze_pl.modules.graph import check_shapes_are_fixed, simplified
from maze_pl.modules.optimizer import limit_norm

MAX_RECORDS = 4

Function = Callable[..., tuple[Tensor, Tensor]]
Loss = Callable[[Sequence[Tensor]], tuple[Tensor, Sequence[Tensor]]]
"""Gives a scalar, and further scalars, from the tensors of a minibatch."""


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
        self, key: Any, loss: Loss, parameters: Sequence[Tensor], inputs: Sequence[Tensor], check: bool, target: Target
    ) -> Function | None:
        """What `replay` computes the gradient with.

        Args:
            key: All that the loss and the target depend on beside the values of tensors, such as their shapes.
            loss: What to differentiate.
            parameters: What to differentiate by.
            inputs: The tensors of a minibatch.
            check: Whether to compare with autograd.
            target: What to do with the gradient.

        Returns:
            A function of parameters, inputs and the target's tensor, which gives the flat gradient by `parameters` and
            the scalars; None if this cannot be recorded, then the target has not changed.
        """
        record = self._records.get(key)
        if self.refused is not None:
            return None
        if record is not None and not check:
            return record
        function = self._function(loss, parameters, target.max_norm)
        arguments = [*(parameter.detach() for parameter in parameters), *inputs, torch.empty_like(target.gradient)]
        record = record or self._make(function, arguments)
        if record is not None and not _agree(record, function, arguments):
            self.refused, record = "the recorded update gave other numbers than autograd", None
        if record is not None:
            self._records[key] = record
        return record

    def _function(self, loss: Loss, parameters: Sequence[Tensor], max_norm: float) -> Function:
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
                gradients = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
            with torch.no_grad():
                flat = torch.cat([gradient.reshape(-1) for gradient in gradients], out=written)
                norms = [limit_norm(flat, max_norm)] if max_norm > 0.0 else []
            return flat, torch.stack([*norms, *(scalar.detach() for scalar in scalars)])

        return function

    def _make(self, function: Function, arguments: Sequence[Tensor]) -> Function | None:
        if len(self._records) == MAX_RECORDS:
            self.refused = f"minibatches have more than {MAX_RECORDS} different shapes or settings"
            return None
        record: Function | None = None
        former = [(buffer, buffer.clone()) for buffer in self._module.buffers()]
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecations of what this file stands in front of
                graph = make_fx(function)(*arguments)
                check_shapes_are_fixed(graph)
                record = torch.jit.script(simplified(graph, arguments)).forward
                replay(record, arguments)
        except Exception as error:  # whatever cannot be recorded is computed by autograd, where real errors show
            self.refused = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        for buffer, value in former:
            if not torch.equal(buffer, value):
                buffer.copy_(value)
                self.refused = "computing the loss changes buffers, such as those of batch normalisation"
        return None if self.refused else record


def _agree(record: Function, function: Function, arguments: Sequence[Tensor]) -> bool:
    """Whether a record gives what autograd gives."""
    with torch.random.fork_rng(devices=[]):
        found = replay(record, arguments)
    with torch.random.fork_rng(devices=[]):
        wanted = function(*arguments[:-1], torch.empty_like(arguments[-1]))
    pairs = zip(found, wanted, strict=True)
    return all(torch.allclose(*pair, rtol=1e-3, atol=1e-5, equal_nan=True) for pair in pairs)


def replay(record: Function, arguments: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Run a record as it is: it leaves TorchScript nothing to improve, and trying takes longer than a few updates."""
    with torch.no_grad(), torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
        return record(*arguments)


class _Owner(nn.Module):
    """Calls the loss while `functional_call` has other parameters in place."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self._loss = loss

    def forward(self, inputs: Sequence[Tensor]) -> Any:
        """The loss of these inputs."""
        return self._loss(inputs)

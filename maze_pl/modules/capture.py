"""The gradient of a loss, recorded once as a flat list of tensor operations and replayed without autograd.

For small networks most of an update is the work of finding out what to compute, which is the same for every minibatch.
Recording it (`make_fx`) and running the record in TorchScript roughly halves the time. Everything that is not a tensor
is baked into the record: it is kept for one combination of shapes and plain attributes of the algorithm, is checked
against autograd when it is made and once in every epoch, and is given up with a message where it does not agree.

`torch.jit` is deprecated; nothing outside this file knows of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from maze_pl.core.actor_id import StepKey
from maze_pl.modules.on_policy import Minibatch, flatten_minibatch

MAX_RECORDS = 4
_WARM_UP_RUNS = 3  # TorchScript optimises what it has run twice
_aten = torch.ops.aten

Function = Callable[..., tuple[Tensor, ...]]

Recorded = tuple[str, Tensor | float, StepKey | None, float]
"""Name, value, step key and count of a statistic."""

Described = list[tuple[str, StepKey | None]]
"""Names and step keys of statistics."""


class GradientRecorder:
    """Replays gradients of a loss, one record for each key.

    Args:
        module: Owner of the parameters; a loss that changes its buffers is refused.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._records: dict[Any, Function] = {}
        self.refused: str | None = None  # why nothing is recorded any more

    def __call__(
        self,
        key: Any,
        loss: Callable[[Sequence[Tensor]], tuple[Tensor, Sequence[Tensor]]],
        parameters: Sequence[Tensor],
        inputs: Sequence[Tensor],
        check: bool,
    ) -> tuple[Tensor, Tensor] | None:
        """The gradient and what else the loss gives.

        Args:
            key: All that the loss depends on beside parameters and inputs.
            loss: Gives a scalar, and further scalars, from the inputs.
            parameters: What to differentiate by.
            inputs: The tensors of a minibatch.
            check: Whether to compare with autograd.

        Returns:
            The flat gradient by `parameters` and the further scalars, or None if this cannot be recorded.
        """
        if self.refused is not None:
            return None
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        full_key = (key, shapes)
        record = self._records.get(full_key)
        values = [parameter.detach() for parameter in parameters]
        if record is None:
            if len(self._records) == MAX_RECORDS:
                self.refused = f"minibatches have more than {MAX_RECORDS} different shapes or settings"
                return None
            record = self._record(loss, parameters, values, inputs)
            if record is None:
                return None
            self._records[full_key] = record
            check = True
        with torch.no_grad():
            gradient, scalars = record(*values, *inputs)
        if check and not self._agrees(loss, parameters, inputs, (gradient, scalars)):
            self.refused = "the recorded update gave other numbers than autograd"
            return None
        return gradient, scalars

    def _function(self, loss: Any, parameters: Sequence[Tensor]) -> Function:
        """The gradient as a function of tensors only."""
        owned = {id(parameter): name for name, parameter in self._module.named_parameters()}
        names = [f"module.{owned[id(parameter)]}" for parameter in parameters]
        owner = _Owner(self._module, loss)

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            with torch.enable_grad():
                leaves = [tensor.detach().requires_grad_() for tensor in tensors[: len(names)]]
                replaced = dict(zip(names, leaves, strict=True))
                total, scalars = functional_call(owner, replaced, (tensors[len(names) :],))
                gradients = torch.autograd.grad(total, leaves, allow_unused=True)
            parts = [
                torch.zeros_like(leaf).reshape(-1) if gradient is None else gradient.reshape(-1)
                for leaf, gradient in zip(leaves, gradients, strict=True)
            ]
            return torch.cat(parts), torch.stack([scalar.detach() for scalar in scalars])

        return function

    def _record(
        self, loss: Any, parameters: Sequence[Tensor], values: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> Function | None:
        random_state = torch.get_rng_state()
        buffers = list(self._module.buffers())
        former = [buffer.clone() for buffer in buffers]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecations of what this file stands in front of
                graph = make_fx(self._function(loss, parameters))(*values, *inputs)
                record: Function = torch.jit.script(_simplified(graph))
                with torch.no_grad():
                    for _ in range(_WARM_UP_RUNS):
                        record(*values, *inputs)
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
        self, loss: Any, parameters: Sequence[Tensor], inputs: Sequence[Tensor], replayed: Iterable[Tensor]
    ) -> bool:
        random_state = torch.get_rng_state()
        expected = self._function(loss, parameters)(*[parameter.detach() for parameter in parameters], *inputs)
        torch.set_rng_state(random_state)
        return all(
            torch.allclose(found, wanted.detach(), rtol=1e-3, atol=1e-5, equal_nan=True)
            for found, wanted in zip(replayed, expected, strict=True)
        )


@dataclass(slots=True)
class Replayed:
    """What replaying a loss gave.

    Attributes:
        gradient: The flat gradient.
        described: What the loss recorded.
        values: [number of them]
        counts: How many things each of them is the sum of.
    """

    gradient: Tensor
    described: Described
    values: Tensor
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

    @property
    def refused(self) -> str | None:
        """Why nothing is replayed any more, None if it is."""
        return self._recorder.refused

    def __call__(
        self, minibatch: Minibatch, parameters: Sequence[Tensor], settings: Any, check: bool
    ) -> Replayed | None:
        """The gradient and statistics of a minibatch, None if they cannot be replayed.

        Args:
            minibatch: What the loss is computed from.
            parameters: What to differentiate by.
            settings: All else that the loss depends on.
            check: Whether to compare with autograd.
        """
        tensors, rebuild, structure = flatten_minibatch(minibatch)
        key = (structure, settings)

        def loss(inputs: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
            total, records = self._compute(rebuild(inputs))
            described = [(name, step_key) for name, _, step_key, _ in records]
            self._described[key] = described, [count for *_, count in records]
            return total, [torch.as_tensor(value) for _, value, *_ in records]

        result = self._recorder(key, loss, parameters, tensors, check)
        if result is None:
            return None
        gradient, values = result
        described, counts = self._described[key]
        return Replayed(gradient, described, values, counts)


class _Owner(nn.Module):
    """Calls the loss while `functional_call` has other parameters in place."""

    def __init__(self, module: nn.Module, loss: Callable[[Sequence[Tensor]], Any]) -> None:
        super().__init__()
        self.module = module
        self._loss = loss

    def forward(self, inputs: Sequence[Tensor]) -> Any:
        """The loss of these inputs."""
        return self._loss(inputs)


def _simplified(module: fx.GraphModule) -> fx.GraphModule:
    """Without operations that do nothing, with views computed once, in the form that TorchScript takes."""
    graph = module.graph
    seen: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.target in (_aten.detach.default, _aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.target is _aten.t.default and node.args[0].target is _aten.t.default:
            node.replace_all_uses_with(node.args[0].args[0])
            graph.erase_node(node)
        elif node.target in (_aten.t.default, _aten.view.default, _aten.unsqueeze.default):
            key = (node.target, str(node.args))
            if key in seen:
                node.replace_all_uses_with(seen[key])
                graph.erase_node(node)
            else:
                seen[key] = node
    graph.eliminate_dead_code()
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is _aten._to_copy.default:
            node.target, node.args = _aten.to.dtype, (node.args[0], node.kwargs["dtype"])
            node.kwargs = {}
        node.kwargs = {name: value for name, value in node.kwargs.items() if name not in _PLACEMENT}
        if isinstance(node.target, torch._ops.OpOverload):
            node.target = node.target.overloadpacket
    module.recompile()
    return module


_PLACEMENT = ("device", "pin_memory", "layout")  # all on the CPU, where this is used

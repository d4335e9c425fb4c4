"""The gradient of a loss, recorded once as a flat list of tensor operations and replayed without autograd.

For small networks most of an update is the work of finding out what to compute, which is the same for every minibatch.
Recording it (`make_fx`) and running the record in TorchScript takes less than half of the time. Everything that is not
a tensor is baked into the record: it is kept for one combination of shapes and plain attributes of the algorithm,
checked against autograd when it is made and once in every epoch, and given up with a message where it does not agree.

`torch.jit` is deprecated; nothing outside this file knows of it.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from maze_pl.modules.optimizer import limit_norm

MAX_RECORDS = 4

Function = Callable[..., tuple[Tensor, Tensor]]
Loss = Callable[[Sequence[Tensor]], tuple[Tensor, Sequence[Tensor]]]
"""Gives a scalar, and further scalars, from the tensors of a minibatch."""


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
        loss: Loss,
        parameters: Sequence[Tensor],
        inputs: Sequence[Tensor],
        gradient: Tensor,
        max_norm: float = 0.0,
        *,
        check: bool,
    ) -> Function | None:
        """What `replay` computes the gradient with.

        Args:
            key: All that the loss and the limit depend on beside the values of tensors, such as their shapes.
            loss: What to differentiate.
            parameters: What to differentiate by.
            inputs: The tensors of a minibatch.
            gradient: What the flat gradient will be written into.
            max_norm: Largest L2 norm of the gradient; 0 means without limit. Where there is one, the norm that the
                gradient had comes before the scalars of the loss.
            check: Whether to compare with autograd.

        Returns:
            A function of parameters, inputs and `gradient`, which gives the flat gradient by `parameters` and the
            scalars; None if this cannot be recorded.
        """
        record = self._records.get(key)
        if self.refused is not None:
            return None
        if record is not None and not check:
            return record
        function = self._function(loss, parameters, max_norm)
        arguments = [*(parameter.detach() for parameter in parameters), *inputs, torch.empty_like(gradient)]
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
                record = torch.jit.script(_simplified(graph, arguments)).forward
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


# ----------------------------------------------------------------------------------------------------- the graph
# Autograd writes down much that does nothing, that it did before, or that gives the same each time. For small networks
# an operation costs about the same whatever it computes.


def check_shapes_are_fixed(module: fx.GraphModule) -> None:
    """Refuse operations whose outputs have other shapes for other values, since shapes are baked into a record.

    Raises:
        ValueError: There is one; the message names it.
    """
    for node in module.graph.nodes:
        if torch.Tag.dynamic_output_shape not in getattr(node.target, "tags", ()):
            continue
        masks = [item for item in node.args[1] if item is not None] if node.target is _aten.index.Tensor else []
        if not masks or any(item.meta["tensor_meta"].dtype in (torch.bool, torch.uint8) for item in masks):
            raise ValueError(f"the shape of what {node.target} gives depends on values")


def _simplified(module: fx.GraphModule, arguments: Sequence[Tensor]) -> fx.GraphModule:
    """Without what need not be computed, in the form that TorchScript takes."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.target in (_aten.detach.default, _aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.target is _aten.t.default and node.args[0].target is _aten.t.default:
            node.replace_all_uses_with(node.args[0].args[0])
            graph.erase_node(node)
        elif node.target is _aten.view.default and node.args[0].target is _aten.view.default:
            node.args = (node.args[0].args[0], *node.args[1:])
    operations = [node for node in graph.nodes if isinstance(node.target, OpOverload)]
    end = next(index for index, node in enumerate(operations) if node.target._schema.is_mutable)
    if operations[end].target is _aten.cat.out:  # which writes the gradient; before it nothing is written in place
        _merge(module, operations[:end], arguments)
    graph.eliminate_dead_code()
    for node in graph.nodes:
        if node.target is _aten._to_copy.default:
            node.target, node.args = _aten.to.dtype, (node.args[0], node.kwargs["dtype"])
            node.kwargs = {name: value for name, value in node.kwargs.items() if name == "memory_format"}
        node.kwargs = {name: value for name, value in node.kwargs.items() if name not in _PLACEMENT}
        if isinstance(node.target, OpOverload):
            node.target = node.target.overloadpacket
    module.recompile()
    return module


def _merge(module: fx.GraphModule, operations: Sequence[fx.Node], arguments: Sequence[Tensor]) -> None:
    """Compute once what is computed several times, and now what depends on shapes only."""
    graph, seen, constants = module.graph, dict[Any, fx.Node](), dict[fx.Node, None]()
    for node in operations:
        target: Any = node.target
        if torch.Tag.nondeterministic_seeded in target.tags or "empty" in target._schema.name:
            continue
        known = seen.setdefault((target, str(node.args), str(node.kwargs)), node)
        if known is not node:
            node.replace_all_uses_with(known)
            graph.erase_node(node)
        elif target.overloadpacket in _BY_SHAPE or constants.keys() >= set(node.all_input_nodes):
            constants[node] = None
    interpreter = fx.Interpreter(module, garbage_collect_values=False)
    with torch.no_grad():
        interpreter.run(*arguments)
    for index, node in enumerate(constants):
        if node.users.keys() - constants.keys() and isinstance(interpreter.env[node], Tensor):
            module.register_buffer(f"constant_{index}", interpreter.env[node])
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(f"constant_{index}"))


_aten = torch.ops.aten
_BY_SHAPE = (_aten.ones_like, _aten.zeros_like, _aten.full_like, _aten.new_zeros, _aten.new_ones, _aten.new_full)
_PLACEMENT = ("device", "pin_memory", "layout")  # all on the CPU, where this is used

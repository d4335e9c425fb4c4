"""Gradient of a loss, traced once into a list of tensor operations, then run without autograd.

For small networks most of the time of an update goes into deciding what to compute, which is the
same for every minibatch. Tracing the operations (`make_fx`) and running the trace in TorchScript
takes less than half of the time; on an accelerator the trace becomes a graph of the device, see
`graphed_trace`. Everything that is not a tensor is baked into the trace. A trace
is valid for one combination of shapes (or any number of acts, see `any_size`) and settings, as long
as nothing that the loss has read changes (see `reads`). It is checked against autograd when it is
made and once in every epoch; if the numbers differ, tracing is abandoned with a message.

`torch.jit` is deprecated; its use is confined to this file.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from maze_pl.modules.optimization.any_size import AnySizeTrace, VaryingSizes
from maze_pl.modules.optimization.flat_optimizer import limit_norm
from maze_pl.modules.optimization.graphed_trace import GraphedTrace
from maze_pl.modules.optimization.trace_graph import (
    ShapesDependOnValues,
    TensorElsewhere,
    check_reads_one_device,
    check_shapes_are_fixed,
    for_script,
    simplified,
    unread_arguments,
)
from maze_pl.system.device_graph import random_devices, uses_graphs

MAX_TRACES = 4
"""Maximum number of traces of one loss; each takes time to make."""

FOR_CHANGES: Final = (
    "keep a number that changes in a buffer (register_buffer), which is changed in place, or rename "
    "it if the loss does not read it: all attributes with a name that the loss uses are watched"
)
"""Remedy for losses that are no longer traced, as what they read changes."""

Function = Callable[..., tuple[Tensor, Tensor]]
Loss = Callable[[Sequence[Tensor]], tuple[Tensor, Sequence[Tensor]]]
"""Function from the tensors of a minibatch to the loss, and further scalars."""


class GradientTracer:
    """Traces of the gradient of a loss, one for each key.

    Args:
        module: Owner of the parameters; a loss that changes its buffers is refused.

    Attributes:
        refused: Reason why losses are no longer traced; None if there is none.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._traces: dict[Any, Function] = {}
        self._for_any_size: dict[Any, AnySizeTrace] = {}
        self._n_made = 0
        self._n_of_loss: Counter[Any] = Counter()  # traces made for the present tensors
        self._refused_losses: dict[Any, str] = {}  # reasons, on a device with graphs
        self.refused: str | None = None

    @property
    def n_made(self) -> int:
        """Number of traces made so far."""
        return self._n_made

    def may_make(self, key: Any) -> bool:
        """True if fewer than `MAX_TRACES` of the loss of a key have been made."""
        return self._n_of_loss[_loss_of(key)] < MAX_TRACES

    def admit_losses(self) -> None:
        """Trace losses again that alone were refused, as the next run may be on another device."""
        for loss in self._refused_losses:
            del self._n_of_loss[loss]  # none of its traces exists
        self._refused_losses.clear()

    def refused_loss(self, key: Any) -> str | None:
        """Return the reason why the loss of a key alone cannot be traced; None if there is none."""
        return self._refused_losses.get(_loss_of(key))

    def admits(self, key: Any, sizes: VaryingSizes) -> bool:
        """True if the trace of a key is valid for minibatches of these sizes."""
        return self._for_any_size[key].admits(sizes.values)

    def trace(
        self,
        key: Any,
        loss: Loss,
        parameters: Sequence[Tensor],
        inputs: Sequence[Tensor],
        gradient: Tensor,
        max_norm: float = 0.0,
        *,
        sizes: VaryingSizes | None = None,
        check: bool,
    ) -> Function | None:
        """Return the trace of a key for `run_trace`; make one if there is none.

        Args:
            key: All that the loss and the limit depend on besides the values of tensors, such as
                their shapes. The first entry of a tuple identifies the loss.
            loss: Loss to differentiate.
            parameters: Parameters to differentiate with respect to.
            inputs: The tensors of a minibatch.
            gradient: Buffer that the flat gradient will be written into.
            max_norm: Maximum L2 norm of the gradient; 0 for no limit. With a limit, the norm before
                clipping precedes the scalars of the loss.
            sizes: Leading sizes of the inputs, for a trace that is valid for other sizes as well;
                None for a trace that is valid for the shapes of these inputs only.
            check: Compare the trace with autograd.

        Returns:
            A function of parameters, inputs and `gradient`, which returns the flat gradient with
            respect to `parameters`, and the scalars; None if the loss cannot be traced.
        """
        trace = self._traces.get(key)
        if self.refused is not None or self.refused_loss(key) is not None:
            return None
        if trace is not None and not check:
            return trace
        function = self._function(loss, parameters, max_norm)
        arguments = [
            *(parameter.detach() for parameter in parameters),
            *inputs,
            gradient if uses_graphs(gradient.device) else torch.empty_like(gradient),  # graphs write to one address
        ]
        if sizes is not None:
            fixed = (None,) * len(parameters)
            sizes = VaryingSizes(sizes.values, (*fixed, *sizes.places, None))
        trace = trace or self._make(key, function, arguments, len(parameters), sizes)
        is_exact = sizes is not None  # the same operations on the same shapes
        layers = _layers(self._module, parameters)
        if trace is not None and not _agree(trace, function, arguments, layers, is_exact, max_norm):
            self.refused, trace = "the traced update computed other values than autograd", None
        if trace is not None:
            self._traces[key] = trace
        return trace

    def forget(self, key: Any, change: str) -> None:
        """Drop a trace that is outdated; stop tracing if `MAX_TRACES` of its loss have been made.

        Args:
            key: See `trace`.
            change: Description of the change.
        """
        self._traces.pop(key, None)
        self._for_any_size.pop(key, None)
        if self._n_of_loss[_loss_of(key)] >= MAX_TRACES:
            self.refused = f"what the loss may read keeps changing: {change}; {FOR_CHANGES}"

    def discard_graphs(self) -> set[Any]:
        """Drop the traces that are graphs of a device, and return their keys.

        When a run ends their tensors move. They no longer count towards `MAX_TRACES`.
        """
        keys = {key for key, trace in self._traces.items() if isinstance(trace, GraphedTrace)}
        for key in keys:
            del self._traces[key]
        if keys:
            self._n_of_loss.clear()
        return keys

    def _function(self, loss: Loss, parameters: Sequence[Tensor], max_norm: float) -> Function:
        """Return the whole computation as a function of tensors only."""
        # Each module is listed once, under one of its names: functional_call with tie_weights swaps
        # the parameters of a shared module once for each name, and does not restore them.
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

    def _make(
        self,
        key: Any,
        function: Function,
        arguments: Sequence[Tensor],
        n_parameters: int,
        sizes: VaryingSizes | None,
    ) -> Function | None:
        if not self.may_make(key):
            self.refused = f"minibatches have more than {MAX_TRACES} different shapes or settings"
            return None
        self._n_made += 1
        self._n_of_loss[_loss_of(key)] += 1
        trace: Function | None = None
        former = [(buffer, buffer.clone()) for buffer in self._module.buffers()]
        try:
            device = arguments[-1].device
            with torch.random.fork_rng(random_devices(device)), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecations that this file hides from the rest
                if sizes is None:
                    graph = make_fx(function)(*arguments)
                else:
                    self._for_any_size[key] = AnySizeTrace(function, arguments, sizes)
                    graph = self._for_any_size[key].graph
                check_shapes_are_fixed(graph)
                if uses_graphs(device):
                    check_reads_one_device(graph, arguments)
                graph = simplified(graph, arguments)
                if uses_graphs(device):
                    trace = GraphedTrace(graph, n_parameters, unread_arguments(graph))
                else:
                    trace = torch.jit.script(for_script(graph)).forward
                run_trace(trace, arguments)
        except TensorElsewhere as error:
            self._refused_losses[_loss_of(key)] = self._reason(error)
        except ShapesDependOnValues as error:
            self.refused = str(error)
        except DynamicOutputShapeException:
            self.refused = str(ShapesDependOnValues())
        except Exception as error:  # autograd takes over, and shows real errors
            reason = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
            self.refused = reason if sizes is None else f"it cannot be traced for any number of acts, {reason}"
        for buffer, value in former:
            if not torch.equal(buffer, value):
                buffer.copy_(value)
                self.refused = "computing the loss changes buffers, such as those of batch normalisation"
        return None if self.refused or self.refused_loss(key) else trace

    def _reason(self, error: TensorElsewhere) -> str:
        """Describe the tensor that a graph of the device cannot read, and the remedy."""
        tensor = error.tensor
        device = tensor.device.type
        shape = tuple(tensor.shape)
        if error.origin == "input":
            came = f"the minibatch has a tensor of shape {shape} on the {device}"
            return f"{came}, which a graph of the device cannot read: move it to the device of the networks"
        if error.origin == "random":
            came = f"the loss draws random numbers on the {device}"
            return f"{came}, which a graph of the device cannot draw again: draw them on the device of the networks"
        for path, part in self._module.named_modules():
            for name, value in vars(part).items():
                if value is tensor:
                    place = f"{path}.{name}".removeprefix(".")
                    remedy = "make it a buffer"
                    return f"{place} is on the {device}, which a graph of the device cannot read again: {remedy}"
        came = f"the loss reads or records a tensor of shape {shape} on the {device}"
        return f"{came}, which a graph of the device cannot read again: create it on the device of the networks"


def _loss_of(key: Any) -> Any:
    return key[0] if isinstance(key, tuple) else None


def _layers(module: nn.Module, parameters: Sequence[Tensor]) -> list[int]:
    """Return for each parameter the number of the layer that it belongs to.

    Weights and bias of a layer get their gradients from the same terms, which may cancel out in one of them.
    """
    layer_of: dict[int, int] = {}
    for number, part in enumerate(module.modules()):
        for parameter in part.parameters(recurse=False):
            layer_of.setdefault(id(parameter), number)
    return [layer_of.get(id(parameter), -1 - place) for place, parameter in enumerate(parameters)]


def _agree(
    trace: Function,
    function: Function,
    arguments: Sequence[Tensor],
    layers: Sequence[int],
    is_exact: bool,
    max_norm: float = 0.0,
) -> bool:
    """True if a trace and autograd give the same numbers, up to rounding or bit for bit.

    Args:
        trace: The trace.
        function: The function that was traced.
        arguments: Their arguments: parameters, inputs, and a buffer for the gradient.
        layers: For each parameter, the number of its layer.
        is_exact: Whether finite numbers must agree bit for bit.
        max_norm: Maximum norm of the gradient; 0 for no limit.
    """
    devices = random_devices(arguments[-1].device)
    with torch.random.fork_rng(devices):
        found = run_trace(trace, arguments)
        found = found[0].clone(), found[1]
    with torch.random.fork_rng(devices):
        wanted = function(*arguments[:-1], torch.empty_like(arguments[-1]))
    pairs = list(zip(found, wanted, strict=True))
    if is_exact and all(torch.equal(*pair) for pair in pairs):
        return True
    if is_exact and all(bool(pair[1].isfinite().all()) for pair in pairs):
        return False
    gradients, scalars = pairs
    smallest_norm = torch.ones((), dtype=torch.float64, device=scalars[1].device)
    if max_norm > 0.0:  # the limit has made the gradient smaller
        smallest_norm = (max_norm / scalars[1][0].double()).clamp(max=1.0)
    parameters = arguments[: len(layers)]
    norms = _norms_of_layers(wanted[0], parameters, layers).clamp(min=smallest_norm)
    relative = _relative_tolerance(parameters, wanted[0].device)
    is_close = torch.allclose(*scalars, rtol=relative, atol=1e-2 * relative, equal_nan=True)
    return is_close and _are_close(*gradients, relative, 1e-2 * relative * norms)


def _relative_tolerance(parameters: Sequence[Tensor], device: torch.device) -> float:
    """Return the relative difference that rounding may cause, which is larger in half precision."""
    dtypes = {parameter.dtype for parameter in parameters}
    if torch.is_autocast_enabled(device.type):
        dtypes.add(torch.get_autocast_dtype(device.type))
    return max(1e-3, *(2.0 * torch.finfo(dtype).eps for dtype in dtypes))


def _norms_of_layers(gradient: Tensor, parameters: Sequence[Tensor], layers: Sequence[int]) -> Tensor:
    """Return for each number of a flat gradient the L2 norm of the gradient of its layer, in float64.

    Where large terms cancel out, rounding is relative to it. Layers are looked at one by one, as
    large gradients of a critic would hide those of a policy.
    """
    counts = [parameter.numel() for parameter in parameters]
    numbers = gradient.nan_to_num(0.0, 0.0, 0.0).double()
    squares: dict[int, Tensor] = {}
    for layer, part in zip(layers, torch.split(numbers, counts), strict=True):
        square = part.square().sum()
        squares[layer] = squares[layer] + square if layer in squares else square
    pairs = zip(layers, counts, strict=True)
    return torch.cat([squares[layer].sqrt().expand(count) for layer, count in pairs])


def _are_close(found: Tensor, wanted: Tensor, relative: float, tolerance: Tensor) -> bool:
    """True if numbers differ by at most this fraction and the tolerance of each; NaN equals NaN."""
    is_same = (found == wanted) | (found.isnan() & wanted.isnan())
    difference = (found.double() - wanted.double()).abs()
    is_near = wanted.isfinite() & (difference <= tolerance + relative * wanted.double().abs())
    return bool((is_same | is_near).all())


def run_trace(trace: Function, arguments: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Run a trace without optimising it, which gains nothing and outlasts a few updates."""
    if isinstance(trace, GraphedTrace):
        return trace(*arguments)
    with torch.no_grad(), torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
        return trace(*arguments)


class _Owner(nn.Module):
    """Module that computes the loss while `functional_call` has swapped the parameters."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self._loss = loss

    def forward(self, inputs: Sequence[Tensor]) -> Any:
        """Compute the loss of these inputs."""
        return self._loss(inputs)

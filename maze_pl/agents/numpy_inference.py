"""NumPy evaluation of plain dense networks on views of their weights.

For a handful of observations, most of torch's cost is call overhead; for many, NumPy's activations
are the faster ones, while torch computes the large products. A network is traced once; it
must consist of the functions in `_FUNCTIONS` only: dense layers, activations, concatenations, and
changes of shape and type. Before each call it is compared with its state at tracing, and traced
again if its layers or attributes have changed or its weights have moved. Networks in training mode,
with hooks, or with attributes that cannot be compared are evaluated by torch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as module_globals
from torch.overrides import TorchFunctionMode

from maze_pl.agents.network_io import NetworkInput
from maze_pl.agents.numpy_sampling import TORCH_TYPES, numpy_sigmoid
from maze_pl.core.policy import Array

Operation = Callable[[Any], Array]

_LARGEST_PRODUCT: Final = 2**18
"""Multiplications in a product of matrices above which torch computes it.

Up to here, NumPy's OpenBLAS has one thread, so that its results are the same in all processes. For
larger products it would use all cores, whatever the number of threads of torch: its limit is
`SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD`. Both libraries round differently, and so may
batches on the two sides of the limit.
Source: https://github.com/OpenMathLib/OpenBLAS/blob/develop/interface/gemm.c
"""


class NumpyNetwork:
    """Evaluates a network with NumPy if it is plain enough; if it is not, it is not tried again.

    Args:
        network: Maps a dict of observations to a dict of logits.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._plan: _Plan | None = None
        self._refused = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy without the plan, whose views belong to the weights of this network."""
        return NumpyNetwork, (self._network,)

    def logits(self, observation: Mapping[str, Array]) -> dict[str, Array] | None:
        """Return the network's outputs by name, or None if torch must evaluate it.

        Args:
            observation: Name -> [B, ...].
        """
        if torch.is_autocast_enabled("cpu"):
            return None
        if not self._refused and (self._plan is None or not self._plan.is_current()):
            for module in self._network.modules():
                if module.training or module._forward_hooks or module._forward_pre_hooks:
                    return None
            self._plan = _make_plan(self._network, observation)
            self._refused = self._plan is None
        # The number of threads must not decide: workers have one, the training process several.
        return None if self._plan is None else self._plan.evaluate(observation)

    def outputs(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return the outputs by name, or None if torch must evaluate the network.

        It must if gradients are computed, and while the network learns: torch computes the whole
        of a loss, also the parts that need no gradient.

        Args:
            observation: Name -> [B, ...], on the network's device and in its type.
        """
        if self._refused or torch.is_grad_enabled():
            return None
        if self._network.training:
            return None
        for tensor in observation.values():
            if tensor.device.type != "cpu" or tensor.dtype == torch.bfloat16:
                return None
        arrays = self.logits({name: tensor.numpy() for name, tensor in observation.items()})
        if arrays is None:
            return None
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _make_plan(network: nn.Module, observation: Mapping[str, Array]) -> _Plan | None:
    """Trace a network and check the plan on the same batch; None if it is not plain enough."""
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            tensors = {name: torch.from_numpy(array.copy()) for name, array in observation.items()}
            inputs = NetworkInput(network)(tensors)
            plan = _Plan(network, inputs)
            expected = {name: value.numpy() for name, value in network(inputs).items()}
        found = plan.evaluate(observation) or {}
        for name, array in expected.items():
            if not _is_close(found[name], array):
                return None
    except Exception:  # any exception, as the network is user code; torch then reports its errors
        return None
    return plan if plan.is_current() else None


def _is_close(found: Array, expected: Array) -> bool:
    """Return whether two arrays have the same supported type and shape, and are equal up to rounding."""
    if found.dtype != expected.dtype or found.dtype not in TORCH_TYPES:
        return False
    if found.shape != expected.shape:
        return False
    return bool(np.allclose(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True))


class _Plan:
    """Operations of a network in order, and a check that the network has not changed since."""

    def __init__(self, network: nn.Module, inputs: Mapping[str, Tensor]) -> None:
        modules = list(network.modules())
        hooks: list[Any] = [
            module_globals._global_forward_hooks,
            module_globals._global_forward_pre_hooks,
        ]
        for module in modules:
            hooks += [module._forward_hooks, module._forward_pre_hooks]
        # Of torch's own layers only submodules are compared: more would take too long in each call.
        attributes = [vars(module) if _may_change(module) else module._modules for module in modules]
        # The copy of the attributes holds modules, weights and buffers themselves, not copies.
        kept_by_reference = (*modules, *network.parameters(), *network.buffers())
        memo = {id(item): item for item in kept_by_reference}
        self._state = [*hooks, *attributes]  # the dicts themselves, which change with the network
        without_hooks: list[Any] = [{} for _ in hooks]
        self._state_when_traced = [*without_hooks, *copy.deepcopy(attributes, memo)]
        self._parameters = [module._parameters for module in modules if module._parameters]
        self._pointers = self._look_up()
        with _Recorder(inputs) as recorder:
            outputs = network(dict(inputs))
        self._inputs = [(name, tensor.numpy().dtype) for name, tensor in inputs.items()]
        self._steps = recorder.steps
        self._outputs = {name: recorder.places[id(value)] for name, value in outputs.items()}

    def _look_up(self) -> list[int]:
        """Return the addresses of all weights."""
        return [item.data_ptr() for group in self._parameters for item in group.values() if item is not None]

    def is_current(self) -> bool:
        """Return whether the network's parts, mode and weight addresses are as traced, without hooks."""
        try:
            if self._state != self._state_when_traced:
                return False
            return self._look_up() == self._pointers
        except Exception:  # any exception, as attributes define their comparison; tensors fail
            return False

    def evaluate(self, observation: Mapping[str, Array]) -> dict[str, Array] | None:
        """Return the outputs by name, or None if the type of an observation has changed.

        Floats of another size than in the trace are converted.
        """
        values = []
        for name, dtype in self._inputs:
            array = observation[name]
            if array.dtype != dtype and not array.dtype.kind == dtype.kind == "f":
                return None
            values.append(array if array.dtype == dtype else array.astype(dtype))
        for operation, source in self._steps:
            values.append(operation(source(values)))
        return {name: values[place] for name, place in self._outputs.items()}


def _may_change(module: nn.Module) -> bool:
    is_layer_of_torch = type(module).__module__.startswith("torch.nn.modules.")
    return isinstance(module, nn.Dropout) or not is_layer_of_torch


class _Recorder(TorchFunctionMode):
    """Records the functions that are called, and fails at unknown ones.

    Attributes:
        steps: The functions, each with a selector of its arguments among all values.
        places: `id` of a tensor -> its position among all values: inputs, then results of the
            functions.
    """

    def __init__(self, inputs: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.steps: list[tuple[Operation, Callable[[list[Array]], Any]]] = []
        self.places = {id(tensor): place for place, tensor in enumerate(inputs.values())}
        # keeps them alive, so that no other tensor gets their `id`
        self._values = list(inputs.values())

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function and record it."""
        result = func(*args, **(kwargs or {}))
        if func not in _QUESTIONS:
            first, *options = args
            sources = first if isinstance(first, list | tuple) else (first,)
            operation = _FUNCTIONS[func](*options, **(kwargs or {}))
            places = [self.places[id(source)] for source in sources]
            if result is first and func in _ACTIVATIONS and self._has_views(result):
                raise ValueError("an activation in place also changes other views of its input")
            self.steps.append((operation, itemgetter(*places)))
            self.places[id(result)] = len(self._values)
            self._values.append(result)
        return result

    def _has_views(self, tensor: Tensor) -> bool:
        """True if the memory of a tensor is also that of another recorded value."""
        memory = tensor.untyped_storage().data_ptr()
        return any(value is not tensor and value.untyped_storage().data_ptr() == memory for value in self._values)


# ------------------------------------------------------------------------------------------------------ operations
#
# Functions that take options, which have the names and defaults of torch, return an operation.


def _relu(x: Array) -> Array:
    return np.maximum(x, _ZERO)


_ZERO = np.zeros((), np.float32)  # an array, which costs less than a Python number


def _silu(inplace: bool = False) -> Operation:
    return lambda x: x * numpy_sigmoid(x)


def _elu(alpha: float = 1.0, inplace: bool = False) -> Operation:
    return lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, _ZERO)))


def _leaky_relu(negative_slope: float = 0.01, inplace: bool = False) -> Operation:
    return lambda x: np.where(x > 0, x, negative_slope * x)


def _unsqueeze(dim: int) -> Operation:
    return lambda x: np.expand_dims(x, dim)


def _flatten(start_dim: int = 0) -> Operation:
    return lambda x: x.reshape(*x.shape[:start_dim], math.prod(x.shape[start_dim:]))


def _concatenate(dim: int = 0) -> Operation:
    return lambda arrays: np.concatenate(arrays if isinstance(arrays, tuple) else (arrays,), dim)


def _to(dtype: torch.dtype = torch.float32) -> Operation:
    target = torch.empty(0, dtype=dtype).numpy().dtype
    return lambda x: x.astype(target, copy=False)


def _dense(weight: Tensor, bias: Tensor | None = None) -> Operation:
    if not isinstance(weight, nn.Parameter) or not isinstance(bias, nn.Parameter | None):
        raise TypeError("weights that are computed change with what they are computed from")
    weight_view, bias_view = weight.detach(), None if bias is None else bias.detach()
    matrix = weight_view.numpy().T
    vector = 0.0 if bias_view is None else bias_view.numpy()
    most_inputs = _LARGEST_PRODUCT // len(weight_view)

    def dense(x: Array) -> Any:
        if x.size > most_inputs:
            rows = torch.from_numpy(np.require(x, requirements=["C", "W"]))  # torch needs arrays that it may write to
            return functional.linear(rows, weight_view, bias_view).numpy()
        result = x.dot(matrix)
        result += vector
        return result

    return dense


def _dropout(p: float, training: bool, inplace: bool = False) -> Operation:
    if training:
        raise ValueError("dropout draws random numbers")
    return lambda x: x


_ACTIVATIONS = (functional.silu, functional.elu, functional.leaky_relu, functional.relu)
"""Functions that change their input if they are asked to."""
_DTYPE: Any = Tensor.dtype
_DEVICE: Any = Tensor.device
_NDIM: Any = Tensor.ndim
_QUESTIONS = (
    Tensor.is_floating_point,
    torch.is_floating_point,
    Tensor.dim,
    _DTYPE.__get__,
    _DEVICE.__get__,
    _NDIM.__get__,
)
"""Queries that are not recorded, since their answers do not depend on the batch."""
_FUNCTIONS: dict[Any, Callable[..., Operation]] = {
    functional.linear: _dense,
    functional.dropout: _dropout,
    functional.silu: _silu,
    functional.elu: _elu,
    functional.leaky_relu: _leaky_relu,
    **dict.fromkeys((torch.tanh, Tensor.tanh), lambda: np.tanh),
    **dict.fromkeys((torch.sigmoid, Tensor.sigmoid), lambda: numpy_sigmoid),
    **dict.fromkeys((functional.relu, torch.relu, Tensor.relu), lambda inplace=False: _relu),
    **dict.fromkeys((torch.cat, torch.concat), _concatenate),
    **dict.fromkeys((torch.flatten, Tensor.flatten), _flatten),
    Tensor.unsqueeze: _unsqueeze,
    **dict.fromkeys((Tensor.float, Tensor.to), _to),
}
"""Function of torch -> its operation for given options, all arguments but the first.

Unknown options make the call fail, so that torch evaluates the network.
"""

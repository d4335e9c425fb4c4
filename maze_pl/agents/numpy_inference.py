"""NumPy evaluation of plain dense networks on views of their weights, and sampling of actions.

For a handful of observations, most of torch's cost is call overhead. A network is traced once; it
must consist of dense layers, activations and concatenations only. Before each call it is compared
with its state at tracing, and traced again if its layers or attributes have changed or its weights
have moved. Networks in training mode, with hooks, or with attributes that cannot be compared are
evaluated by torch. Random numbers are drawn in the same way as by the distributions, so that both
paths give the same actions up to rounding.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as module_globals
from torch.overrides import TorchFunctionMode

from maze_pl import distributions
from maze_pl.agents.network_io import NetworkInput
from maze_pl.core.policy import Array

Operation = Callable[[Any], Array]
How = tuple[bool, float, torch.Generator | None]
"""Whether to take the most likely action, the temperature, and the source of randomness."""


class NumpySampler:
    """Samples the same actions as the distributions of one sub-step.

    Args:
        mapper: The distributions of the heads.
    """

    def __init__(self, mapper: distributions.DistributionMapper) -> None:
        self._heads = [
            (head, _CHOICES.get(distribution), space, mapper.required_logits_shape(head))
            for head, (distribution, space) in mapper.heads.items()
        ]

    @np.errstate(all="ignore")  # torch does not warn about infinities either
    def choose(self, logits: Mapping[str, Array], allowed: Mapping[str, Array], how: How) -> dict[str, Array] | None:
        """Return head -> [B, ...] actions, or None if the distributions themselves must sample.

        Args:
            logits: Head -> [B, L] outputs of the network.
            allowed: Head -> [B, L] mask of allowed entries, for masked heads.
            how: Whether to take the most likely action, the temperature, and the source of randomness.
        """
        _, temperature, generator = how
        if not temperature > 0 or (generator is not None and generator.device.type != "cpu"):
            return None
        action = {}
        for head, choose, space, shape in self._heads:
            array, mask = logits[head], allowed.get(head)
            if choose is None or array.shape[1:] != shape or (mask is not None and mask.shape != array.shape):
                return None
            if temperature != 1.0 and choose is not _gaussian:
                array = array / float(temperature)
            action[head] = choose(array, mask, space, how)
        return action


def numpy_views(tensors: Mapping[str, Tensor]) -> dict[str, Array] | None:
    """Return the tensors as arrays, or None if that would move or convert them."""
    if any(tensor.device.type != "cpu" or tensor.dtype not in _TORCH_TYPES.values() for tensor in tensors.values()):
        return None
    return {name: tensor.numpy() for name, tensor in tensors.items()}


class NumpyNetwork:
    """Evaluates a network if it is plain enough; one that was not once is never tried again.

    Args:
        network: Maps a dict of observations to a dict of logits.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._plan: _Plan | None = None
        self._refused = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies start without a plan, because its views belong to the weights of this network."""
        return NumpyNetwork, (self._network,)

    def logits(self, observation: Mapping[str, Array]) -> dict[str, Array] | None:
        """Return the network's outputs by name, or None if torch must evaluate it.

        Args:
            observation: Name -> [B, ...].
        """
        if not self._refused and (self._plan is None or not self._plan.is_current()):
            modules = self._network.modules()
            if any(item.training or item._forward_hooks or item._forward_pre_hooks for item in modules):
                return None
            self._plan = _make_plan(self._network, observation)
            self._refused = self._plan is None
        return None if self._plan is None else self._plan.evaluate(observation)

    def outputs(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return the outputs by name, or None if torch must evaluate the network, as for gradients.

        Args:
            observation: Name -> [B, ...], on the network's device and in its type.
        """
        foreign = (tensor.device.type != "cpu" or tensor.dtype == torch.bfloat16 for tensor in observation.values())
        if self._refused or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or any(foreign):
            return None
        arrays = self.logits({name: tensor.numpy() for name, tensor in observation.items()})
        return None if arrays is None else {name: torch.from_numpy(array) for name, array in arrays.items()}


def _make_plan(network: nn.Module, observation: Mapping[str, Array]) -> _Plan | None:
    """Trace a network and check the plan on the same batch; None if it is not plain enough."""
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            tensors = {name: torch.from_numpy(array.copy()) for name, array in observation.items()}
            inputs = NetworkInput(network)(tensors)
            plan = _Plan(network, inputs)
            expected = {name: value.numpy() for name, value in network(inputs).items()}
        given = plan.evaluate(observation) or {}
        for name, array in expected.items():
            same = given[name].dtype == array.dtype in _TORCH_TYPES and given[name].shape == array.shape
            if not same or not np.allclose(given[name], array, rtol=1e-4, atol=1e-5, equal_nan=True):
                return None
    except Exception:  # any exception, as the network's own code runs; torch then evaluates it and reports errors
        return None
    return plan if plan.is_current() else None


class _Plan:
    """Operations of a network in order, and a check that the network has not changed since."""

    def __init__(self, network: nn.Module, inputs: Mapping[str, Tensor]) -> None:
        modules = list(network.modules())
        hooks: list[Any] = [module_globals._global_forward_hooks, module_globals._global_forward_pre_hooks]
        for module in modules:
            hooks += [module._forward_hooks, module._forward_pre_hooks]
        # For torch's own layers only submodules are compared: more would take too long in each call.
        own = [vars(module) if _may_change(module) else module._modules for module in modules]
        same = {id(item): item for item in (*modules, *network.parameters(), *network.buffers())}
        self._state, self._known = [*hooks, *own], [*({} for _ in hooks), *copy.deepcopy(own, same)]
        self._parameters = [module._parameters for module in modules if module._parameters]
        self._pointers = self._look_up()
        with _Recorder(inputs) as recorder:
            outputs = network(dict(inputs))
        self._inputs = [(name, tensor.numpy().dtype) for name, tensor in inputs.items()]
        self._steps = recorder.steps
        self._outputs = {name: recorder.places[id(value)] for name, value in outputs.items()}

    def _look_up(self) -> list[int]:
        return [item.data_ptr() for group in self._parameters for item in group.values() if item is not None]

    def is_current(self) -> bool:
        """True if the network's parts, mode and weight addresses are as traced, and it has no hooks."""
        try:
            return self._state == self._known and self._look_up() == self._pointers
        except Exception:  # any exception, as attributes define their comparison; tensors and arrays fail
            return False

    def evaluate(self, observation: Mapping[str, Array]) -> dict[str, Array] | None:
        """Return the outputs by name, or None if the type of an observation has changed."""
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
    return isinstance(module, nn.Dropout) or not type(module).__module__.startswith("torch.nn.modules.")


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
        self._values = list(inputs.values())  # keeps them alive, so that no other tensor gets their `id`

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function and record it."""
        result = func(*args, **(kwargs or {}))
        if func not in _QUESTIONS:
            first, *options = args
            sources = first if isinstance(first, list | tuple) else (first,)
            operation = _FUNCTIONS[func](*options, **(kwargs or {}))
            self.steps.append((operation, itemgetter(*(self.places[id(source)] for source in sources))))
            self.places[id(result)] = len(self._values)
            self._values.append(result)
        return result


# ------------------------------------------------------------------------------------------------------ operations


def _relu(x: Array) -> Array:
    return np.maximum(x, _ZERO)


_ZERO = np.zeros((), np.float32)  # an array, which costs less than a Python number


def _sigmoid(x: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(0.5 * x)  # cannot overflow


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
    matrix, vector = weight.detach().numpy().T, 0.0 if bias is None else bias.detach().numpy()

    def dense(x: Array) -> Any:
        result = x.dot(matrix)
        result += vector
        return result

    return dense


def _dropout(p: float, training: bool, inplace: bool = False) -> Operation:
    if training:
        raise ValueError("dropout draws random numbers")
    return lambda x: x


_KNOWN_BEFORE = (Tensor.dtype.__get__, Tensor.device.__get__, Tensor.ndim.__get__)  # type: ignore[attr-defined]
_QUESTIONS = (Tensor.is_floating_point, torch.is_floating_point, Tensor.dim, *_KNOWN_BEFORE)
"""Queries that are not recorded, since their answers do not depend on the batch."""
# Unknown options make the call fail.
_FUNCTIONS: dict[Any, Callable[..., Operation]] = {
    functional.linear: _dense,
    functional.dropout: _dropout,
    functional.silu: lambda inplace=False: lambda x: x * _sigmoid(x),
    functional.elu: lambda alpha=1.0, inplace=False: (
        lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, _ZERO)))
    ),
    functional.leaky_relu: lambda negative_slope=0.01, inplace=False: lambda x: np.where(x > 0, x, negative_slope * x),
    **dict.fromkeys((torch.tanh, Tensor.tanh), lambda: np.tanh),
    **dict.fromkeys((torch.sigmoid, Tensor.sigmoid), lambda: _sigmoid),
    **dict.fromkeys((functional.relu, torch.relu, Tensor.relu), lambda inplace=False: _relu),
    **dict.fromkeys((torch.cat, torch.concat), _concatenate),
    **dict.fromkeys((torch.flatten, Tensor.flatten), _flatten),
    Tensor.unsqueeze: lambda dim: lambda x: np.expand_dims(x, dim),
    **dict.fromkeys((Tensor.float, Tensor.to), _to),
}


# --------------------------------------------------------------------------------------------------- distributions
# [B, ...] actions from [B, L] logits and [B, L] boolean masks. Logits are already divided by the
# temperature, except for normal distributions.

_TORCH_TYPES: dict[Any, torch.dtype] = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}
_LOWEST = {dtype: np.full((), -np.finfo(dtype).max, dtype) for dtype in _TORCH_TYPES}
_TINY = {dtype: np.full((), np.finfo(dtype).tiny, dtype) for dtype in _TORCH_TYPES}


def _uniform(like: Array, how: How) -> Any:
    return torch.rand(like.shape, generator=how[2], dtype=_TORCH_TYPES[like.dtype]).numpy()


def _allowed(logits: Array, mask: Array | None) -> Array:
    return logits if mask is None else np.where(mask, logits, _LOWEST[logits.dtype])


def _categorical(logits: Array, mask: Array | None, space: Any, how: How) -> Any:
    index = _index(logits, mask, how)
    return index + int(space.start) if space.start else index


def _index(logits: Array, mask: Array | None, how: How) -> Any:
    """[B] the most likely index, or one sampled by the exponential race of `sample_index`.

    The largest p / e, e exponential, is the largest log p - log e. Masked entries score far below
    all others and are ordered by 1 / e among themselves.
    """
    if how[0]:
        return _allowed(logits, mask).argmax(-1)
    exponential = -np.log(np.maximum(_uniform(logits, how), _TINY[logits.dtype]))
    score = logits - np.log(exponential)
    if mask is not None:
        score = np.where(mask, score, -1e30 * exponential)
    return score.argmax(-1)


def _multi_categorical(logits: Array, mask: Array | None, space: Any, how: How) -> Any:
    bounds = np.cumsum(space.nvec)[:-1]
    parts = np.split(logits, bounds, axis=-1)
    masks = [None] * len(parts) if mask is None else np.split(mask, bounds, axis=-1)
    columns = [_index(part, part_mask, how) for part, part_mask in zip(parts, masks, strict=True)]
    return np.stack(columns, axis=-1).reshape(len(logits), *space.shape)


def _bernoulli(logits: Array, mask: Array | None, space: Any, how: How) -> Any:
    logits = _allowed(logits, mask)
    bits = logits > 0 if how[0] else _uniform(logits, how) < _sigmoid(logits)
    return bits.astype(np.int8).reshape(len(logits), *space.shape)


def _gaussian(logits: Array, mask: Array | None, space: Any, how: How) -> Any:
    deterministic, temperature, generator = how
    action, log_std = np.split(logits, 2, axis=-1)
    if not deterministic:
        noise = torch.randn(action.shape, generator=generator, dtype=_TORCH_TYPES[logits.dtype]).numpy()
        action = action + np.exp(log_std + 0.5 * math.log(temperature)) * noise
    return action.reshape(len(logits), *space.shape)


_CHOICES: dict[Any, Callable[[Array, Array | None, Any, How], Any]] = {
    distributions.CategoricalProbabilityDistribution: _categorical,
    distributions.MultiCategoricalProbabilityDistribution: _multi_categorical,
    distributions.BernoulliProbabilityDistribution: _bernoulli,
    distributions.DiagonalGaussianProbabilityDistribution: _gaussian,
}

"""Plain dense networks evaluated in NumPy on views of their weights, and actions sampled from what they give.

For a handful of observations the cost of torch is that of calling it. A network is recognised by tracing it once: it
must consist of dense layers, activations and concatenations, and hold nothing that could change what it computes, such
as buffers or objects of other classes. Before each call it is compared with what was traced, and weights that have
moved are looked up again; a network that is not as it was (hooks, training mode, other layers, attributes or types)
is left to torch. Random numbers are drawn as the distributions draw them, so that both ways give the same actions, but
for rounding.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from operator import itemgetter
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.modules import module as module_globals

from maze_pl.agents.network_io import NetworkInput
from maze_pl.core.policy import Array
from maze_pl.distributions.bernoulli import BernoulliProbabilityDistribution
from maze_pl.distributions.categorical import CategoricalProbabilityDistribution
from maze_pl.distributions.diagonal_gaussian import DiagonalGaussianProbabilityDistribution
from maze_pl.distributions.distribution_mapper import DistributionMapper
from maze_pl.distributions.multi_categorical import MultiCategoricalProbabilityDistribution

Operation = Callable[[Any], Array]
How = tuple[bool, float, torch.Generator | None]
"""Whether to take the most likely action, the temperature, and the source of randomness."""


class NumpySampler:
    """Chooses actions as the distributions of one sub-step do.

    Args:
        mapper: The distributions of the heads.
    """

    def __init__(self, mapper: DistributionMapper) -> None:
        self._heads = [
            (head, _CHOICES.get(distribution), space, mapper.required_logits_shape(head), mapper.masks.get(head))
            for head, (distribution, space) in mapper.heads.items()
        ]

    @np.errstate(all="ignore")  # torch is silent about infinities too
    def choose(
        self, logits: Mapping[str, Array], observation: Mapping[str, Array], how: How
    ) -> dict[str, Array] | None:
        """Head -> [B, ...] actions, or None where this is left to the distributions themselves.

        Args:
            logits: Head -> [B, L] outputs of the network.
            observation: Name -> [B, ...], for masks.
            how: Whether to take the most likely action, the temperature, and the source of randomness.
        """
        _, temperature, generator = how
        if not temperature > 0 or (generator is not None and generator.device.type != "cpu"):
            return None
        action = {}
        for head, choose, space, shape, mask_name in self._heads:
            array, mask = logits[head], None if mask_name is None else observation[mask_name]
            if choose is None or array.shape[1:] != shape or (mask is not None and mask.shape != array.shape):
                return None
            if temperature != 1.0 and choose is not _gaussian:
                array = array / float(temperature)
            action[head] = choose(array, mask, space, how)
        return action


def numpy_views(tensors: Mapping[str, Tensor]) -> dict[str, Array] | None:
    """The tensors as arrays, None if that would move or convert them."""
    if any(tensor.device.type != "cpu" or tensor.dtype not in _TORCH_TYPES.values() for tensor in tensors.values()):
        return None
    return {name: tensor.numpy() for name, tensor in tensors.items()}


class NumpyNetwork:
    """Evaluates a network, where it is plain enough.

    Args:
        network: Maps a dict of observations to a dict of logits.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._plan: _Plan | None = None
        self._refused = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies start anew: the views are of the weights of this network."""
        return NumpyNetwork, (self._network,)

    def logits(self, observation: Mapping[str, Array]) -> dict[str, Array] | None:
        """The network's outputs by name, or None where torch must evaluate it.

        Args:
            observation: Name -> [B, ...].
        """
        if self._plan is None and not self._refused and not any(item.training for item in self._network.modules()):
            self._plan = _make_plan(self._network, observation)
            self._refused = self._plan is None
        return None if self._plan is None else self._plan.evaluate(observation)

    def outputs(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """The network's outputs by name where no gradient is wanted, or None where torch must evaluate it.

        Args:
            observation: Name -> [B, ...], as the network takes them.
        """
        foreign = (tensor.device.type != "cpu" or tensor.dtype == torch.bfloat16 for tensor in observation.values())
        if self._refused or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or any(foreign):
            return None
        arrays = self.logits({name: tensor.numpy() for name, tensor in observation.items()})
        return None if arrays is None else {name: torch.from_numpy(array) for name, array in arrays.items()}


class _Unsupported(Exception):
    """A network does something that is not computed here."""


def _make_plan(network: nn.Module, observation: Mapping[str, Array]) -> _Plan | None:
    """Trace a network and try the result on a batch; None if it is not plain enough."""
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            plan = _Plan(network, observation)
            tensors = {name: torch.from_numpy(array.copy()) for name, array in observation.items()}
            expected = {name: value.numpy() for name, value in network(NetworkInput(network)(tensors)).items()}
        given = plan.evaluate(observation) or {}
        for name, array in expected.items():
            same = given[name].dtype == array.dtype in _TORCH_TYPES and given[name].shape == array.shape
            if not same or not np.allclose(given[name], array, rtol=1e-4, atol=1e-5, equal_nan=True):
                return None
    except Exception:  # of any kind, since the network's own code runs: torch evaluates it, and says what is wrong
        return None
    return plan


class _Plan:
    """The operations of a network in order, and how to tell that they are still those of the network."""

    def __init__(self, network: nn.Module, observation: Mapping[str, Array]) -> None:
        modules = dict(network.named_modules())
        self._hooks = [module_globals._global_forward_hooks, module_globals._global_forward_pre_hooks]
        self._watched: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for module in modules.values():
            self._hooks += [module._forward_hooks, module._forward_pre_hooks]
            if type(module) in (nn.Sequential, nn.ModuleList, nn.ModuleDict):
                self._watched.append((module._modules, dict(module._modules)))
            elif type(module) is not nn.Linear and type(module) not in _ACTIVATIONS:
                self._watched.append((module.__dict__, _remembered(module)))
        if any(self._hooks) or any("forward" in vars(module) for module in modules.values()):
            raise _Unsupported
        dtype = next(network.parameters()).detach().numpy().dtype
        self._layers: list[_Dense] = []
        self._inputs: list[tuple[str, Any]] = []
        self._steps: list[tuple[Operation, Callable[[list[Array]], Any]]] = []
        places: dict[fx.Node, int] = {}
        for node in _Tracer(observation).trace(network).nodes:
            if node.op == "output":
                self._outputs = {name: places[value] for name, value in node.args[0].items()}
                continue
            if node.op == "placeholder":
                given = observation[node.target].dtype
                self._inputs.append((node.target, dtype if given.kind == "f" else given))
            else:
                sources = node.args[0] if isinstance(node.args[0], list | tuple) else node.args[:1]
                operation = self._operation(node, modules)
                self._steps.append((operation, itemgetter(*(places[source] for source in sources))))
            places[node] = len(places)

    def _operation(self, node: fx.Node, modules: Mapping[str, nn.Module]) -> Operation:
        """What a node computes from its first argument."""
        if node.op != "call_module":
            return _FUNCTIONS[node.target](*node.args[1:], **node.kwargs)
        module = modules[str(node.target)]
        if type(module) is nn.Linear:
            self._layers.append(_Dense(module))
            return self._layers[-1]
        return _identity if type(module) is nn.Dropout else _ACTIVATIONS[type(module)](module)

    def evaluate(self, observation: Mapping[str, Array]) -> dict[str, Array] | None:
        """The outputs by name, None if the network is not the one that was traced."""
        if any(self._hooks):
            return None
        try:
            for state, remembered in self._watched:
                if state != remembered:
                    return None
        except (RuntimeError, ValueError):  # an attribute has become a tensor or an array
            return None
        for layer in self._layers:
            if not layer.is_current():
                return None
        values = []
        for name, dtype in self._inputs:
            array = observation[name]
            if array.dtype != dtype and not array.dtype.kind == dtype.kind == "f":
                return None
            values.append(array if array.dtype == dtype else array.astype(dtype))
        for operation, source in self._steps:
            values.append(operation(source(values)))
        return {name: values[place] for name, place in self._outputs.items()}


class _Dense:
    """A dense layer on views of its weights."""

    def __init__(self, layer: nn.Linear) -> None:
        self._parameters = layer._parameters
        self._pointers = (0, 0)
        self._kind = layer.weight.shape, layer.weight.dtype

    def is_current(self) -> bool:
        """Look the weights up where they have moved; False if they are not what they were."""
        weight, bias = self._parameters.get("weight"), self._parameters.get("bias")
        if weight is None or bias is None:
            return False
        pointers = weight.data_ptr(), bias.data_ptr()
        if pointers != self._pointers:
            if weight.device.type != "cpu" or (weight.shape, weight.dtype) != self._kind:
                return False
            self._weight, self._bias = weight.detach().numpy().T, bias.detach().numpy()
            self._pointers = pointers
        return True

    def __call__(self, x: Array) -> Any:
        result = x.dot(self._weight)
        result += self._bias
        return result


class _Known(fx.Proxy):
    """An observation, or what is made of some, while a network is traced; whether it is of floats is known."""

    def is_floating_point(self) -> bool:
        """As for a tensor."""
        return bool(self.node.meta["is_floating_point"])


class _Tracer(fx.Tracer):
    """Traces a network that takes a dict of observations."""

    def __init__(self, observation: Mapping[str, Array]) -> None:
        super().__init__()
        self._observation = observation

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
        """The network's function, the network and the observations."""
        inputs = {name: _Known(self.create_node("placeholder", name, (), {}), self) for name in self._observation}
        for name, proxy in inputs.items():
            proxy.node.meta["is_floating_point"] = self._observation[name].dtype.kind == "f"
        return root_fn, [self.root, inputs]

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """What layers give, or functions that keep the type of what they know."""
        known = [source.meta.get("is_floating_point") for source in node.all_input_nodes]
        if node.op != "call_module" and (None in known or node.target not in _KEEPING):
            return super().proxy(node)
        node.meta["is_floating_point"] = node.op == "call_module" or any(known)
        return _Known(node, self)


_OF_MODULES = frozenset(vars(nn.Module()))


def _remembered(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module, with copies of what may be changed in place."""
    own = {name: value for name, value in vars(module).items() if name not in _OF_MODULES}
    if module._parameters or module._buffers or not _is_constant(own):
        raise _Unsupported
    return {name: copy.copy(value) for name, value in vars(module).items()} | copy.deepcopy(own)


def _is_constant(value: Any) -> bool:
    """Whether a value is made of numbers, texts, types and functions."""
    if isinstance(value, dict):
        return all(map(_is_constant, (*value, *value.values())))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_constant, value))
    return isinstance(value, bool | int | float | str | type | torch.dtype | FunctionType | BuiltinFunctionType | None)


# ------------------------------------------------------------------------------------------------------ operations


def _identity(x: Array) -> Array:
    return x


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


_ACTIVATIONS: dict[type[nn.Module], Callable[[Any], Operation]] = {
    nn.Tanh: lambda layer: np.tanh,
    nn.ReLU: lambda layer: _relu,
    nn.Sigmoid: lambda layer: _sigmoid,
    nn.SiLU: lambda layer: lambda x: x * _sigmoid(x),
    nn.ELU: lambda layer: lambda x: np.where(x > 0, x, layer.alpha * np.expm1(np.minimum(x, _ZERO))),
    nn.LeakyReLU: lambda layer: lambda x: np.where(x > 0, x, layer.negative_slope * x),
    nn.Identity: lambda layer: _identity,
}
_KEEPING = (torch.cat, torch.concat, torch.flatten, "flatten", "unsqueeze")  # the type, or the most general one
# Options that are not known here are refused by the call.
_FUNCTIONS: dict[Any, Callable[..., Operation]] = {
    **dict.fromkeys((torch.tanh, "tanh"), lambda: np.tanh),
    **dict.fromkeys((torch.relu, functional.relu, "relu"), lambda: _relu),
    **dict.fromkeys((torch.cat, torch.concat), _concatenate),
    **dict.fromkeys((torch.flatten, "flatten"), _flatten),
    "unsqueeze": lambda dim: lambda x: np.expand_dims(x, dim),
    **dict.fromkeys(("float", "to"), _to),
}


# --------------------------------------------------------------------------------------------------- distributions
# [B, ...] actions from [B, L] logits, after temperature but for normal distributions, and [B, L] masks.

_TORCH_TYPES: dict[Any, torch.dtype] = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}
_LOWEST = {dtype: np.full((), -np.finfo(dtype).max, dtype) for dtype in _TORCH_TYPES}
_TINY = {dtype: np.full((), np.finfo(dtype).tiny, dtype) for dtype in _TORCH_TYPES}


def _uniform(like: Array, how: How) -> Any:
    return torch.rand(like.shape, generator=how[2], dtype=_TORCH_TYPES[like.dtype]).numpy()


def _allowed(logits: Array, mask: Array | None) -> Array:
    return logits if mask is None else np.where(mask != 0, logits, _LOWEST[logits.dtype])


def _categorical(logits: Array, mask: Array | None, space: Any, how: How) -> Any:
    index = _index(logits, mask, how)
    return index + int(space.start) if space.start else index


def _index(logits: Array, mask: Array | None, how: How) -> Any:
    """[B] the most likely index, or one sampled by the race of `maze_pl.distributions.categorical.sample_index`.

    With exponential e, the largest p / e is the largest log p - log e. Entries that are not allowed are far below all
    others, and among themselves in the order of their 1 / e.
    """
    if how[0]:
        return _allowed(logits, mask).argmax(-1)
    exponential = -np.log(np.maximum(_uniform(logits, how), _TINY[logits.dtype]))
    score = logits - np.log(exponential)
    if mask is not None:
        score = np.where(mask != 0, score, -1e30 * exponential)
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
    CategoricalProbabilityDistribution: _categorical,
    MultiCategoricalProbabilityDistribution: _multi_categorical,
    BernoulliProbabilityDistribution: _bernoulli,
    DiagonalGaussianProbabilityDistribution: _gaussian,
}

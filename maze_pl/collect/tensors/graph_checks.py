"""Comparisons that decide whether a recorded environment step may be used for a policy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Number = bool | int | float | str | np.generic
Numbers = Mapping[str, Number | bytes]
"""Numbers and texts, and the content of tensors, by the name of their attribute."""

_KINDS: Final = (int, float, str, np.generic)  # a tuple, as unions are slow; bool is a kind of int
_CONTAINERS: Final = (dict, list, tuple)
_REGISTERED: Final = ("_parameters", "_buffers")
_HOOKS: Final = ("_forward_pre_hooks", "_forward_hooks")


class PolicyTensor(NamedTuple):
    """A tensor of a policy or of one of its modules.

    Attributes:
        name: Place and name of its attribute, such as `networks.0.scale`.
        tensor: The tensor.
        is_plain: Whether it is neither a parameter nor a buffer.
    """

    name: str
    tensor: Tensor
    is_plain: bool


class ReadTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the memory of all tensors that operations read."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._storages: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation."""
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
                self._storages.add(_storage_of(leaf))
        return func(*args, **(kwargs or {}))

    def plain_ones(self, tensors: Collection[PolicyTensor]) -> frozenset[str]:
        """Return the names of the tensors that were read and are neither parameters nor buffers."""
        plain = [one for one in tensors if one.is_plain and one.tensor.layout is torch.strided]
        return frozenset(one.name for one in plain if _storage_of(one.tensor) in self._storages)


@dataclass
class PolicyParts:
    """Contents of the attributes of a policy and of its modules.

    Modules are also those in lists, tuples and dicts, at any depth, and in other policies that a policy has.

    Attributes:
        identities: The policy, its modules, the functions and other callables that are attributes of
            them, and the keys of all hooks.
        numbers: Numbers and texts by name.
        tensors: Parameters, buffers, and other tensors that are attributes or lie, at any depth, in
            lists, tuples and dicts that are.
    """

    identities: list[object]
    numbers: dict[str, Number]
    tensors: list[PolicyTensor]

    def names_of_plain_tensors(self) -> frozenset[str]:
        """Return the names of the tensors that are neither parameters nor buffers."""
        return frozenset(one.name for one in self.tensors if one.is_plain)

    def look_through(self, place: str, owner: Any) -> list[tuple[str, Any]]:
        """Add a policy or a module, and its attributes.

        Args:
            place: Where it was found; empty for the policy itself.
            owner: The policy or the module.

        Returns:
            The modules and policies in it, each with its place.
        """
        self.identities.append(owner)
        prefix = f"{place}." if place else ""
        found = []
        for name, value in getattr(owner, "__dict__", {}).items():
            if isinstance(value, _KINDS):
                self.numbers[prefix + name] = value
            elif isinstance(value, Tensor):
                self.tensors.append(PolicyTensor(prefix + name, value, True))
            elif name in _HOOKS:
                self.identities += value
            elif name in _REGISTERED:
                for key, tensor in value.items():
                    if tensor is not None:
                        self.tensors.append(PolicyTensor(prefix + key, tensor, False))
            elif name == "_modules":
                found += [(prefix + key, module) for key, module in value.items() if module is not None]
            elif isinstance(value, _CONTAINERS) and value:
                for inner, entry in _entries_of(value, prefix + name):
                    if isinstance(entry, Tensor):
                        self.tensors.append(PolicyTensor(inner, entry, True))
                    elif _is_owner(entry):
                        found.append((inner, entry))
            elif _is_owner(value):
                found.append((prefix + name, value))
            elif callable(value):
                self.identities.append(value)
        return found


def parts_of(policy: Any) -> PolicyParts:
    """Look through the attributes of a policy and of its modules."""
    hooks_of_all_modules: list[object] = [*torch_module._global_forward_pre_hooks, *torch_module._global_forward_hooks]
    parts = PolicyParts(hooks_of_all_modules, {}, [])
    seen: set[int] = set()
    waiting = [("", policy)]
    while waiting:
        place, owner = waiting.pop()
        if id(owner) not in seen:
            seen.add(id(owner))
            waiting += parts.look_through(place, owner)
    return parts


def _is_owner(value: object) -> bool:
    """True for a module, or another policy for a device; `isinstance` with a protocol would be slow."""
    return isinstance(value, nn.Module) or hasattr(type(value), "distribution")


def _entries_of(container: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a dict, list or tuple, and of those within it, each with its place."""
    seen: set[int] = set()
    waiting = [(place, container)]
    while waiting:
        outer, values = waiting.pop()
        if id(values) in seen:
            continue
        seen.add(id(values))
        entries = values.items() if isinstance(values, dict) else enumerate(values)
        for key, value in entries:
            if not isinstance(value, _CONTAINERS):
                yield f"{outer}[{key!r}]", value
            elif value:
                waiting.append((f"{outer}[{key!r}]", value))


def addresses_of(parts: PolicyParts, plain: Collection[str] = ()) -> list[object]:
    """Return the modules of a policy, its hooks and functions, and the addresses of its tensors.

    Args:
        parts: The parts of the policy.
        plain: Names of the tensors to consider that are neither parameters nor buffers.
    """
    considered = [one.tensor for one in parts.tensors if not one.is_plain or one.name in plain]
    return [*parts.identities, *map(_address_of, considered)]


def _address_of(tensor: Tensor) -> object:
    """Return the address and the layout of a tensor."""
    if tensor.layout is not torch.strided:
        return id(tensor)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def _storage_of(tensor: Tensor) -> int:
    """Return the address of the memory that a tensor shares with its views."""
    return tensor.untyped_storage().data_ptr()


def changing_tensors_of(policy: Any) -> dict[str, Tensor]:
    """Return the buffers and plain tensors of a policy, which may change when it acts, by name."""
    changing = {}
    for name, tensor, is_plain in parts_of(policy).tensors:
        if not isinstance(tensor, nn.Parameter) and tensor.layout is torch.strided:
            kind = "tensor" if is_plain else "buffer"
            changing[f"{kind} {name!r} of the policy"] = tensor
    return changing


def constants_of(parts: PolicyParts, device: torch.device, plain: Collection[str] | None = None) -> Numbers:
    """Return what a graph has as constants: the values that they had when it was recorded.

    Args:
        parts: The parts of the policy.
        device: Device of the graph.
        plain: Names of the tensors to consider that are neither parameters nor buffers; None for all.

    Returns:
        The attributes of the policy and of its modules that are numbers or texts, and the content of
        tensors on other devices.
    """
    constants: dict[str, Number | bytes] = dict(parts.numbers)
    for name, tensor, is_plain in parts.tensors:
        if tensor.device.type != device.type and (not is_plain or plain is None or name in plain):
            constants[name] = _content_of(tensor)
    return constants


def _content_of(tensor: Tensor) -> bytes:
    """Return the content of a tensor."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return b""
    content: bytes = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return content


def differing_number(first: Numbers, second: Numbers) -> str | None:
    """Return the name of the first value that differs or is missing, None if there is none.

    NaN equals NaN.
    """
    for name in (*first, *second):
        one, other = first.get(name), second.get(name)
        are_nan = one != one and other != other
        if one != other and not are_nan:
            return name
    return None


def replaced_tensor(
    first: Collection[PolicyTensor], second: Collection[PolicyTensor], names: Collection[str]
) -> str | None:
    """Return the first one of some names whose tensor is another one or missing; None if there is none."""
    after = {name: tensor for name, tensor, _ in second}
    for name, tensor, _ in first:
        if name in names and after.get(name) is not tensor:
            return name
    return None


def differing_tensor(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor that differs by more than rounding; None for no tensor."""
    for name, tensor in first.items():
        if not torch.equal(tensor, second[name]) and not _is_close(tensor, second[name]):
            return name
    return None


def _is_close(first: Tensor, second: Tensor) -> bool:
    """True if real numbers are equal but for rounding; whole numbers and flags must be equal."""
    if not first.is_floating_point():
        return False
    return torch.allclose(first.double(), second.double(), rtol=1e-4, atol=1e-5, equal_nan=True)

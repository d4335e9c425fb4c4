"""Content of checkpoints that `torch.load` reads with `weights_only=True`: tensors and plain values."""

import io
from collections import OrderedDict
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

_PLAIN: Final = {type(None), bool, int, float, complex, str, bytes}
_TENSORS: Final = {Tensor, torch.nn.Parameter}


def readable(value: Any, name: str) -> Any:
    """Return a value that a checkpoint may hold, with Python numbers instead of NumPy's.

    Args:
        value: The value; it is not changed, and returned as it is if it holds no numbers of NumPy.
        name: Name of the value in messages.

    Raises:
        ValueError: It holds an object that could not be read again, or itself; the message names it.
    """
    try:
        return _readable(value, name)
    except RecursionError:
        raise ValueError(f"{name} of the checkpoint contains itself, or is nested too deeply") from None


def _readable(value: Any, name: str) -> Any:
    """Return a readable value; the same object if nothing differs."""
    kind = type(value)
    if kind in _PLAIN or kind in _TENSORS:
        return value
    if isinstance(value, np.generic):
        number = value.item()
        if type(number) in _PLAIN:
            return number
    if kind in (dict, OrderedDict):
        keys = _entries(list(value), f"a key of {name}")
        items = [_readable(item, f"{name}[{key!r:.80}]") for key, item in value.items()]
        is_same = all(one is key for one, key in zip(keys, value, strict=True))
        if is_same and all(one is item for one, item in zip(items, value.values(), strict=True)):
            return value
        rebuilt = kind(zip(keys, items, strict=True))
        if kind is OrderedDict:
            vars(rebuilt).update(vars(value))  # for example, the _metadata of torch
        return rebuilt
    if kind in (list, tuple, set):
        given = list(value) if kind is set else value
        items = _entries(given, name)
        return value if items is given else kind(items)
    if not _can_be_read(value):
        came = f"{name} of the checkpoint is a {kind.__module__}.{kind.__qualname__}"
        remedy = "hold numbers, strings, tensors, and lists, tuples, dicts and sets of them instead"
        raise ValueError(f"{came}, with which its file could not be read again: {remedy}")
    return value


def _entries(values: Any, name: str) -> Any:
    """Return the readable values of a list or tuple; the same object if nothing differs."""
    if _PLAIN.issuperset(map(type, values)):  # for example, a long list of numbers
        return values
    entries = [_readable(one, f"{name}[{place}]") for place, one in enumerate(values)]
    return values if all(one is old for one, old in zip(entries, values, strict=True)) else entries


def _can_be_read(value: Any) -> bool:
    """True if an object can be written and read, as the few classes that torch trusts."""
    file = io.BytesIO()
    try:
        torch.save(value, file)
        file.seek(0)
        torch.load(file, map_location="cpu", weights_only=True)
    except Exception:  # torch and the methods of the object raise all kinds of errors
        return False
    return True

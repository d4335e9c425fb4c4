"""Kinds of objects that a loss may read, by how their changes are noticed, and names that cannot be followed."""

from __future__ import annotations

import re
import types
from collections import OrderedDict, defaultdict, deque
from enum import Enum
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch._ops import OpOverload, OpOverloadPacket

from maze_pl.modules.optimization.watch import PLAIN

LARGEST_ARRAY = 2**20
"""Maximum size in bytes of a NumPy array that is compared with a copy."""
LARGEST_CONTAINER = 10_000
"""Maximum number of entries of a container that is compared with a copy."""


class _Pair(NamedTuple):
    first: int


CONSTANT = (
    *(*PLAIN, Enum, range, slice, type(Ellipsis), type(NotImplemented), np.dtype, np.ufunc),
    *(torch.dtype, torch.Size, torch.layout, torch.memory_format, OpOverload, OpOverloadPacket),
    *(types.GenericAlias, types.UnionType, TypeVar, types.CodeType, re.Pattern),
    type(_Pair.first),  # a field of a class of named tuples
)
"""Kinds of values that never change."""
CONTAINERS = (dict, list, tuple, set, frozenset, deque, types.MappingProxyType)
"""Kinds of containers, whose entries are compared."""
BASES = (
    object,
    *CONTAINERS[:-1],
    OrderedDict,
    defaultdict,
    *PLAIN,
    Exception,
    BaseException,
    torch._C.TensorBase,
)
"""Base classes in C that add no state, or state that is watched."""
C_FUNCTIONS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
"""Kinds of functions in C."""
C_MODULES = {
    "builtins",
    "math",
    "cmath",
    "_operator",
    "_functools",
    "_collections",
    "itertools",
    "numpy",
    "torch",
}
"""Modules in C whose functions depend on their arguments only, or on state that traces see."""
IMPURE = {
    "input",
    "open",
    "print",
    "eval",
    "exec",
    "vars",
    "globals",
    "locals",
    "breakpoint",
    "compile",
    "id",
    "dir",
}
"""Functions whose results depend on more than their arguments."""
BY_NAME = {"getattr", "setattr", "delattr", "hasattr"}
"""Functions that read attributes by name, which can be followed if the name is a constant."""
INDIRECT = {
    "__dict__",
    "__getattribute__",
    "attrgetter",
    "methodcaller",
    "_getframe",
    "currentframe",
    "settrace",
}
"""Attributes and functions that lead to values in ways that cannot be followed."""

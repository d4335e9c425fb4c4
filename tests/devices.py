"""Devices that tests are repeated on, and a mode that finds operations which would wait for one.

Tests marked `cuda` are collected only where there is such a device.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


class NoHostReads(TorchDispatchMode):
    """Refuses operations for which the host would wait for a GPU, on any device, also without one.

    These are operations that return numbers, or whose shape depends on values, and copies between
    devices.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.data_dependent_output in func.tags:
            raise AssertionError(f"{func} returns a number")
        if torch.Tag.dynamic_output_shape in func.tags and not _has_fixed_shape(func, args):
            raise AssertionError(f"the shape of {func} depends on values")
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and func.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.copy_):
            devices = {leaf.device for leaf in tree_leaves((args, result)) if isinstance(leaf, Tensor)}
            if len(devices) > 1:
                raise AssertionError(f"{func} copies between {sorted(map(str, devices))}")
        return result


def _has_fixed_shape(func: Any, args: Any) -> bool:
    """True for an index that holds no flags."""
    if func.overloadpacket is not torch.ops.aten.index:
        return False
    return not any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])

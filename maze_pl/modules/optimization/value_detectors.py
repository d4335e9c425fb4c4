"""Detection of Python values that a loss takes out of tensors, which a trace would keep forever."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Refuse = Callable[[str], None]
"""Function that takes the reason why a loss is not traced."""

_TO_PYTHON = {
    "numpy",
    "tolist",
    "item",
    "__array__",
    "__dlpack__",
    "data_ptr",
    "untyped_storage",
    "storage",
}


class NumberDetector(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Detects operations that turn tensors into Python numbers."""

    def __init__(self, refuse: Refuse) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._refuse = refuse

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.data_dependent_output in func.tags:
            reason = f"computing the loss takes numbers out of tensors ({func})"
            if torch.is_anomaly_enabled():
                reason = "anomaly detection (detect_anomaly=True) looks for NaN in the gradients of each update"
            self._refuse(reason)
        return func(*args, **(kwargs or {}))


class ValueDetector(TorchFunctionMode):
    """Detects tensor methods whose result is not a tensor."""

    def __init__(self, refuse: Refuse) -> None:
        super().__init__()
        self._refuse = refuse

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _TO_PYTHON:
            self._refuse(f"computing the loss takes values out of tensors ({func.__name__})")
        return func(*args, **(kwargs or {}))

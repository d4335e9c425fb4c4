"""Names of the operations of torch that a function calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class _Noting(TorchDispatchMode):
    """Notes the name of each operation.

    Attributes:
        names: The names, such as "aten.add.Tensor", in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def operations_of(function: Callable[[], object]) -> list[str]:
    """Call a function, and return the names of the operations that it calls, such as "aten.add.Tensor"."""
    with _Noting() as noting:
        function()
    return noting.names

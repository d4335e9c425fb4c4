"""Operations that torch refuses on a CUDA device in its deterministic mode, refused on any device."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class RefuseCumulativeSums(TorchDispatchMode):
    """Refuses cumulative sums and products of floats: their order of addition on a GPU is not fixed."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2].rstrip("_")
        summands = args[0] if args else None
        if name in ("cumsum", "cumprod") and isinstance(summands, Tensor) and summands.is_floating_point():
            raise RuntimeError(f"{name}_cuda_kernel does not have a deterministic implementation")
        return func(*args, **(kwargs or {}))

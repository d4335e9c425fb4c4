"""What all building blocks have in common: names and shapes of what goes in and comes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

Keys = str | Sequence[str]
"""Name or names of tensors."""

Shapes = Sequence[int | Sequence[int]]
"""The shape of a single tensor, or one for each of several; without leading dimensions."""


class PerceptionBlock(nn.Module, ABC):
    """A module that reads some entries of a dict of tensors and gives a dict of new ones.

    Shapes leave out the leading dimensions, of which there may be any number.

    Args:
        in_keys: Name or names of the tensors that go in.
        out_keys: Name or names of the tensors that come out.
        in_shapes: The shape of the tensor that goes in, or one for each of `in_keys`.

    Raises:
        ValueError: There is not one shape for each of `in_keys`.
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes) -> None:
        super().__init__()
        self.in_keys = [in_keys] if isinstance(in_keys, str) else list(in_keys)
        self.out_keys = [out_keys] if isinstance(out_keys, str) else list(out_keys)
        several = [tuple(shape) for shape in in_shapes if not isinstance(shape, int)]
        single = tuple(size for size in in_shapes if isinstance(size, int))
        self.in_shapes: list[tuple[int, ...]] = several if several else [single]
        if len(self.in_shapes) != len(self.in_keys) or (several and single):
            raise ValueError(f"{type(self).__name__}: in_shapes={in_shapes} for in_keys={self.in_keys}, one for each")

    @abstractmethod
    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of `out_keys` from a dict that has those of `in_keys`, [..., *shape] each."""

    def out_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of what comes out, found by running the block on zeros as it acts when it does not learn."""
        like = next(self.parameters(), torch.empty(0))
        zeros = {
            key: torch.zeros(2, *shape, dtype=like.dtype, device=like.device)
            for key, shape in zip(self.in_keys, self.in_shapes, strict=True)
        }
        training = [module for module in self.modules() if module.training]
        self.eval()
        try:
            with torch.no_grad():
                output = self(zeros)
        finally:
            for module in training:
                module.training = True
        return [tuple(output[key].shape[1:]) for key in self.out_keys]

    def require(self, good: bool, expected: str) -> None:
        """Refuse what a block cannot work with.

        Raises:
            ValueError: Naming the block, its keys and shapes, and what it expects.
        """
        if not good:
            inputs = ", ".join(f"{key!r} {shape}" for key, shape in zip(self.in_keys, self.in_shapes, strict=True))
            raise ValueError(f"{type(self).__name__} from {inputs} to {self.out_keys}: expected {expected}")

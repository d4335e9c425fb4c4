"""What all building blocks have in common: names and shapes of what goes in and comes out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from maze_pl.core.policy import evaluation_mode

Keys = str | Sequence[str]
"""Name or names of tensors."""

Shapes = Sequence[int | Sequence[int]]
"""The shape of a single tensor, or one for each of several; without leading dimensions."""


class PerceptionBlock(nn.Module, ABC):
    """A module that reads some entries of a dict of tensors and gives a dict of new ones.

    Shapes leave out the leading dimensions, of which there may be any number: a network that is built once acts for
    one environment [...], for a batch of them [B, ...], and learns from a rollout [T, B, ...].

    Args:
        in_keys: Name or names of the tensors that go in.
        out_keys: Name or names of the tensors that come out.
        in_shapes: The shape of the tensor that goes in, or one for each of `in_keys`.

    Raises:
        ValueError: There is not one shape for each of `in_keys`.
    """

    _out_shapes: list[tuple[int, ...]] | None = None  # once the block has run

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes) -> None:
        super().__init__()
        self.in_keys = [in_keys] if isinstance(in_keys, str) else list(in_keys)
        self.out_keys = [out_keys] if isinstance(out_keys, str) else list(out_keys)
        several = [tuple(map(int, shape)) for shape in in_shapes if not isinstance(shape, int | np.integer)]
        single = tuple(int(size) for size in in_shapes if isinstance(size, int | np.integer))
        self.in_shapes: list[tuple[int, ...]] = several if several else [single]
        if len(self.in_shapes) != len(self.in_keys) or (several and single):
            raise ValueError(f"{type(self).__name__}: in_shapes={in_shapes} for in_keys={self.in_keys}, one for each")

    @abstractmethod
    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of `out_keys` from a dict that has those of `in_keys`, [..., *shape] each."""

    def out_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of what comes out, found by running the block on zeros as it acts when it does not learn.

        That changes nothing: neither what batch normalisation has learned, nor training mode, nor random numbers.
        """
        if self._out_shapes is not None:
            return list(self._out_shapes)
        held = [*self.parameters(), *self.buffers()]
        device = held[0].device if held else torch.empty(0).device
        dtype = next((tensor.dtype for tensor in held if tensor.is_floating_point()), torch.get_default_dtype())
        inputs = zip(self.in_keys, self.in_shapes, strict=True)
        zeros = {key: torch.zeros(2, *shape, dtype=dtype, device=device) for key, shape in inputs}
        with evaluation_mode(self), torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
            output = self(zeros)
        good = isinstance(output, Mapping) and output.keys() >= {*self.out_keys}
        self.require(good, f"a dict with {self.out_keys} from forward, not {output}")
        self._out_shapes = [tuple(output[key].shape[1:]) for key in self.out_keys]
        return list(self._out_shapes)

    def require(self, good: bool, expected: str) -> None:
        """Refuse what a block cannot work with.

        Raises:
            ValueError: Naming the block, its keys and shapes, and what it expects.
        """
        if not good:
            inputs = ", ".join(f"{key!r} {shape}" for key, shape in zip(self.in_keys, self.in_shapes, strict=True))
            raise ValueError(f"{type(self).__name__} from {inputs} to {self.out_keys}: expected {expected}")

    def require_single(self, num_dims: int) -> None:
        """Refuse all but one input of at least `num_dims` dimensions and one output."""
        good = len(self.in_keys) == len(self.out_keys) == 1 and len(self.in_shapes[0]) >= num_dims
        self.require(good, f"one input with at least {num_dims} dimension{'s' * (num_dims > 1)} and one output")

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

Dims = int | Sequence[int]
"""A number of dimensions for all tensors, or one for each."""


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
        if not (isinstance(output, Mapping) and output.keys() >= {*self.out_keys}):
            self.require(False, f"a dict with {self.out_keys} from forward, not {output}")
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


class ShapeNormalizationBlock(PerceptionBlock, ABC):
    """Folds all leading dimensions into one before `normalized_forward`, and unfolds them again afterwards.

    Shapes may have more dimensions than `in_num_dims` tells, such as those of a stack of observations. They count as
    leading ones: an image block of (C, H, W) gives (K, n) for (K, C, H, W), and its `out_shapes()` says so.

    Args:
        in_keys: Name or names of the tensors that go in.
        out_keys: Name or names of the tensors that come out.
        in_shapes: The shape of the tensor that goes in, or one for each of `in_keys`.
        in_num_dims: Dimensions that `normalized_forward` expects, the batch included; one number for all of `in_keys`
            or one for each.
        out_num_dims: The same for what it gives.

    Raises:
        ValueError: A shape has too few dimensions, or those that shapes have in addition differ.
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, in_num_dims: Dims, out_num_dims: Dims) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.in_num_dims = [in_num_dims] * len(self.in_keys) if isinstance(in_num_dims, int) else list(in_num_dims)
        self.out_num_dims = [out_num_dims] * len(self.out_keys) if isinstance(out_num_dims, int) else list(out_num_dims)
        counts = len(self.in_num_dims) == len(self.in_keys) and len(self.out_num_dims) == len(self.out_keys)
        self.require(counts, f"as many numbers as keys; got {in_num_dims=}, {out_num_dims=}")
        expected = [number - 1 for number in self.in_num_dims]
        several = list(zip(self.in_shapes, expected, strict=True))
        extra = {shape[: len(shape) - number] for shape, number in several}
        good = all(len(shape) >= number for shape, number in several) and len(extra) == 1
        self.require(good, f"shapes of {expected} dimensions, or of more that are the same for all")

    @abstractmethod
    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of `out_keys` [B, ...] from those of `in_keys` [B, *shape]."""

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of `out_keys` from a dict that has those of `in_keys`, [..., *shape] each."""
        tensors = {key: block_input[key] for key in self.in_keys}
        first = tensors[self.in_keys[0]]
        leading = first.shape[: first.dim() + 1 - self.in_num_dims[0]]
        if (n := len(leading)) == 1:
            return self.normalized_forward(tensors)
        folded = {key: tensor.flatten(0, n - 1) if n else tensor.unsqueeze(0) for key, tensor in tensors.items()}
        output = self.normalized_forward(folded)
        return {key: tensor.reshape((*leading, *tensor.shape[1:])) for key, tensor in output.items()}


class TorchModelBlock(ShapeNormalizationBlock):
    """Any module that takes a dict of tensors [B, ...] and gives one, for any number of leading dimensions.

    Args:
        in_keys: Name or names of the tensors that go in; the module is given these.
        out_keys: Name or names of the tensors that come out; the module may give more, which are left out.
        in_shapes: The shape of the tensor that goes in, or one for each of `in_keys`.
        in_num_dims: Dimensions of what the module takes, the batch included; one number for all of `in_keys` or one
            for each.
        out_num_dims: The same for what it gives.
        net: The module.

    Raises:
        ValueError: The module does not give what it should.

    Example:
        >>> class Doubled(nn.Module):
        ...     def forward(self, tensors):
        ...         return {"doubled": 2 * tensors["observation"]}
        >>> block = TorchModelBlock("observation", "doubled", [4], in_num_dims=2, out_num_dims=2, net=Doubled())
        >>> block.out_shapes()
        [(4,)]
    """

    def __init__(
        self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, in_num_dims: Dims, out_num_dims: Dims, net: nn.Module
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes, in_num_dims, out_num_dims)
        self.net = net

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of `out_keys` [B, ...] from those of `in_keys` [B, *shape]."""
        output = self.net(block_input)
        given = {key: output[key].dim() for key in self.out_keys if key in output}
        wanted = dict(zip(self.out_keys, self.out_num_dims, strict=True))
        self.require(given == wanted, f"tensors of {wanted} dimensions from {type(self.net).__name__}, got {given}")
        return {key: output[key] for key in self.out_keys}

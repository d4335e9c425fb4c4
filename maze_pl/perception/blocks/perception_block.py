"""Base classes of building blocks, which handle names and shapes of inputs and outputs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from maze_pl.core.class_path import import_class
from maze_pl.core.policy import evaluation_mode

Keys = str | Sequence[str]
"""Name or names of tensors."""

Shapes = Sequence[int | Sequence[int]]
"""The shape of a single tensor, or a list with one shape per tensor; without leading dimensions."""

Dims = int | Sequence[int]
"""A number of dimensions for all tensors, or one for each."""


def as_keys(keys: Keys, where: str) -> list[str]:
    """Return names as a list.

    Args:
        keys: One name, or several.
        where: Block and option of the names, for the message.

    Raises:
        ValueError: `keys` is not a name or a list of names.
    """
    several = [keys] if isinstance(keys, str) else keys
    if not (is_list(several) and len(several) and all(isinstance(key, str) for key in several)):
        raise ValueError(f"{where}={keys!r}: expected a name or a list of names")
    return list(several)


def _as_shapes(shapes: Shapes, where: str) -> list[tuple[int, ...]]:
    """Return shapes as tuples; a single shape need not be in a list."""
    several: Any = shapes if is_list(shapes) and any(map(is_list, shapes)) else [shapes]
    if not all(map(_is_shape, several)):
        expected = "a shape, such as [3, 64, 64], or a list of shapes"
        raise ValueError(f"{where}={shapes!r}: expected {expected}")
    return [tuple(map(int, shape)) for shape in several]


def _is_shape(shape: Any) -> bool:
    """Return whether this is a list of sizes of at least 0."""
    return is_list(shape) and all(is_whole(size, 0) for size in shape)


def is_list(values: Any) -> bool:
    """True if values are a list, a tuple, an array or the like."""
    return isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)


def is_whole(value: Any, least: int | None = None) -> bool:
    """True if a value is a whole number and, if `least` is given, at least that."""
    is_number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_number and (least is None or value >= least)


class PerceptionBlock(nn.Module, ABC):
    """A module that reads entries of a dict of tensors and returns a dict of new ones.

    Shapes do not include leading dimensions, of which there may be any number: the same network
    acts in one environment [...] and in a batch of environments [B, ...], and learns from a rollout
    [T, B, ...].

    Args:
        in_keys: Name or names of the input tensors.
        out_keys: Name or names of the output tensors.
        in_shapes: The shape of the input, or one shape for each of `in_keys`.

    Raises:
        ValueError: Keys are not names, or there is not one shape for each of `in_keys`.
    """

    takes_numbers: ClassVar[bool] = False
    """True if templates pass categories and scalars as they are, not as (one-hot) vectors."""

    _out_shapes: list[tuple[int, ...]] | None = None  # set when the block has run once

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes) -> None:
        super().__init__()
        name = type(self).__name__
        self.in_keys = as_keys(in_keys, f"{name}: in_keys")
        self.out_keys = as_keys(out_keys, f"{name}: out_keys")
        self.in_shapes = _as_shapes(in_shapes, f"{name}: in_shapes")
        if len(self.in_shapes) != len(self.in_keys):
            found = f"in_shapes={in_shapes} for in_keys={self.in_keys}"
            raise ValueError(f"{name}: {found}, expected one for each")

    if TYPE_CHECKING:

        def __call__(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
            """See `forward`; `nn.Module` does not declare the result of a call."""

    @abstractmethod
    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Map a dict with the tensors of `in_keys` to those of `out_keys`, [..., *shape] each."""

    def out_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the outputs, found by running the block on zeros in evaluation mode.

        This has no side effects: batch-normalisation statistics, training mode and random
        generators stay the same.
        """
        if self._out_shapes is not None:
            return list(self._out_shapes)
        held = [*self.parameters(), *self.buffers()]
        device = held[0].device if held else torch.empty(0).device
        dtype = next(
            (tensor.dtype for tensor in held if tensor.is_floating_point()),
            torch.get_default_dtype(),
        )
        inputs = zip(self.in_keys, self.in_shapes, strict=True)
        zeros = {key: torch.zeros(2, *shape, dtype=dtype, device=device) for key, shape in inputs}
        with (
            evaluation_mode(self),
            torch.no_grad(),
            torch.random.fork_rng([device] if device.type == "cuda" else []),
        ):
            output = self(zeros)
        if not (isinstance(output, Mapping) and output.keys() >= {*self.out_keys}):
            self.require(False, f"a dict with {self.out_keys} from forward, not {output}")
        self._out_shapes = [tuple(output[key].shape[1:]) for key in self.out_keys]
        return list(self._out_shapes)

    def require(self, good: bool, expected: str) -> None:
        """Raise an error unless a condition holds.

        Raises:
            ValueError: `good` is false; the message names the block, its keys and shapes, and what
                it expects.
        """
        if not good:
            pairs = zip(self.in_keys, self.in_shapes, strict=True)
            inputs = ", ".join(f"{key!r} {shape}" for key, shape in pairs)
            block = f"{type(self).__name__} from {inputs} to {self.out_keys}"
            raise ValueError(f"{block}: expected {expected}")

    def require_numbers(self, least: int | None = 1, **options: int) -> None:
        """Refuse options that are not whole numbers, or that are below `least` unless it is None."""
        for name, value in options.items():
            self.require(is_whole(value, least), f"{name} to be {_numbers(least)}, not {value!r}")

    def require_lists(self, least: int | None = 1, **options: Sequence[int]) -> None:
        """Refuse options that are not lists of whole numbers of at least `least`."""
        for name, values in options.items():
            is_filled = is_list(values) and len(values) > 0
            good = is_filled and all(is_whole(value, least) for value in values)
            self.require(
                good,
                f"{name} to be a list, at least one entry, each {_numbers(least)}; not {values!r}",
            )

    def require_flags(self, **options: bool) -> None:
        """Refuse options that are neither true nor false."""
        for name, value in options.items():
            is_flag = isinstance(value, bool | np.bool_)
            self.require(is_flag, f"{name} to be true or false, not {value!r}")

    def module_class(self, **option: type[nn.Module] | str) -> type[nn.Module]:
        """Return the module class that an option gives, as a class or as its path.

        Raises:
            ValueError: The option does not give a module class.
        """
        ((name, value),) = option.items()
        return import_class(value, nn.Module, f"{type(self).__name__}: {name}: ")

    def require_single(self, num_dims: int) -> None:
        """Refuse all but one input of at least `num_dims` dimensions and one output."""
        good = len(self.in_keys) == len(self.out_keys) == 1 and len(self.in_shapes[0]) >= num_dims
        self.require(
            good,
            f"one input with at least {num_dims} dimension{'s' * (num_dims > 1)} and one output",
        )


def _numbers(least: int | None) -> str:
    return "a whole number" if least is None else f"a whole number of at least {least}"


class ShapeNormalizationBlock(PerceptionBlock, ABC):
    """Folds leading dimensions into one before `normalized_forward`, and unfolds them afterwards.

    Shapes may have more dimensions than `in_num_dims`, such as a stack of observations. Additional
    dimensions count as leading ones: an image block for (C, H, W) returns (K, n) for (K, C, H, W),
    as `out_shapes()` says.

    Args:
        in_keys: Name or names of the input tensors.
        out_keys: Name or names of the output tensors.
        in_shapes: The shape of the input, or one shape for each of `in_keys`.
        in_num_dims: Number of dimensions that `normalized_forward` expects, including the batch;
            one number for all of `in_keys` or one for each.
        out_num_dims: Number of dimensions that it returns, likewise.

    Raises:
        ValueError: A shape has too few dimensions, or the additional dimensions of the shapes
            differ.
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        in_num_dims: Dims,
        out_num_dims: Dims,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.in_num_dims = self._dims(in_num_dims, self.in_keys, "in_num_dims")
        self.out_num_dims = self._dims(out_num_dims, self.out_keys, "out_num_dims")
        one_each = len(self.in_num_dims) == len(self.in_keys)
        one_each = one_each and len(self.out_num_dims) == len(self.out_keys)
        self.require(one_each, f"as many numbers as keys; got {in_num_dims=}, {out_num_dims=}")
        expected = [number - 1 for number in self.in_num_dims]
        several = list(zip(self.in_shapes, expected, strict=True))
        extra = {shape[: len(shape) - number] for shape, number in several}
        good = all(len(shape) >= number for shape, number in several) and len(extra) == 1
        self.require(good, f"shapes of {expected} dimensions, or of more that are the same for all")

    def _dims(self, num_dims: Dims, keys: list[str], name: str) -> list[int]:
        """Return the number of dimensions for each key."""
        several = num_dims if is_list(num_dims) else [num_dims] * len(keys)
        self.require_lists(**{name: several})  # type: ignore[arg-type]
        return list(several)  # type: ignore[arg-type]

    @abstractmethod
    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of `out_keys` [B, ...], given the tensors of `in_keys` [B, *shape]."""

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Map a dict with the tensors of `in_keys` to those of `out_keys`, [..., *shape] each."""
        tensors = {key: block_input[key] for key in self.in_keys}
        first = tensors[self.in_keys[0]]
        leading = first.shape[: first.dim() + 1 - self.in_num_dims[0]]
        if (n := len(leading)) == 1:
            return self.normalized_forward(tensors)
        for key, tensor in tensors.items():  # [..., *shape] -> [B, *shape]
            tensors[key] = tensor.flatten(0, n - 1) if n else tensor.unsqueeze(0)
        output = self.normalized_forward(tensors)
        unfolded = {}
        for key, tensor in output.items():
            unfolded[key] = tensor.reshape((*leading, *tensor.shape[1:]))
        return unfolded


class TorchModelBlock(ShapeNormalizationBlock):
    """Wraps a module from dict to dict of tensors [B, ...], for any number of leading dimensions.

    Args:
        in_keys: Name or names of the input tensors; the module gets only these.
        out_keys: Name or names of the output tensors; further outputs of the module are dropped.
        in_shapes: The shape of the input, or one shape for each of `in_keys`.
        in_num_dims: Number of dimensions of the module's inputs, including the batch; one number
            for all of `in_keys` or one for each.
        out_num_dims: Number of dimensions of its outputs, likewise.
        net: The module.

    Raises:
        ValueError: The module does not return the expected tensors.

    Example:
        >>> class Doubled(nn.Module):
        ...     def forward(self, tensors):
        ...         return {"doubled": 2 * tensors["observation"]}
        >>> block = TorchModelBlock("observation", "doubled", [4], in_num_dims=2, out_num_dims=2, net=Doubled())
        >>> block.out_shapes()
        [(4,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        in_num_dims: Dims,
        out_num_dims: Dims,
        net: nn.Module,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes, in_num_dims, out_num_dims)
        self.require(isinstance(net, nn.Module), f"net to be a torch.nn.Module, not {net!r}")
        self.net = net

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of `out_keys` [B, ...], given the tensors of `in_keys` [B, *shape]."""
        output = self.net(block_input)
        is_dict = isinstance(output, Mapping)
        self.require(is_dict, f"a dict from {type(self.net).__name__}, got {type(output).__name__}")
        found = {key: output[key].dim() for key in self.out_keys if key in output}
        expected = dict(zip(self.out_keys, self.out_num_dims, strict=True))
        self.require(
            found == expected,
            f"tensors of {expected} dimensions from {type(self.net).__name__}, got {found}",
        )
        return {key: output[key] for key in self.out_keys}

"""Base class of building blocks, which handles names and shapes of inputs and outputs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from maze_pl.core.class_path import import_class
from maze_pl.core.policy import evaluation_mode
from maze_pl.perception.blocks.layer_options import Activations, ModuleClass, Normalization

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


def as_shapes(shapes: Shapes, where: str) -> list[tuple[int, ...]]:
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


def is_number(value: Any) -> bool:
    """True if a value is a finite real number."""
    is_real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_real and bool(np.isfinite(value))


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
        self.in_shapes = as_shapes(in_shapes, f"{name}: in_shapes")
        if len(self.in_shapes) != len(self.in_keys):
            found = f"in_shapes={in_shapes} for in_keys={self.in_keys}"
            raise ValueError(f"{name}: {found}, expected one for each")

    if TYPE_CHECKING:

        def __call__(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
            """See `forward`; `nn.Module` does not declare the result of a call."""

    @classmethod
    def further_keys(cls, options: Mapping[str, Any]) -> list[str]:
        """Return the names of inputs that constructor options name, such as a mask, for templates."""
        return []

    @classmethod
    def optional_keys(cls, options: Mapping[str, Any]) -> list[str]:
        """Return those of `further_keys` that some sub-steps may lack."""
        return []

    @classmethod
    def options_without(cls, options: Mapping[str, Any], missing: Sequence[str]) -> Mapping[str, Any]:
        """Return constructor options that do not name some of the optional inputs."""
        return options

    @abstractmethod
    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Map a dict with the tensors of `in_keys` to those of `out_keys`, [..., *shape] each."""

    def after_initialisation(self) -> None:
        """Set weights that have to start in a particular way, after a template has drawn all weights."""

    def out_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the outputs, found by running the block on zeros in evaluation mode.

        This has no side effects: batch-normalisation statistics, training mode and random
        generators stay the same.
        """
        if self._out_shapes is not None:
            return list(self._out_shapes)
        held = [*self.parameters(), *self.buffers()]
        device = held[0].device if held else torch.empty(0).device
        dtype = self._floating_type()
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

    def as_floats(self, numbers: Tensor) -> Tensor:
        """Convert integers, bytes and flags to the floating point type of the block.

        Floats stay as they are. The type is the one of the weights or, without weights, of the
        buffers. A block that computes without either needs a buffer, since `.to(torch.float64)`
        leaves no other trace.

        Args:
            numbers: Input of any shape and type.
        """
        return numbers if numbers.is_floating_point() else numbers.to(self._floating_type())

    def _floating_type(self) -> torch.dtype:
        """Return the type of the first weight or buffer of floats."""
        for tensor in chain(self.parameters(), self.buffers()):
            if tensor.is_floating_point():
                return tensor.dtype
        return torch.get_default_dtype()

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

    def module_class(self, **option: ModuleClass) -> type[nn.Module]:
        """Return the module class that an option gives, as a class or as its path.

        Raises:
            ValueError: The option does not give a module class.
        """
        ((name, value),) = option.items()
        return import_class(value, nn.Module, f"{type(self).__name__}: {name}: ")

    def module_classes(self, n_layers: int, **option: Activations) -> list[type[nn.Module]]:
        """Return the module class of each layer that an option gives: one for all, or one for each.

        Raises:
            ValueError: The option does not give module classes, or not one for each layer.
        """
        ((name, value),) = option.items()
        given: Any = value
        activations = [*given] if is_list(given) else [given] * n_layers
        good = len(activations) == n_layers
        self.require(good, f"{name} to be one class, or a list of {n_layers}, one for each layer; not {value!r}")
        return [self.module_class(**{name: activation}) for activation in activations]

    def require_normalization(self, normalization: Normalization | None) -> None:
        """Refuse an option `normalization` that is not "batch", "layer" or None."""
        known = normalization is None or (isinstance(normalization, str) and normalization in ("batch", "layer"))
        self.require(known, f"normalization 'batch', 'layer' or None, not {normalization!r}")

    def require_probability(self, **options: float) -> None:
        """Refuse options that are not numbers from 0 to below 1."""
        for name, value in options.items():
            self.require(is_number(value) and 0.0 <= value < 1.0, f"{name} from 0 to below 1, not {value!r}")

    def require_single(self, num_dims: int) -> None:
        """Refuse all but one input of at least `num_dims` dimensions and one output."""
        good = len(self.in_keys) == len(self.out_keys) == 1 and len(self.in_shapes[0]) >= num_dims
        self.require(
            good,
            f"one input with at least {num_dims} dimension{'s' * (num_dims > 1)} and one output",
        )


def _numbers(least: int | None) -> str:
    return "a whole number" if least is None else f"a whole number of at least {least}"

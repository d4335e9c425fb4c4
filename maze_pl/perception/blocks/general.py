"""Blocks without weights: they reshape, join, select, repeat, multiply, pool and mask tensors.

Dimensions in options refer to the shapes in `in_shapes`, without leading dimensions; negative ones
count from the right.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from maze_pl.core.class_path import import_object
from maze_pl.distributions.probability_distribution import masked_logits
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes, is_list, is_whole

PoolingFunction = Literal["mean", "sum", "max"]
"""Reduction over a dimension."""


def masked_pooling(x: Tensor, mask: Tensor | None = None, *, pooling_func: PoolingFunction, dim: int) -> Tensor:
    """Mean, sum or maximum over the elements that exist, 0 if there are none; others are ignored.

    Args:
        x: Tensor to pool, [..., N, ...].
        mask: Not 0 where an element exists; its shape is the first dimensions of `x`, up to N or
            further. None if all exist.
        dim: The dimension N, counted from the right, which is removed.

    Example:
        >>> import torch
        >>> masked_pooling(torch.tensor([1.0, 2.0, 7.0]), torch.tensor([1, 1, 0]), pooling_func="mean", dim=-1)
        tensor(1.5000)
    """
    if mask is None:
        pooled: Tensor = getattr(x, "amax" if pooling_func == "max" else pooling_func)(dim)
        return pooled
    exists = (mask != 0)[(..., *[None] * (x.dim() - mask.dim()))]
    x = torch.where(exists, x, -torch.inf if pooling_func == "max" else 0.0)
    if pooling_func == "max":
        return torch.where(exists.any(dim), x.amax(dim), 0.0)
    return x.sum(dim) if pooling_func == "sum" else x.sum(dim) / exists.sum(dim).clamp(min=1)


def _from_right(block: PerceptionBlock, option: str, index: int, size: int) -> int:
    """Return an index counted from the right, which leading dimensions require."""
    good = is_whole(index) and -size <= index < size
    block.require(good, f"{option} from {-size} to {size - 1}, not {index!r}")
    return index if index < 0 else index - size


class _OneOutputBlock(PerceptionBlock):
    """A function `func` from tensors to one tensor."""

    func: Callable[..., Tensor]

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the results of the function by the names in `out_keys`."""
        return {self.out_keys[0]: self.func(*(block_input[key] for key in self.in_keys))}


class FlattenBlock(PerceptionBlock):
    """Flattens the last dimensions into one.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        num_flatten_dims: Number of dimensions to flatten.

    Example:
        >>> FlattenBlock("screen", "vector", [3, 8, 8], num_flatten_dims=3).out_shapes()
        [(192,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, num_flatten_dims: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_numbers(num_flatten_dims=num_flatten_dims)
        self.require_single(num_flatten_dims)
        self.num_flatten_dims = num_flatten_dims

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the flattened input [..., product of the last dimensions]."""
        return {self.out_keys[0]: block_input[self.in_keys[0]].flatten(-self.num_flatten_dims)}


class CorrelationBlock(_OneOutputBlock):
    """Elementwise or dot products of two tensors along their last dimension, which has equal size.

    Dimensions are compared from left to right. Where two sizes differ and neither is 1, a dimension
    of size 1 is inserted into the tensor with fewer dimensions, or into the second one if both have
    equally many. So (n) is multiplied with each row of (N, n), and (N, n) with (M, n) gives all
    pairs (N, M, n).

    Args:
        in_keys: Names of the two inputs.
        out_keys: Name of the output.
        in_shapes: Shapes of the inputs, (..., n) each.
        reduce: Whether to sum products over the last dimension, which is then removed.

    Example:
        >>> CorrelationBlock(["unit", "units"], "similarity", [[4], [5, 4]], reduce=True).out_shapes()
        [(5,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, reduce: bool) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        two = len(self.in_keys) == 2 and len(self.out_keys) == 1
        good = two and all(self.in_shapes) and self.in_shapes[0][-1] == self.in_shapes[1][-1]
        self.require(good, "two inputs (..., n) whose last dimensions are equal, and one output")
        self.require_flags(reduce=reduce)
        first, second = _broadcast(*(shape[:-1] for shape in self.in_shapes))
        self.func = partial(_correlation, first=first, second=second, reduce=reduce)


def _broadcast(*shapes: tuple[int, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Index tuples that insert the dimensions of size 1 that the product of two tensors needs."""
    rest = [list(shape) for shape in shapes]
    indices: list[list[Any]] = [[], []]
    while any(rest):
        x, y = (sizes[0] if sizes else None for sizes in rest)
        inserted = None
        if None in (x, y) or (x != y and 1 not in (x, y)):
            inserted = 0 if len(indices[0]) + len(rest[0]) < len(indices[1]) + len(rest[1]) else 1
        for number, index in enumerate(indices):
            index.append(None if number == inserted else slice(None))
            if number != inserted:
                rest[number].pop(0)
    first, second = ((..., *index, slice(None)) for index in indices)
    return first, second


def _correlation(x: Tensor, y: Tensor, first: tuple[Any, ...], second: tuple[Any, ...], reduce: bool) -> Tensor:
    product = x[first] * y[second]
    return product.sum(-1) if reduce else product


class ConcatenationBlock(PerceptionBlock):
    """Concatenates tensors along one dimension.

    Args:
        in_keys: Names of the inputs.
        out_keys: Name of the output.
        in_shapes: Shapes of the inputs, which differ at most in `concat_dim`.
        concat_dim: The dimension of concatenation.

    Example:
        >>> ConcatenationBlock(["inventory", "screen"], "joined", [[16], [32]]).out_shapes()
        [(48,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, concat_dim: int = -1) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.concat_dim = dim = _from_right(self, "concat_dim", concat_dim, len(self.in_shapes[0]))
        others = {(len(shape), shape[:dim], shape[len(shape) + dim + 1 :]) for shape in self.in_shapes}
        good = len(others) == len(self.out_keys) == 1
        self.require(good, f"shapes that differ in dimension {concat_dim} at most, and one output")

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Concatenate the inputs in the order of `in_keys`."""
        return {self.out_keys[0]: torch.cat([block_input[key] for key in self.in_keys], self.concat_dim)}


class FunctionalBlock(PerceptionBlock):
    """Applies a function to tensors.

    Args:
        in_keys: Names of the inputs. Several inputs are passed by keyword, in any order, so their
            names must be the function's argument names; a single input is passed by position.
        out_keys: Names of the results. With one name the function returns a tensor, otherwise a
            sequence of tensors.
        in_shapes: Shapes of the inputs.
        func: The function or its path, such as "torch.tanh". It must keep leading dimensions, of
            which there may be any number.

    Raises:
        ImportError: There is no such function.
        ValueError: The function does not take arguments of these names, or does not return one
            tensor for each of `out_keys`.

    Example:
        >>> def scaled(image, brightness):
        ...     return image * brightness
        >>> FunctionalBlock(["brightness", "image"], "scaled", [[1], [8]], func=scaled).out_shapes()
        [(8,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, func: Callable[..., Any] | str) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.func = import_object(func) if isinstance(func, str) else func
        self.require(callable(self.func), f"func to be a function or its path, not {func!r}")
        self._check_arguments()

    def _check_arguments(self) -> None:
        """Refuse a function whose signature, if it has one, does not accept the keys."""
        function = self.func.forward if isinstance(self.func, nn.Module) else self.func
        try:
            signature = inspect.signature(function)
        except ValueError:  # functions written in C, such as most of torch, have none
            return
        try:
            if len(self.in_keys) == 1:
                signature.bind(None)
            else:
                signature.bind(**dict.fromkeys(self.in_keys))
        except TypeError as error:
            takes = "one argument" if len(self.in_keys) == 1 else f"the arguments {self.in_keys}, by name"
            self.require(False, f"func to take {takes}, not {signature}: {error}")

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the results of the function by the names in `out_keys`."""
        arguments = {key: block_input[key] for key in self.in_keys}
        output = self.func(**arguments) if len(arguments) > 1 else self.func(*arguments.values())
        tensors = [output] if len(self.out_keys) == 1 else list(output)
        good = len(tensors) == len(self.out_keys) and all(isinstance(tensor, Tensor) for tensor in tensors)
        self.require(good, f"func to return one tensor for each of {self.out_keys}, not {type(output).__name__}")
        return dict(zip(self.out_keys, tensors, strict=True))


class GlobalAveragePoolingBlock(_OneOutputBlock):
    """Averages each channel of an image: [..., C, H, W] to [..., C].

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input (C, H, W), or (..., C, H, W).

    Example:
        >>> GlobalAveragePoolingBlock("features", "vector", [16, 5, 5]).out_shapes()
        [(16,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(3)
        self.func = partial(torch.mean, dim=(-2, -1))


class MaskedGlobalPoolingBlock(_OneOutputBlock):
    """Mean, sum or maximum over the existing elements of one dimension, such as those of a set.

    Elements that do not exist have no effect, whatever their values; if none exists, the result is
    0.

    Args:
        in_keys: Name of the tensor to pool and, optionally, of a mask, which is 1 where an element
            exists and 0 elsewhere.
        out_keys: Name of the output.
        in_shapes: Shapes of the inputs; the mask's shape is the first dimensions of the tensor's
            shape, up to `pooling_dim` or further.
        pooling_func: "mean", "sum" or "max".
        pooling_dim: The dimension to pool, which is then removed.

    Example:
        >>> import torch
        >>> block = MaskedGlobalPoolingBlock(["set", "mask"], "vector", [[3, 1], [3]], "mean", pooling_dim=-2)
        >>> block({"set": torch.tensor([[1.0], [3.0], [8.0]]), "mask": torch.tensor([1, 1, 0])})["vector"]
        tensor([2.])
    """

    def __init__(
        self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, pooling_func: PoolingFunction, pooling_dim: int
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require(len(self.in_keys) <= 2 and len(self.out_keys) == 1, "one input or input and mask, and one output")
        known = pooling_func in ("mean", "sum", "max")
        self.require(known, f"pooling_func 'mean', 'sum' or 'max', not {pooling_func!r}")
        shape, mask = self.in_shapes[0], self.in_shapes[-1]
        dim = _from_right(self, "pooling_dim", pooling_dim, len(shape))
        fits = shape[: len(mask)] == mask and len(mask) > len(shape) + dim
        self.require(fits, f"a mask of the first dimensions of {shape}, dimension {pooling_dim} included")
        self.func = partial(masked_pooling, pooling_func=pooling_func, dim=dim)


class MultiIndexSlicingBlock(PerceptionBlock):
    """Selects several entries of one dimension.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        select_dim: The dimension to select from.
        select_idxs: Indices in the order of the output; negative ones count from the end.

    Example:
        >>> MultiIndexSlicingBlock("state", "angles", [6], select_dim=-1, select_idxs=[1, -1]).out_shapes()
        [(2,)]
    """

    def __init__(
        self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, select_dim: int, select_idxs: Sequence[int]
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        self.select_dim = _from_right(self, "select_dim", select_dim, len(self.in_shapes[0]))
        size = self.in_shapes[0][self.select_dim]
        self.require_lists(None, select_idxs=select_idxs)
        indices = [_from_right(self, "select_idxs", index, size) + size for index in select_idxs]
        self.select_idxs = nn.Buffer(torch.tensor(indices), persistent=False)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the input with only the selected entries in `select_dim`."""
        return {self.out_keys[0]: block_input[self.in_keys[0]].index_select(self.select_dim, self.select_idxs)}


class OneHotBlock(PerceptionBlock):
    """One-hot encoding of categories: integers [..., *shape] to vectors [..., total].

    The vectors of several integers, as in a MultiDiscrete, are concatenated. An integer that is not
    a category becomes zeros.

    Args:
        in_keys: Name of the input, integers.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        n_categories: Number of categories; for several integers a list with one number each, row by
            row.
        start: The first category; one for all integers, or a list with one each.

    Example:
        >>> block = OneHotBlock("direction", "vector", [], n_categories=4)
        >>> block({"direction": torch.tensor(2)})["vector"]
        tensor([0., 0., 1., 0.])
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        n_categories: int | Sequence[int],
        start: int | Sequence[int] = 0,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(0)
        self._n_dims = len(self.in_shapes[0])
        n_numbers = math.prod(self.in_shapes[0])
        counts: list[Any] = [*n_categories] if is_list(n_categories) else [n_categories]  # type: ignore[misc]
        starts: list[Any] = [*start] if is_list(start) else [start] * len(counts)  # type: ignore[misc]
        self.require_lists(n_categories=counts)
        self.require_lists(None, start=starts)
        one_each = len(counts) == len(starts) == n_numbers
        self.require(one_each, f"n_categories and start for each of {n_numbers} numbers, not {counts} and {starts}")
        levels = [torch.arange(first, first + n) for first, n in zip(starts, counts, strict=True)]
        self.levels = nn.Buffer(torch.cat(levels), persistent=False)
        self.source = nn.Buffer(torch.arange(n_numbers).repeat_interleave(torch.tensor(counts)), persistent=False)
        self.one = nn.Buffer(torch.ones(()), persistent=False)  # has the type of the network

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return one-hot vectors [..., total number of categories]."""
        numbers = block_input[self.in_keys[0]]
        flat = numbers.flatten(-self._n_dims) if self._n_dims else numbers.unsqueeze(-1)
        chosen = flat.long().index_select(-1, self.source) == self.levels
        return {self.out_keys[0]: chosen.to(self.one.dtype)}


class RepeatToMatchBlock(_OneOutputBlock):
    """Repeats a tensor along a dimension of size 1 to match another tensor's size.

    Args:
        in_keys: Names of the tensor to repeat and of the tensor to match.
        out_keys: Name of the output.
        in_shapes: Shapes of the inputs.
        repeat_at_idx: The dimension in both tensors; its size in the first is 1.

    Example:
        >>> RepeatToMatchBlock(["game", "units"], "game_per_unit", [[1, 8], [5, 3]], repeat_at_idx=-2).out_shapes()
        [(5, 8)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, repeat_at_idx: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require(len(self.in_keys) == 2 and len(self.out_keys) == 1, "two inputs and one output")
        dim, match_dim = (_from_right(self, "repeat_at_idx", repeat_at_idx, len(shape)) for shape in self.in_shapes)
        is_single = self.in_shapes[0][dim] == 1
        self.require(is_single, f"a first input of size 1 in dimension {repeat_at_idx}, where it is repeated")
        self.func = partial(_repeated, dim=dim, match_dim=match_dim)


def _repeated(x: Tensor, match: Tensor, dim: int, match_dim: int) -> Tensor:
    return x.repeat_interleave(match.shape[match_dim], dim)


class SlicingBlock(_OneOutputBlock):
    """Selects one entry of a dimension, which is then removed.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        slice_dim: The dimension to select from.
        slice_idx: The index; a negative one counts from the end.

    Example:
        >>> SlicingBlock("sequence", "last", [10, 4], slice_dim=-2, slice_idx=-1).out_shapes()
        [(4,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, slice_dim: int, slice_idx: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        dim = _from_right(self, "slice_dim", slice_dim, len(self.in_shapes[0]))
        index = _from_right(self, "slice_idx", slice_idx, self.in_shapes[0][dim])
        self.func = partial(torch.select, dim=dim, index=index)


class UnsqueezeBlock(_OneOutputBlock):
    """Inserts a dimension of size 1.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        unsqueeze_dim: Position of the new dimension in the output shape.

    Example:
        >>> UnsqueezeBlock("game", "row", [8], unsqueeze_dim=-2).out_shapes()
        [(1, 8)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, unsqueeze_dim: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(0)
        dim = _from_right(self, "unsqueeze_dim", unsqueeze_dim, len(self.in_shapes[0]) + 1)
        self.func = partial(torch.unsqueeze, dim=dim)


class ActionMaskingBlock(_OneOutputBlock):
    """Sets logits to the most negative finite number of their type where a mask is 0.

    Masked entries have probability 0 and gradient 0, and no NaN arises. Masks that an environment
    declares (`action_masks_dict`) are applied by the policy and need no block.

    Args:
        in_keys: Names of logits and mask, in this order.
        out_keys: Name of the masked logits.
        in_shapes: Shapes of logits and mask, which are equal.

    Example:
        >>> import torch
        >>> block = ActionMaskingBlock(["logits", "mask"], "masked", [[3], [3]])
        >>> block({"logits": torch.zeros(3), "mask": torch.tensor([1, 0, 1])})["masked"].softmax(-1)
        tensor([0.5000, 0.0000, 0.5000])
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        two = len(self.in_keys) == 2 and len(self.out_keys) == 1
        self.require(two and self.in_shapes[0] == self.in_shapes[1], "logits and a mask of one shape, and one output")
        self.func = masked_logits

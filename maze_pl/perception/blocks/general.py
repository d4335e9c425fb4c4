"""Blocks without weights: they reshape, join, pick, repeat, multiply, pool and mask tensors.

All dimensions that options name are those of the shapes in `in_shapes`, without leading dimensions; negative ones are
counted from the right.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from maze_pl.core.class_path import import_object
from maze_pl.distributions.probability_distribution import masked_logits
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes

PoolingFunction = Literal["mean", "sum", "max"]
"""How many elements become one."""


def masked_pooling(x: Tensor, mask: Tensor | None = None, *, pooling_func: PoolingFunction, dim: int) -> Tensor:
    """Mean, sum or maximum over the elements that exist, 0 where there are none; others are never looked at.

    Args:
        x: What is pooled, [..., N, ...].
        mask: Not 0 where an element exists, of the first dimensions of `x`, N included; None if all exist.
        dim: The dimension N counted from the right, which is left out of what comes out.

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
    """An index counted from the right, as leading dimensions ask for."""
    block.require(-size <= index < size, f"{option} from {-size} to {size - 1}, not {index}")
    return index if index < 0 else index - size


class _OneOutputBlock(PerceptionBlock):
    """A function `func` of tensors that gives one."""

    func: Callable[..., Tensor]

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the function returns."""
        return {self.out_keys[0]: self.func(*(block_input[key] for key in self.in_keys))}


class FlattenBlock(PerceptionBlock):
    """Makes one dimension of the last ones.

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape.
        num_flatten_dims: Number of dimensions that become one.

    Example:
        >>> FlattenBlock("screen", "vector", [3, 8, 8], num_flatten_dims=3).out_shapes()
        [(192,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, num_flatten_dims: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require(num_flatten_dims > 0, f"num_flatten_dims above 0, not {num_flatten_dims}")
        self.require_single(num_flatten_dims)
        self.num_flatten_dims = num_flatten_dims

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """[..., product of the last dimensions]."""
        return {self.out_keys[0]: block_input[self.in_keys[0]].flatten(-self.num_flatten_dims)}


class CorrelationBlock(_OneOutputBlock):
    """Multiplies two tensors element by element, or takes the dot product of their last dimensions.

    Args:
        in_keys: Names of the two tensors that go in.
        out_keys: Name of what comes out.
        in_shapes: Their shapes, which are equal.
        reduce: Whether products are summed over the last dimension, which then has size 1.

    Example:
        >>> CorrelationBlock(["a", "b"], "dot", [[5, 4], [5, 4]], reduce=True).out_shapes()
        [(5, 1)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, reduce: bool) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        two = len(self.in_keys) == 2 and len(self.out_keys) == 1 <= len(self.in_shapes[0])
        self.require(two and self.in_shapes[0] == self.in_shapes[1], "two inputs of one shape (..., n), one output")
        self.func = _dot if reduce else torch.mul


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1, keepdim=True)


class ConcatenationBlock(PerceptionBlock):
    """Joins tensors along one of their dimensions.

    Args:
        in_keys: Names of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Their shapes, which differ in `concat_dim` at most.
        concat_dim: The dimension along which they are joined.

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
        """All inputs in one, in the order of `in_keys`."""
        return {self.out_keys[0]: torch.cat([block_input[key] for key in self.in_keys], self.concat_dim)}


class FunctionalBlock(PerceptionBlock):
    """Applies a function to tensors.

    Args:
        in_keys: Names of its arguments, which are given by position.
        out_keys: Names of what it returns: a tensor if there is one name, otherwise a sequence of tensors.
        in_shapes: Shapes of the arguments.
        func: The function or its path, such as "torch.tanh". It keeps leading dimensions, of which there may be any
            number.

    Raises:
        ImportError: There is no such function.
        ValueError: It does not return one tensor for each of `out_keys`.

    Example:
        >>> FunctionalBlock("image", "scaled", [3, 8, 8], func=lambda image: image / 255).out_shapes()
        [(3, 8, 8)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, func: Callable[..., Any] | str) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.func = import_object(func) if isinstance(func, str) else func
        self.require(callable(self.func), f"func to be a function or its path, not {func!r}")

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the function returns."""
        output = self.func(*(block_input[key] for key in self.in_keys))
        tensors = [output] if len(self.out_keys) == 1 else list(output)
        good = len(tensors) == len(self.out_keys) and all(isinstance(tensor, Tensor) for tensor in tensors)
        self.require(good, f"func to return one tensor for each of {self.out_keys}, not {type(output).__name__}")
        return dict(zip(self.out_keys, tensors, strict=True))


class GlobalAveragePoolingBlock(_OneOutputBlock):
    """Averages each channel of an image: [..., C, H, W] to [..., C].

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape (C, H, W), or (..., C, H, W).

    Example:
        >>> GlobalAveragePoolingBlock("features", "vector", [16, 5, 5]).out_shapes()
        [(16,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(3)
        self.func = partial(torch.mean, dim=(-2, -1))


class MaskedGlobalPoolingBlock(_OneOutputBlock):
    """Mean, sum or maximum over one dimension, such as the elements of a set, of which not all may exist.

    Elements that do not exist change nothing, whatever they are; where none exists the result is 0.

    Args:
        in_keys: Name of what is pooled, and of a mask if there is one, which is 1 where an element exists and 0 where
            it does not.
        out_keys: Name of what comes out.
        in_shapes: Their shapes; that of the mask is the first dimensions of the other, up to `pooling_dim` or further.
        pooling_func: "mean", "sum" or "max".
        pooling_dim: The dimension that is pooled, and then gone.

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
    """Picks several entries of one dimension.

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape.
        select_dim: The dimension in which it is picked.
        select_idxs: Indices in the order in which they come out; negative ones are counted from the end.

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
        self.require(len(select_idxs) > 0, "at least one of select_idxs")
        indices = [_from_right(self, "select_idxs", index, size) + size for index in select_idxs]
        self.select_idxs = nn.Buffer(torch.tensor(indices), persistent=False)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The input, with as many entries in `select_dim` as are picked."""
        return {self.out_keys[0]: block_input[self.in_keys[0]].index_select(self.select_dim, self.select_idxs)}


class RepeatToMatchBlock(_OneOutputBlock):
    """Repeats a tensor for each element of another, as the state of the game for each unit in it.

    Args:
        in_keys: Name of what is repeated, and of what says how often.
        out_keys: Name of what comes out.
        in_shapes: Their shapes.
        repeat_at_idx: Where the first gets a new dimension; it is as large as this dimension of the second.

    Example:
        >>> RepeatToMatchBlock(["game", "units"], "game_per_unit", [[8], [5, 3]], repeat_at_idx=-2).out_shapes()
        [(5, 8)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, repeat_at_idx: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require(len(self.in_keys) == 2 and len(self.out_keys) == 1, "two inputs and one output")
        dim = _from_right(self, "repeat_at_idx", repeat_at_idx, len(self.in_shapes[0]) + 1)
        match_dim = _from_right(self, "repeat_at_idx", repeat_at_idx, len(self.in_shapes[1]))
        self.func = partial(_repeated, dim=dim, match_dim=match_dim)


def _repeated(x: Tensor, match: Tensor, dim: int, match_dim: int) -> Tensor:
    return x.unsqueeze(dim).repeat_interleave(match.shape[match_dim], dim)


class SlicingBlock(_OneOutputBlock):
    """Picks one entry of a dimension, which is then gone.

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape.
        slice_dim: The dimension in which it is picked.
        slice_idx: The index; a negative one is counted from the end.

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


class ActionMaskingBlock(_OneOutputBlock):
    """Gives logits the most negative finite number of their type where a mask is 0, and leaves the others alone.

    Probabilities there are 0 and gradients too, nothing becomes NaN. Masks that an environment declares
    (`action_masks_dict`) are applied by the policy and need no block.

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

"""Block that multiplies two tensors."""

from functools import partial
from typing import Any

from torch import Tensor

from maze_pl.perception.blocks.one_output_block import OneOutputBlock
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class CorrelationBlock(OneOutputBlock):
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

    n_computed = 2

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

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
        first, second = _broadcast(self.in_shapes[0][:-1], self.in_shapes[1][:-1])
        self.func = partial(_correlation, first=first, second=second, reduce=reduce)


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return index tuples that insert the dimensions of size 1 that a product needs.

    Args:
        first: Shape of the first tensor, without its last dimension.
        second: Shape of the second one, likewise.
    """
    first_sizes = list(first)  # of the dimensions that are still to be compared
    second_sizes = list(second)
    first_index: list[Any] = [...]
    second_index: list[Any] = [...]
    while first_sizes or second_sizes:
        pair = first_sizes[:1] + second_sizes[:1]
        fit = len(pair) == 2 and (pair[0] == pair[1] or 1 in pair)
        if fit or len(first_sizes) >= len(second_sizes):
            first_index.append(slice(None))
            del first_sizes[0]
        else:
            first_index.append(None)
        if fit or first_index[-1] is None:
            second_index.append(slice(None))
            del second_sizes[0]
        else:
            second_index.append(None)
    return (*first_index, slice(None)), (*second_index, slice(None))


def _correlation(x: Tensor, y: Tensor, first: tuple[Any, ...], second: tuple[Any, ...], reduce: bool) -> Tensor:
    product = x[first] * y[second]
    return product.sum(-1) if reduce else product

"""Block that pools the existing elements of a dimension."""

from collections.abc import Sequence
from functools import partial

from maze_pl.perception.blocks.one_output_block import OneOutputBlock, from_right
from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.pooling import PoolingFunction, masked_pooling


class MaskedGlobalPoolingBlock(OneOutputBlock):
    """Mean, sum or maximum over the existing elements of one or several dimensions, such as a set.

    Elements that do not exist have no effect, whatever their values; if none exists, the result is
    0.

    Args:
        in_keys: Name of the tensor to pool and, optionally, of a mask, which is 1 where an element
            exists and 0 elsewhere.
        out_keys: Name of the output.
        in_shapes: Shapes of the inputs; the mask's shape is the first dimensions of the tensor's
            shape, up to the last of `pooling_dim` or further.
        pooling_func: "mean", "sum" or "max".
        pooling_dim: The dimension to pool, or a list of dimensions to pool together, such as the
            machines and jobs of a plan; they are then removed.

    Example:
        >>> import torch
        >>> block = MaskedGlobalPoolingBlock(["set", "mask"], "vector", [[3, 1], [3]], "mean", pooling_dim=-2)
        >>> block({"set": torch.tensor([[1.0], [3.0], [8.0]]), "mask": torch.tensor([1, 1, 0])})["vector"]
        tensor([2.])
    """

    n_computed = 1

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        pooling_func: PoolingFunction,
        pooling_dim: int | Sequence[int],
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require(
            len(self.in_keys) <= 2 and len(self.out_keys) == 1,
            "one input or input and mask, and one output",
        )
        known = isinstance(pooling_func, str) and pooling_func in ("mean", "sum", "max")
        self.require(known, f"pooling_func 'mean', 'sum' or 'max', not {pooling_func!r}")
        shape = self.in_shapes[0]
        mask = self.in_shapes[-1]
        listed = list(pooling_dim) if isinstance(pooling_dim, Sequence) else [pooling_dim]
        self.require(len(listed) > 0, f"pooling_dim with at least one dimension, not {pooling_dim!r}")
        dims = tuple(from_right(self, "pooling_dim", dim, len(shape)) for dim in listed)
        self.require(len(set(dims)) == len(dims), f"pooling_dim without repetitions, not {pooling_dim!r}")
        fits = shape[: len(mask)] == mask and len(mask) > len(shape) + max(dims)
        self.require(fits, f"a mask of the first dimensions of {shape}, dimension {pooling_dim} included")
        self.func = partial(masked_pooling, pooling_func=pooling_func, dim=dims[0] if len(dims) == 1 else dims)

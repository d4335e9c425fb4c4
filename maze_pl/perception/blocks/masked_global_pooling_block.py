"""Block that pools the existing elements of a dimension."""

from functools import partial

from maze_pl.perception.blocks.one_output_block import OneOutputBlock, from_right
from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.pooling import PoolingFunction, masked_pooling


class MaskedGlobalPoolingBlock(OneOutputBlock):
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
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        pooling_func: PoolingFunction,
        pooling_dim: int,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require(
            len(self.in_keys) <= 2 and len(self.out_keys) == 1,
            "one input or input and mask, and one output",
        )
        known = pooling_func in ("mean", "sum", "max")
        self.require(known, f"pooling_func 'mean', 'sum' or 'max', not {pooling_func!r}")
        shape = self.in_shapes[0]
        mask = self.in_shapes[-1]
        dim = from_right(self, "pooling_dim", pooling_dim, len(shape))
        fits = shape[: len(mask)] == mask and len(mask) > len(shape) + dim
        self.require(fits, f"a mask of the first dimensions of {shape}, dimension {pooling_dim} included")
        self.func = partial(masked_pooling, pooling_func=pooling_func, dim=dim)

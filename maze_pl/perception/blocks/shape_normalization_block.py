"""Base of blocks that fold leading dimensions into one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Tensor

from maze_pl.perception.blocks.perception_block import Dims, Keys, PerceptionBlock, Shapes, is_list


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

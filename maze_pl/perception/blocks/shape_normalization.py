"""Blocks that are written for one batch dimension and used with any number of leading ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor

from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes


class ShapeNormalizationBlock(PerceptionBlock, ABC):
    """Folds all leading dimensions into one before `normalized_forward`, and unfolds them again afterwards.

    Args:
        in_keys: Name or names of the tensors that go in.
        out_keys: Name or names of the tensors that come out.
        in_shapes: The shape of the tensor that goes in, or one for each of `in_keys`.
        in_num_dims: Dimensions that `normalized_forward` expects, the batch included; one number for all of `in_keys`
            or one for each.
        out_num_dims: The same for what it gives.

    Raises:
        ValueError: A shape has another number of dimensions.
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        in_num_dims: int | Sequence[int],
        out_num_dims: int | Sequence[int],
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.in_num_dims = [in_num_dims] * len(self.in_keys) if isinstance(in_num_dims, int) else list(in_num_dims)
        self.out_num_dims = [out_num_dims] * len(self.out_keys) if isinstance(out_num_dims, int) else list(out_num_dims)
        expected = [number - 1 for number in self.in_num_dims]
        self.require([len(shape) for shape in self.in_shapes] == expected, f"shapes of {expected} dimensions")

    @abstractmethod
    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of `out_keys` [B, ...] from those of `in_keys` [B, *shape]."""

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of `out_keys` from a dict that has those of `in_keys`, [..., *shape] each."""
        tensors = {key: block_input[key] for key in self.in_keys}
        first = tensors[self.in_keys[0]]
        leading = first.shape[: first.dim() + 1 - self.in_num_dims[0]]
        if len(leading) == 1:
            return self.normalized_forward(tensors)
        n_leading = len(leading)
        folded = {
            key: tensor.flatten(0, n_leading - 1) if n_leading else tensor.unsqueeze(0)
            for key, tensor in tensors.items()
        }
        output = self.normalized_forward(folded)
        return {key: tensor.reshape((*leading, *tensor.shape[1:])) for key, tensor in output.items()}

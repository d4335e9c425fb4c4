"""Shared parts of attention blocks for sequences and sets.

All masks are 1 where an element exists or may be attended to, and 0 elsewhere. Elements that do not
exist do not affect the others, whatever their values. An element that may not attend to anything
gets output 0 and gradients 0.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Keys, Shapes, as_keys
from maze_pl.perception.blocks.shape_normalization_block import ShapeNormalizationBlock


def attend(attention: Callable[..., Tensor], tensors: list[Tensor], mask: Tensor | None) -> Tensor:
    """Return attention outputs [..., L, E], 0 for queries that may not attend to anything.

    A softmax over nothing is NaN, and so is its gradient. Such queries therefore attend to
    everything, and their results are dropped. Keys and values that no query attends to are replaced
    by 0, because infinity and NaN do not vanish with a weight of 0.

    Args:
        attention: Function of query, key, value and a mask of allowed pairs [..., L, S].
        tensors: Query [..., L, E], key [..., S, K] and value [..., S, V], or one tensor for all
            three.
        mask: Mask of elements [..., S] or of pairs [..., L, S].
    """
    query, key, value = tensors if len(tensors) == 3 else tensors * 3
    if mask is None:
        return attention(query, key, value, None)
    allowed = mask != 0
    if allowed.dim() < query.dim():  # elements that do not exist do not attend, either
        rows = allowed if len(tensors) == 1 else torch.ones_like(query[..., 0], dtype=torch.bool)
        allowed = rows.unsqueeze(-1) & allowed.unsqueeze(-2)
    attends = allowed.any(-1, keepdim=True)  # [..., L, 1]
    attended = allowed.any(-2).unsqueeze(-1)  # [..., S, 1]
    query = torch.where(attends, query, 0.0)
    key = torch.where(attended, key, 0.0)
    value = torch.where(attended, value, 0.0)
    return torch.where(attends, attention(query, key, value, allowed | ~attends), 0.0)


class SelfAttentionBlock(ShapeNormalizationBlock):
    """Single-head self-attention with a bottleneck, over elements of a sequence or pixels."""

    _of_images = False

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, embed_dim: int) -> None:
        n_dims = 4 if self._of_images else 3
        n_masks = len(as_keys(in_keys, f"{type(self).__name__}: in_keys")) - 1
        super().__init__(in_keys, out_keys, in_shapes, [n_dims] + [n_dims - 1] * n_masks, n_dims)
        self.require_numbers(embed_dim=embed_dim)
        shape = self.in_shapes[0][1 - n_dims :]
        n_features, elements = (shape[0], shape[1:]) if self._of_images else (shape[1], shape[:1])
        masks = [shape[2 - n_dims :] for shape in self.in_shapes[1:]]
        wanted = "(C, H, W), maybe a mask (H, W)" if self._of_images else "(L, n), maybe a mask (L,)"
        good = masks in ([], [elements]) and len(self.out_keys) == 1
        self.require(good, f"{wanted}; one output")
        self.query, self.key, self.value = (nn.Linear(n_features, embed_dim) for _ in range(3))
        self.output = nn.Linear(embed_dim, n_features)
        self.scale = 1.0 if self._of_images else float(embed_dim) ** -0.5
        self.gamma = nn.Parameter(torch.zeros(1)) if self._of_images else 1.0

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the output, of the same shape as the input."""
        x, *masks = (block_input[key] for key in self.in_keys)
        elements = x.flatten(2).mT if self._of_images else x  # [B, L, n]
        output = attend(self._attention, [elements], masks[0].flatten(1) if masks else None)
        output = output.mT.reshape(x.shape) if self._of_images else output
        return {self.out_keys[0]: x + self.gamma * output}

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Any:
        # add a dimension for the one head: fast kernels need four dimensions
        query = self.query(query).unsqueeze(1)
        key = self.key(key).unsqueeze(1)
        value = self.value(value).unsqueeze(1)
        allowed = None if allowed is None else allowed.unsqueeze(1)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, allowed, scale=self.scale)
        return self.output(mixed.squeeze(1))

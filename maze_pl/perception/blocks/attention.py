"""Attention blocks for sequences and sets.

All masks are 1 where an element exists or may be attended to, and 0 elsewhere. Elements that do not
exist do not affect the others, whatever their values. An element that may not attend to anything
gets output 0 and gradients 0.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import (
    Keys,
    ShapeNormalizationBlock,
    Shapes,
    as_keys,
)


def _attend(attention: Callable[..., Tensor], tensors: list[Tensor], mask: Tensor | None) -> Tensor:
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


class MultiHeadAttentionBlock(ShapeNormalizationBlock):
    """Multi-head attention as in torch.nn.MultiheadAttention, but masks are 1 where it is allowed.

    Vaswani et al. 2017, arXiv:1706.03762, without dropout.

    Args:
        in_keys: Names of query, key and value, or one name for all three; then, optionally, the
            name of a mask.
        out_keys: Name of the output.
        in_shapes: Shapes of query (L, E), key (S, K) and value (S, V), and of the mask, see
            `use_key_padding_mask`.
        num_heads: Number of heads, which divides E.
        use_key_padding_mask: If true, the mask (S,) is 1 where a key exists; otherwise the mask (L,
            S) is 1 where a query may attend to a key. With one name for all three, elements that do
            not exist do not attend.

    Example:
        >>> import torch
        >>> block = MultiHeadAttentionBlock(
        ...     ["units", "exists"], "out", [[5, 8], [5]], num_heads=2, use_key_padding_mask=True
        ... )
        >>> block({"units": torch.randn(5, 8), "exists": torch.tensor([1, 1, 1, 0, 0])})["out"][3:].any()
        tensor(False)
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        num_heads: int,
        use_key_padding_mask: bool = False,
    ) -> None:
        n_keys = len(as_keys(in_keys, f"{type(self).__name__}: in_keys"))
        mask_dims = [] if n_keys % 2 else [2 if use_key_padding_mask else 3]
        n_tensors = n_keys - len(mask_dims)
        super().__init__(in_keys, out_keys, in_shapes, [3] * n_tensors + mask_dims, 3)
        self.require_numbers(num_heads=num_heads)
        self.require_flags(use_key_padding_mask=use_key_padding_mask)
        query, key, value = (self.in_shapes[index % n_tensors][-2:] for index in range(3))
        mask = (key[0],) if use_key_padding_mask else (query[0], key[0])
        fits = key[0] == value[0]
        if mask_dims:
            fits = fits and self.in_shapes[-1][1 - mask_dims[0] :] == mask
        known = n_tensors in (1, 3) and len(self.out_keys) == 1
        known = known and len(mask_dims) >= use_key_padding_mask
        names = "query (L, E), key (S, K) and value (S, V), or one for all"
        good = fits and known and query[1] % num_heads == 0
        self.require(
            good,
            f"{names}, with {use_key_padding_mask=} a mask {mask}; num_heads that divides E; one output",
        )
        self.attention = nn.MultiheadAttention(
            query[1],
            num_heads,
            kdim=key[1],
            vdim=value[1],
            batch_first=True,
        )

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [B, L, E]."""
        inputs = [block_input[key] for key in self.in_keys]
        mask = inputs.pop() if len(inputs) % 2 == 0 else None
        return {self.out_keys[0]: _attend(self._attention, inputs, mask)}

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
        # The module's `forward` would fix the batch size in exported programs.
        attention = self.attention
        packed = attention.in_proj_weight
        separate = (attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight)
        weights = separate if packed is None else packed.chunk(3)
        split = []
        biases = attention.in_proj_bias.chunk(3)
        for tensor, weight, bias in zip((query, key, value), weights, biases, strict=True):
            projected = nn.functional.linear(tensor, weight, bias)
            heads = torch.unflatten(projected, -1, (attention.num_heads, attention.head_dim))
            split.append(heads.transpose(1, 2))  # [B, L, E] -> [B, heads, L, E / heads]
        mask = None if allowed is None else allowed.unsqueeze(1)
        mixed = nn.functional.scaled_dot_product_attention(split[0], split[1], split[2], mask)
        output: Tensor = attention.out_proj(mixed.transpose(1, 2).flatten(2))
        return output


class _SelfAttentionBlock(ShapeNormalizationBlock):
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
        output = _attend(self._attention, [elements], masks[0].flatten(1) if masks else None)
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


class SelfAttentionSeqBlock(_SelfAttentionBlock):
    """Single-head self-attention over the elements of a sequence or set.

        y = x + softmax(Q K^T / sqrt(embed_dim)) V W_o,   Q, K, V = x W_q, x W_k, x W_v

    Vaswani et al. 2017, arXiv:1706.03762, without layer normalisation.

    Args:
        in_keys: Name of the input and, optionally, of a mask.
        out_keys: Name of the output.
        in_shapes: Shape of the input (L, n) and of the mask (L,), which is 1 where an element
            exists.
        embed_dim: Width of Q, K and V.

    Example:
        >>> SelfAttentionSeqBlock("sequence", "out", [5, 8], embed_dim=4).out_shapes()
        [(5, 8)]
    """


class SelfAttentionConvBlock(_SelfAttentionBlock):
    """Self-attention over the pixels of an image.

        y = x + gamma * softmax(Q K^T) V W_o,   Q, K, V = x W_q, x W_k, x W_v   (1 x 1 convolutions)

    gamma is learned and starts at 0, so that the block is the identity at first. Zhang et al. 2018,
    arXiv:1805.08318.

    Args:
        in_keys: Name of the input and, optionally, of a mask.
        out_keys: Name of the output.
        in_shapes: Shape of the input (C, H, W) and of the mask (H, W), which is 1 where a pixel
            exists.
        embed_dim: Channels of Q, K and V; C / 8 in the paper.

    Example:
        >>> SelfAttentionConvBlock("image", "out", [16, 5, 5], embed_dim=2).out_shapes()
        [(16, 5, 5)]
    """

    _of_images = True

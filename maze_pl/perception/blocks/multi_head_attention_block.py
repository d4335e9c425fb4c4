"""Block of multi-head attention."""

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.attention import attend
from maze_pl.perception.blocks.perception_block import Keys, Shapes, as_keys
from maze_pl.perception.blocks.shape_normalization_block import ShapeNormalizationBlock


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
        return {self.out_keys[0]: attend(self._attention, inputs, mask)}

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

"""Block of multi-head attention."""

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.attention import attend, heads_attend
from maze_pl.perception.blocks.perception_block import Keys, Shapes, as_keys
from maze_pl.perception.blocks.shape_normalization_block import ShapeNormalizationBlock


class MultiHeadAttentionBlock(ShapeNormalizationBlock):
    """Multi-head attention as in torch.nn.MultiheadAttention, but masks are 1 where it is allowed.

    Vaswani et al. 2017, arXiv:1706.03762.

    Args:
        in_keys: Names of query, key and value, or one name for all three; then, optionally, the
            name of a mask.
        out_keys: Name of the output and, optionally, of the attention weights (L, S), averaged over
            heads; (L, S + 1) or (L, S + 2) with `add_bias_kv` or `add_zero_attn` or both.
        in_shapes: Shapes of query (L, E), key (S, K) and value (S, V), and of the mask, see
            `use_key_padding_mask`.
        num_heads: Number of heads, which divides E.
        use_key_padding_mask: If true, the mask (S,) is 1 where a key exists; otherwise the mask (L,
            S) is 1 where a query may attend to a key. With one name for all three, elements that do
            not exist do not attend.
        dropout: Probability of setting a weight to 0 in training mode; the returned weights are
            those before dropout.
        bias: Whether the linear maps have biases.
        add_bias_kv: Whether each query may also attend to a key and value that are learned.
        add_zero_attn: Whether each query may also attend to a key and value of 0.
        add_input_to_output: Whether the query is added to the output.

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
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        add_input_to_output: bool = False,
    ) -> None:
        n_keys = len(as_keys(in_keys, f"{type(self).__name__}: in_keys"))
        has_mask = n_keys % 2 == 0  # after one tensor or three
        n_tensors = n_keys - has_mask
        num_dims = [3] * n_tensors
        if has_mask:
            num_dims.append(2 if use_key_padding_mask else 3)
        super().__init__(in_keys, out_keys, in_shapes, num_dims, 3)
        self.require_numbers(num_heads=num_heads)
        self.require_flags(
            use_key_padding_mask=use_key_padding_mask,
            bias=bias,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            add_input_to_output=add_input_to_output,
        )
        self.require_probability(dropout=dropout)
        query, key, value = (self.in_shapes[index % n_tensors][-2:] for index in range(3))
        mask = (key[0],) if use_key_padding_mask else (query[0], key[0])
        fits = key[0] == value[0] and query[1] % num_heads == 0
        if has_mask:
            fits = fits and self.in_shapes[-1][-len(mask) :] == mask
        has_known_roles = n_tensors in (1, 3) and len(self.out_keys) <= 2
        has_needed_mask = has_mask or not use_key_padding_mask
        names = "query (L, E), key (S, K) and value (S, V), or one for all"
        good = fits and has_known_roles and has_needed_mask
        outputs = "one output, or output and weights"
        self.require(
            good,
            f"{names}, with {use_key_padding_mask=} a mask {mask}; num_heads that divides E; {outputs}",
        )
        self.attention = nn.MultiheadAttention(
            query[1],
            num_heads,
            dropout=dropout,
            bias=bias,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            kdim=key[1],
            vdim=value[1],
            batch_first=True,
        )
        self.add_input_to_output = add_input_to_output

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [B, L, E], and the weights if they have a name."""
        inputs = [block_input[key] for key in self.in_keys]
        mask = inputs.pop() if len(inputs) % 2 == 0 else None
        inputs = [self.as_floats(tensor) for tensor in inputs]
        attention = self.attention
        has_further_keys = attention.bias_k is not None or attention.add_zero_attn
        output, weights = attend(self._attention, inputs, mask, has_further_keys=has_further_keys)
        if self.add_input_to_output:
            output = inputs[0] + output
        outputs = {self.out_keys[0]: output}
        if weights is not None:
            outputs[self.out_keys[1]] = weights
        return outputs

    def _attention(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        # The module's `forward` would fix the batch size in exported programs.
        attention = self.attention
        packed = attention.in_proj_weight
        separate = (attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight)
        weights = separate if packed is None else packed.chunk(3)
        biases = [None] * 3 if attention.in_proj_bias is None else attention.in_proj_bias.chunk(3)
        projected = []
        for tensor, weight, bias in zip((query, key, value), weights, biases, strict=True):
            projected.append(nn.functional.linear(tensor, weight, bias))
        allowed = self._extend(projected, allowed)
        split = []
        for tensor in projected:
            heads = torch.unflatten(tensor, -1, (attention.num_heads, attention.head_dim))
            split.append(heads.transpose(1, 2))  # [B, L, E] -> [B, heads, L, E / heads]
        mixed, averaged = heads_attend(
            split[0],
            split[1],
            split[2],
            allowed,
            scale=None,
            dropout=attention.dropout if self.training else 0.0,
            with_weights=len(self.out_keys) == 2,
        )
        output: Tensor = attention.out_proj(mixed.transpose(1, 2).flatten(2))
        return output, averaged

    def _extend(self, projected: list[Tensor], allowed: Tensor | None) -> Tensor | None:
        """Append the learned key and value, and those of 0, to projected keys and values.

        Args:
            projected: Query, key and value [B, ..., E]; key and value are replaced.
            allowed: Pairs that may attend [B, L, S]; None for all.

        Returns:
            The pairs that may attend, with the appended ones.
        """
        attention = self.attention
        added: list[tuple[Tensor, Tensor]] = []
        if attention.bias_k is not None and attention.bias_v is not None:
            added.append((attention.bias_k, attention.bias_v))
        if attention.add_zero_attn:
            zeros = projected[1].new_zeros(1, 1, attention.embed_dim)
            added.append((zeros, zeros))
        for both in added:
            for index, tensor in enumerate(both, 1):
                extra = tensor.to(projected[index].dtype).expand(projected[index].shape[0], 1, -1)
                projected[index] = torch.cat([projected[index], extra], 1)
            if allowed is not None:
                allowed = nn.functional.pad(allowed, (0, 1), value=True)
        return allowed

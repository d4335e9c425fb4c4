"""Shared parts of attention blocks for sequences and sets.

All masks are 1 where an element exists or may be attended to, and 0 elsewhere. Elements that do not
exist do not affect the others, whatever their values. An element that may not attend to anything
gets output 0, weights 0 and gradients 0.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Keys, Shapes, as_keys
from maze_pl.perception.blocks.shape_normalization_block import ShapeNormalizationBlock

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]
"""Function of query, key, value and a mask of allowed pairs [..., L, S]; returns outputs [..., L, E] and weights
[..., L, S'], which are None unless requested."""


def attend(
    attention: Attention, tensors: list[Tensor], mask: Tensor | None, *, has_further_keys: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return attention outputs [..., L, E] and weights, 0 for queries that may not attend to anything.

    A softmax over nothing is NaN, and so is its gradient. Such queries therefore attend to
    everything, and their results are dropped. Keys and values that no query attends to are replaced
    by 0, because infinity and NaN do not vanish with a weight of 0.

    Args:
        attention: The attention without regard to queries that may not attend to anything.
        tensors: Query [..., L, E], key [..., S, K] and value [..., S, V], or one tensor for all
            three.
        mask: Mask of elements [..., S] or of pairs [..., L, S].
        has_further_keys: Whether `attention` has keys besides these, which every query that exists
            may attend to.
    """
    query, key, value = tensors if len(tensors) == 3 else tensors * 3
    if mask is None:
        return attention(query, key, value, None)
    allowed = mask != 0
    is_of_elements = allowed.dim() < query.dim()
    exists = None  # [..., L] queries
    if is_of_elements and len(tensors) == 1:
        exists = allowed
    elif is_of_elements or has_further_keys:
        exists = torch.ones_like(query[..., 0], dtype=torch.bool)
    if is_of_elements and exists is not None:  # elements that do not exist do not attend, either
        allowed = exists.unsqueeze(-1) & allowed.unsqueeze(-2)
    attends = allowed.any(-1, keepdim=True)  # [..., L, 1]
    if has_further_keys and exists is not None:
        attends = exists.unsqueeze(-1)
    attended = allowed.any(-2).unsqueeze(-1)  # [..., S, 1]
    query = torch.where(attends, query, 0.0)
    key = torch.where(attended, key, 0.0)
    value = torch.where(attended, value, 0.0)
    output, weights = attention(query, key, value, allowed | ~attends)
    if weights is not None:
        weights = torch.where(attends, weights, 0.0)
    return torch.where(attends, output, 0.0), weights


def heads_attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    *,
    scale: float | None,
    dropout: float,
    with_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute scaled dot-product attention of several heads.

        y = dropout(w) V,   w = softmax(scale * Q K^T)

    Args:
        query: [B, heads, L, E].
        key: [B, heads, S, E].
        value: [B, heads, S, V].
        allowed: Pairs that may attend [B, L, S], at least one of each row; None for all.
        scale: Factor of the dot products; None for 1 / sqrt(E).
        dropout: Probability of setting a weight to 0; 0 in evaluation mode.
        with_weights: Whether to return the weights, too; this takes longer.

    Returns:
        Outputs [B, heads, L, V], and the weights before dropout, averaged over heads [B, L, S].
    """
    mask = None if allowed is None else allowed.unsqueeze(1)
    if not with_weights and dropout == 0.0:
        return nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=scale), None
    factor = float(query.shape[-1]) ** -0.5 if scale is None else scale
    scores = factor * (query @ key.mT)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1)
    dropped = nn.functional.dropout(weights, dropout) if dropout > 0.0 else weights
    return dropped @ value, weights.mean(1) if with_weights else None


class SelfAttentionBlock(ShapeNormalizationBlock):
    """Self-attention with a bottleneck, over elements of a sequence or pixels."""

    _of_images = False

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        embed_dim: int,
        add_input_to_output: bool = True,
        bias: bool = True,
        num_heads: int = 1,
        dropout: float = 0.0,
    ) -> None:
        n_element_dims = 2 if self._of_images else 1  # height and width, or length
        n_dims = 2 + n_element_dims  # with batch and features
        name = type(self).__name__
        n_masks = len(as_keys(in_keys, f"{name}: in_keys")) - 1
        n_outputs = len(as_keys(out_keys, f"{name}: out_keys"))
        in_dims = [n_dims, *[1 + n_element_dims] * n_masks]
        out_dims = [n_dims, 3] if n_outputs == 2 else [n_dims] * n_outputs  # weights are [B, L, L]
        super().__init__(in_keys, out_keys, in_shapes, in_dims, out_dims)
        self.require_numbers(embed_dim=embed_dim, num_heads=num_heads)
        self.require_flags(add_input_to_output=add_input_to_output, bias=bias)
        self.require_probability(dropout=dropout)
        self.require(embed_dim % num_heads == 0, f"num_heads that divides {embed_dim=}, not {num_heads}")
        shape = self.in_shapes[0]
        if self._of_images:
            n_features = shape[-3]
            elements = shape[-2:]
            wanted = "(C, H, W), maybe a mask (H, W)"
        else:
            n_features = shape[-1]
            elements = shape[-2:-1]
            wanted = "(L, n), maybe a mask (L,)"
        masks = [mask[-n_element_dims:] for mask in self.in_shapes[1:]]
        good = masks in ([], [elements]) and n_outputs <= 2
        self.require(good, f"{wanted}; one output, or output and weights")
        self.query = nn.Linear(n_features, embed_dim, bias)
        self.key = nn.Linear(n_features, embed_dim, bias)
        self.value = nn.Linear(n_features, embed_dim, bias)
        self.output = nn.Linear(embed_dim, n_features, bias)
        self.num_heads = num_heads
        self.dropout = dropout
        self.add_input_to_output = add_input_to_output
        self.scale = 1.0 if self._of_images else float(embed_dim // num_heads) ** -0.5
        starts_as_identity = self._of_images and add_input_to_output
        self.gamma = nn.Parameter(torch.zeros(1)) if starts_as_identity else 1.0

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the output, of the same shape as the input, and the weights if they have a name."""
        x = self.as_floats(block_input[self.in_keys[0]])
        elements = x.flatten(2).mT if self._of_images else x  # [B, L, n]
        mask: Tensor | None = None
        if len(self.in_keys) == 2:
            mask = block_input[self.in_keys[1]].flatten(1)  # [B, L]
        output, weights = attend(self._attention, [elements], mask)
        output = output.mT.reshape(x.shape) if self._of_images else output
        if self.add_input_to_output:
            output = x + self.gamma * output
        outputs = {self.out_keys[0]: output}
        if weights is not None:
            outputs[self.out_keys[1]] = weights
        return outputs

    def _attention(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        mixed, weights = heads_attend(
            self._heads(self.query(query)),
            self._heads(self.key(key)),
            self._heads(self.value(value)),
            allowed,
            scale=self.scale,
            dropout=self.dropout if self.training else 0.0,
            with_weights=len(self.out_keys) == 2,
        )
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return output, weights

    def _heads(self, x: Tensor) -> Tensor:
        """Divide features [B, L, E] among heads [B, heads, L, E / heads]."""
        if self.num_heads == 1:
            return x.unsqueeze(1)  # fast kernels need four dimensions
        return torch.unflatten(x, -1, (self.num_heads, -1)).transpose(1, 2)

"""Attention: each element of a sequence or set, or each pixel, takes in what it finds relevant of the others.

Everywhere a mask is 1 where an element exists, or may be attended, and 0 where it does not. Elements that do not exist
change nothing for the others, whatever they are. Who may attend nothing gets 0, and so are its gradients.
"""

from abc import ABC
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.shape_normalization import ShapeNormalizationBlock


def _attend(attention: Callable[..., list[Tensor]], inputs: Sequence[Tensor]) -> list[Tensor]:
    """What attention gives, maybe its weights too, with 0 for those who may attend nothing.

    A softmax over nothing is NaN and so is its gradient; so who may attend nothing attends everything, and the result
    is dropped. What nobody attends is replaced by 0, as infinity and NaN do not vanish with a weight of 0.

    Args:
        attention: From query, key, value and who may attend what [..., L, S].
        inputs: Query [..., L, E], key [..., S, K] and value [..., S, V], or one for all of them; and a mask of elements
            [..., S] or of pairs [..., L, S] if their number is even.
    """
    tensors = list(inputs)
    mask = tensors.pop() if len(tensors) % 2 == 0 else None
    query, key, value = tensors if len(tensors) == 3 else tensors * 3
    if mask is None:
        return attention(query, key, value, None)
    allowed = mask != 0
    if allowed.dim() < query.dim():  # elements that do not exist do not attend either
        rows = allowed if len(tensors) == 1 else torch.ones_like(query[..., 0], dtype=torch.bool)
        allowed = rows.unsqueeze(-1) & allowed.unsqueeze(-2)
    attends, attended = allowed.any(-1, keepdim=True), allowed.any(-2).unsqueeze(-1)
    clean = [torch.where(used, tensor, 0.0) for used, tensor in ((attends, query), (attended, key), (attended, value))]
    return [torch.where(attends, tensor, 0.0) for tensor in attention(*clean, allowed | ~attends)]


def _count(keys: Keys) -> int:
    return 1 if isinstance(keys, str) else len(keys)


class MultiHeadAttentionBlock(ShapeNormalizationBlock):
    """Several attentions side by side, as in torch.nn.MultiheadAttention, with masks that are 1 where they allow.

    Vaswani et al. 2017, arXiv:1706.03762.

    Args:
        in_keys: Names of query, key and value, or one name for all three; then the name of a mask if there is one.
        out_keys: Name of what comes out, and of the attention weights (the mean over heads) if they are wanted.
        in_shapes: Shapes of query (L, E), key (S, K) and value (S, V), and of the mask, see `use_key_padding_mask`.
        num_heads: Number of attentions, which divides E.
        dropout: Probability with which an attention weight is 0 in training.
        bias: Whether projections have a bias.
        add_input_to_output: Whether the query is added to what comes out.
        use_key_padding_mask: Whether the mask (S,) is 1 where a key exists; otherwise the mask (L, S) is 1 where a
            query may attend a key. With one name for all three, elements that do not exist attend nothing.

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
        dropout: float = 0.0,
        bias: bool = True,
        add_input_to_output: bool = False,
        use_key_padding_mask: bool = False,
    ) -> None:
        n_inputs, n_outputs = _count(in_keys), _count(out_keys)
        mask_dims = [] if n_inputs % 2 else [2 if use_key_padding_mask else 3]
        n_tensors = n_inputs - len(mask_dims)
        super().__init__(in_keys, out_keys, in_shapes, [3] * n_tensors + mask_dims, [3] * n_outputs)
        query, key, value = (self.in_shapes[index % n_tensors][-2:] for index in range(3))
        mask = (key[0],) if use_key_padding_mask else (query[0], key[0])
        fits = key[0] == value[0] and all(self.in_shapes[-1][1 - number :] == mask for number in mask_dims)
        known = n_tensors in (1, 3) and n_outputs <= 2 and len(mask_dims) >= use_key_padding_mask
        names = "query (L, E), key (S, K) and value (S, V), or one for all"
        self.require(fits and known, f"{names}, with {use_key_padding_mask=} a mask {mask}; output, maybe weights")
        good = num_heads > 0 and query[1] % num_heads == 0 and 0 <= dropout < 1
        self.require(good, f"num_heads that divides {query[1]} and dropout in [0, 1), not {num_heads} and {dropout}")
        self.add_input_to_output = add_input_to_output
        sizes = {"kdim": key[1], "vdim": value[1]}
        self.attention = nn.MultiheadAttention(query[1], num_heads, dropout, bias, **sizes, batch_first=True)

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Output [B, L, E] and maybe weights [B, L, S]."""
        inputs = [block_input[key] for key in self.in_keys]
        output, *weights = _attend(self._attention, inputs)
        output = inputs[0] + output if self.add_input_to_output else output
        return dict(zip(self.out_keys, [output, *weights], strict=True))

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> list[Tensor]:
        blocked = None if allowed is None else (~allowed).repeat_interleave(self.attention.num_heads, 0)
        # torch 2.13 cannot reshape the mask of an empty batch if no weights are wanted
        need_weights = len(self.out_keys) == 2 or len(query) == 0
        outputs = self.attention(query, key, value, attn_mask=blocked, need_weights=need_weights)
        return [*outputs[: len(self.out_keys)]]


class _SelfAttentionBlock(ShapeNormalizationBlock, ABC):
    """Attention with one head and a bottleneck, of the elements of a sequence or the pixels of an image."""

    _of_images: ClassVar[bool]

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        embed_dim: int,
        add_input_to_output: bool = True,
        bias: bool = True,
    ) -> None:
        n_dims = 4 if self._of_images else 3
        dims = [n_dims] + [n_dims - 1] * (_count(in_keys) - 1)
        super().__init__(in_keys, out_keys, in_shapes, dims, [n_dims] + [3] * (_count(out_keys) - 1))
        shape = self.in_shapes[0][1 - n_dims :]
        n_features, elements = (shape[0], shape[1:]) if self._of_images else (shape[1], shape[:1])
        masks = [shape[2 - n_dims :] for shape in self.in_shapes[1:]]
        wanted = "(C, H, W), maybe a mask (H, W)" if self._of_images else "(L, n), maybe a mask (L,)"
        good = masks in ([], [elements]) and len(self.out_keys) <= 2 and embed_dim > 0
        self.require(good, f"{wanted}; output, maybe weights; embed_dim above 0, not {embed_dim}")
        self.query, self.key, self.value = (nn.Linear(n_features, embed_dim, bias) for _ in range(3))
        self.output = nn.Linear(embed_dim, n_features, bias)
        self.scale = 1.0 if self._of_images else float(embed_dim) ** -0.5
        self.add_input_to_output = add_input_to_output
        self.gamma = nn.Parameter(torch.zeros(1)) if add_input_to_output and self._of_images else 1.0

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """The shape of what goes in, and maybe weights [B, L, L], where L is the number of elements."""
        x, *masks = (block_input[key] for key in self.in_keys)
        elements = x.flatten(2).mT if self._of_images else x  # [B, L, n]
        output, *weights = _attend(self._attention, [elements, *(mask.flatten(1) for mask in masks)])
        output = output.mT.reshape(x.shape) if self._of_images else output
        output = x + self.gamma * output if self.add_input_to_output else output
        return dict(zip(self.out_keys, [output, *weights], strict=True))

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> list[Tensor]:
        query, key, value = self.query(query), self.key(key), self.value(value)
        if len(self.out_keys) == 1:
            # one head, as fast kernels want four dimensions
            query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
            allowed = None if allowed is None else allowed.unsqueeze(1)
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, allowed, scale=self.scale)
            return [self.output(mixed.squeeze(1))]
        scores = query @ key.mT * self.scale
        weights = (scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)).softmax(-1)
        return [self.output(weights @ value), weights]


class SelfAttentionSeqBlock(_SelfAttentionBlock):
    """Each element of a sequence or set attends to all, with one head.

        y = x + softmax(Q K^T / sqrt(embed_dim)) V W_o,   Q, K, V = x W_q, x W_k, x W_v

    Vaswani et al. 2017, arXiv:1706.03762, without layer normalisation.

    Args:
        in_keys: Name of what goes in, and of a mask if there is one.
        out_keys: Name of what comes out, and of the attention weights (L, L) if they are wanted.
        in_shapes: Its shape (L, n), and that of the mask (L,), which is 1 where an element exists.
        embed_dim: Width of Q, K and V.
        add_input_to_output: Whether x is added.
        bias: Whether projections have a bias.

    Example:
        >>> SelfAttentionSeqBlock("sequence", ["out", "weights"], [5, 8], embed_dim=4).out_shapes()
        [(5, 8), (5, 5)]
    """

    _of_images = False


class SelfAttentionConvBlock(_SelfAttentionBlock):
    """Each pixel of an image attends to all.

        y = x + gamma * softmax(Q K^T) V W_o,   Q, K, V = x W_q, x W_k, x W_v   (1 x 1 convolutions)

    gamma is learned and starts at 0, so that the block changes nothing at first. Zhang et al. 2018, arXiv:1805.08318.

    Args:
        in_keys: Name of what goes in, and of a mask if there is one.
        out_keys: Name of what comes out, and of the attention map (H * W, H * W) if it is wanted.
        in_shapes: Its shape (C, H, W), and that of the mask (H, W), which is 1 where a pixel exists.
        embed_dim: Channels of Q, K and V; C / 8 in the paper.
        add_input_to_output: Whether y is as above; otherwise it is softmax(Q K^T) V W_o alone.
        bias: Whether convolutions have a bias.

    Example:
        >>> SelfAttentionConvBlock("image", "out", [16, 5, 5], embed_dim=2).out_shapes()
        [(16, 5, 5)]
    """

    _of_images = True

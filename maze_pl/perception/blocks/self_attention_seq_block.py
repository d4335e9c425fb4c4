"""Block of self-attention over a sequence or set."""

from maze_pl.perception.blocks.attention import SelfAttentionBlock
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class SelfAttentionSeqBlock(SelfAttentionBlock):
    """Self-attention over the elements of a sequence or set.

        y = x + softmax(Q K^T / sqrt(embed_dim)) V W_o,   Q, K, V = x W_q, x W_k, x W_v

    With several heads, each has embed_dim / num_heads features of Q, K and V. Vaswani et al. 2017,
    arXiv:1706.03762, without layer normalisation.

    Args:
        in_keys: Name of the input and, optionally, of a mask.
        out_keys: Name of the output and, optionally, of the attention weights (L, L), averaged over
            heads: entry (i, j) is the weight with which element i attends to element j.
        in_shapes: Shape of the input (L, n) and of the mask (L,), which is 1 where an element
            exists.
        embed_dim: Width of Q, K and V.
        add_input_to_output: Whether x is added.
        bias: Whether the linear maps have biases.
        num_heads: Number of heads, which divides `embed_dim`.
        dropout: Probability of setting a weight to 0 in training mode; the returned weights are
            those before dropout.

    Example:
        >>> SelfAttentionSeqBlock("sequence", "out", [5, 8], embed_dim=4).out_shapes()
        [(5, 8)]
    """

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
        super().__init__(in_keys, out_keys, in_shapes, embed_dim, add_input_to_output, bias, num_heads, dropout)

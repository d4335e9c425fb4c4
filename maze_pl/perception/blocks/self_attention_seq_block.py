"""Block of self-attention over a sequence or set."""

from maze_pl.perception.blocks.attention import SelfAttentionBlock


class SelfAttentionSeqBlock(SelfAttentionBlock):
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

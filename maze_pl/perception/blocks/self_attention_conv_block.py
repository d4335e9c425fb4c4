"""Block of self-attention over the pixels of an image."""

from maze_pl.perception.blocks.attention import SelfAttentionBlock
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class SelfAttentionConvBlock(SelfAttentionBlock):
    """Self-attention over the pixels of an image.

        y = x + gamma * softmax(Q K^T) V W_o,   Q, K, V = x W_q, x W_k, x W_v   (1 x 1 convolutions)

    gamma is learned and starts at 0, so that the block is the identity at first. Without x
    (`add_input_to_output=False`) there is no gamma. Zhang et al. 2018, arXiv:1805.08318.

    Args:
        in_keys: Name of the input and, optionally, of a mask.
        out_keys: Name of the output and, optionally, of the attention weights (H W, H W), averaged
            over heads: entry (i, j) is the weight with which pixel i, row by row, attends to pixel
            j.
        in_shapes: Shape of the input (C, H, W) and of the mask (H, W), which is 1 where a pixel
            exists.
        embed_dim: Channels of Q, K and V; C / 8 in the paper.
        add_input_to_output: Whether x is added.
        bias: Whether the linear maps have biases.
        num_heads: Number of heads, which divides `embed_dim`.
        dropout: Probability of setting a weight to 0 in training mode; the returned weights are
            those before dropout.

    Example:
        >>> SelfAttentionConvBlock("image", "out", [16, 5, 5], embed_dim=2).out_shapes()
        [(16, 5, 5)]
    """

    _of_images = True

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

"""Block of self-attention over the pixels of an image."""

from maze_pl.perception.blocks.attention import SelfAttentionBlock


class SelfAttentionConvBlock(SelfAttentionBlock):
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

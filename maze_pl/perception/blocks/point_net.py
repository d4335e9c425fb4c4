"""Block for sets of points without an order."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.dense import dense_layers
from maze_pl.perception.blocks.layer_options import ModuleClass
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes
from maze_pl.perception.blocks.pooling import masked_pooling
from maze_pl.perception.blocks.weight_init import make_module_init_normc


class PointNetFeatureBlock(PerceptionBlock):
    """Embeds each point by shared layers, then pools: [..., P, D] to [..., embedding_dim].

        y = max_p MLP(64, 128, embedding_dim)(T x_p)

    T is a matrix that a smaller network of the same kind predicts from all points; it starts as the
    identity. Qi et al. 2017, arXiv:1612.00593, without batch normalisation and without the feature
    transform.

    Args:
        in_keys: Name of the points and, optionally, of a mask.
        out_keys: Name of the output.
        in_shapes: Shapes of the points (P, D) and of the mask (P,), which is 1 where a point
            exists. Other points have no effect, whatever their values; if none exists, the output
            is 0.
        embedding_dim: Width of the output, at least 4; 1024 in the paper.
        non_lin: Activation, a class or its path.

    Example:
        >>> PointNetFeatureBlock("points", "vector", [20, 3], embedding_dim=32).out_shapes()
        [(32,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        embedding_dim: int,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        shape, *masks = self.in_shapes
        good = len(shape) >= 2 and masks in ([], [shape[:-1]]) and len(self.out_keys) == 1
        self.require(good, "points (P, D), maybe a mask (P,), and one output")
        self.require_numbers(4, embedding_dim=embedding_dim)
        activation = self.module_class(non_lin=non_lin)
        n = shape[-1]
        last = nn.Linear(embedding_dim // 4, n * n).apply(make_module_init_normc(0.0))
        self.all_points = dense_layers([n, 64, 128, embedding_dim], activation)
        self.matrix = dense_layers([embedding_dim, embedding_dim // 2, embedding_dim // 4], activation).append(last)
        self.matrix.append(nn.Unflatten(-1, (n, n)))
        self.embed = dense_layers([n, 64, 128, embedding_dim], activation)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the embedding [..., embedding_dim]."""
        x, *masks = (block_input[key] for key in self.in_keys)
        mask = masks[0] if masks else None
        x = x if mask is None else torch.where(mask.unsqueeze(-1) != 0, x, 0.0)
        matrix = self.matrix(masked_pooling(self.all_points(x), mask, pooling_func="max", dim=-2))
        transformed = x @ (matrix + torch.eye(x.shape[-1], dtype=matrix.dtype, device=x.device))
        embedded = self.embed(transformed)
        return {self.out_keys[0]: masked_pooling(embedded, mask, pooling_func="max", dim=-2)}

"""PointNet: one vector from a set of points, whatever their order and number."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.dense import dense_layers
from maze_pl.perception.blocks.general import MaskedGlobalPoolingBlock, PoolingFunction, masked_pooling
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes
from maze_pl.perception.module_class import ModuleClass


class PointNetFeatureBlock(PerceptionBlock):
    """Embeds each point by the same layers, then pools: [..., P, D] to [..., embedding_dim].

        y = pool_p MLP(128, embedding_dim)(T' MLP(64)(T x_p))

    T and T' are matrices that smaller networks of the same kind make of all points; they start as the identity. Qi et
    al. 2017, arXiv:1612.00593, without batch normalisation and without a loss that keeps T' orthogonal.

    Args:
        in_keys: Name of the points, and of a mask if there is one.
        out_keys: Name of what comes out.
        in_shapes: Shapes of the points (P, D), and of the mask (P,), which is 1 where a point exists; others change
            nothing, whatever they are, and without any points 0 comes out.
        embedding_dim: Width of what comes out, at least 4; 1024 in the paper.
        pooling_func_name: "max", "mean" or "sum".
        use_feature_transform: Whether there is T' too.
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
        pooling_func_name: PoolingFunction = "max",
        use_feature_transform: bool = False,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        shape, *masks = self.in_shapes
        good = len(shape) >= 2 and masks in ([], [shape[:-1]]) and len(self.out_keys) == 1
        self.require(good, "points (P, D), maybe a mask (P,), and one output")
        self.require(embedding_dim >= 4, f"embedding_dim of at least 4, not {embedding_dim}")
        self.transform = _Transform(shape[-1], embedding_dim, non_lin)
        self.low = dense_layers([shape[-1], 64], non_lin)
        self.feature_transform = _Transform(64, embedding_dim, non_lin) if use_feature_transform else None
        self.high = dense_layers([64, 128, embedding_dim], non_lin)
        shapes = [(*shape[:-1], embedding_dim), *masks]
        self.pooling = MaskedGlobalPoolingBlock(self.in_keys, self.out_keys, shapes, pooling_func_name, -2)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """[..., embedding_dim]."""
        x, *masks = (block_input[key] for key in self.in_keys)
        mask = masks[0] if masks else None
        x = x if mask is None else torch.where(mask.unsqueeze(-1) != 0, x, 0.0)
        x = self.low(self.transform(x, mask))
        x = x if self.feature_transform is None else self.feature_transform(x, mask)
        return self.pooling.forward({**block_input, self.in_keys[0]: self.high(x)})


class _Transform(nn.Module):
    """Multiplies points by a matrix that depends on all of them."""

    def __init__(self, n: int, embedding_dim: int, non_lin: ModuleClass) -> None:
        super().__init__()
        self.n, self.embed = n, dense_layers([n, 64, 128, embedding_dim], non_lin)
        last = nn.Linear(embedding_dim // 4, n * n)
        self.matrix = dense_layers([embedding_dim, embedding_dim // 2, embedding_dim // 4], non_lin).append(last)
        for parameter in last.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """[..., P, n] like `x`, from the points that `mask` [..., P] tells to exist."""
        pooled = masked_pooling(self.embed(x), mask, "max", -2)
        matrix = torch.unflatten(self.matrix(pooled), -1, (self.n, self.n))
        return x @ (matrix + torch.eye(self.n, dtype=matrix.dtype, device=x.device))

"""Block for sets of points without an order."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.dense import dense_layers
from maze_pl.perception.blocks.layer_options import Activations, Normalization
from maze_pl.perception.blocks.normalization import apply_layers
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes
from maze_pl.perception.blocks.pooling import PoolingFunction, masked_pooling
from maze_pl.perception.blocks.weight_init import make_module_init_normc

_N_FEATURES = 64  # width of the first layer, whose outputs the feature transform maps


class PointNetFeatureBlock(PerceptionBlock):
    """Embeds each point by shared layers, then pools: [..., P, D] to [..., embedding_dim].

        y = max_p MLP(64, 128, embedding_dim)(T x_p)

    T is a matrix that a smaller network of the same kind predicts from all points; it starts as the
    identity. With the feature transform, another such matrix (64, 64), predicted from the outputs
    of the first layer for all points, maps these outputs. Qi et al. 2017, arXiv:1612.00593, without
    the term of the loss that keeps the feature transform close to orthogonal.

    Args:
        in_keys: Name of the points and, optionally, of a mask.
        out_keys: Name of the output.
        in_shapes: Shapes of the points (P, D) and of the mask (P,), which is 1 where a point
            exists. Other points have no effect, whatever their values; if none exists, the output
            is 0.
        embedding_dim: Width of the output, at least 4; 1024 in the paper.
        non_lin: Activation, a class or its path; or a list with one for each of the three layers
            that embed points.
        pooling_func_name: "max", "mean" or "sum" over the points, also in the networks that predict
            the transforms.
        use_feature_transform: Whether the outputs of the first layer are transformed, too.
        normalization: "batch" or "layer" normalises each layer before its activation; None does
            not. The paper uses batch normalisation. Points that do not exist are not part of its
            statistics.

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
        non_lin: Activations = nn.ReLU,
        pooling_func_name: PoolingFunction = "max",
        use_feature_transform: bool = False,
        normalization: Normalization | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        shape, *masks = self.in_shapes
        good = len(shape) >= 2 and masks in ([], [shape[:-1]]) and len(self.out_keys) == 1
        self.require(good, "points (P, D), maybe a mask (P,), and one output")
        self.require_numbers(4, embedding_dim=embedding_dim)
        self.require_flags(use_feature_transform=use_feature_transform)
        self.require_normalization(normalization)
        known = isinstance(pooling_func_name, str) and pooling_func_name in ("max", "mean", "sum")
        self.require(known, f"pooling_func_name 'max', 'mean' or 'sum', not {pooling_func_name!r}")
        activations = self.module_classes(3, non_lin=non_lin)
        n = shape[-1]
        self.pooling_func_name: PoolingFunction = pooling_func_name
        widths = [_N_FEATURES, 128, embedding_dim]
        self.all_points, self.matrix = _transform_layers(n, widths, activations, normalization)
        self.embed = dense_layers([n, *widths], activations, normalization)
        self.n_first = len(self.embed) // 3  # modules of the first layer
        self.all_features: nn.Sequential | None = None
        if use_feature_transform:
            transform = _transform_layers(_N_FEATURES, widths, activations, normalization)
            self.all_features, self.feature_matrix = transform

    def after_initialisation(self) -> None:
        """Let the transforms start as the identity."""
        layers = [self.matrix[-2]]  # the last one unflattens
        if self.all_features is not None:
            layers.append(self.feature_matrix[-2])
        for layer in layers:
            for weight in layer.parameters():
                nn.init.zeros_(weight)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the embedding [..., embedding_dim]."""
        x, *masks = (block_input[key] for key in self.in_keys)
        x = self.as_floats(x)
        exists = masks[0] != 0 if masks else None
        x = x if exists is None else torch.where(exists.unsqueeze(-1), x, 0.0)
        x = self._transformed(x, exists, self.all_points, self.matrix)
        if self.all_features is None:
            return {self.out_keys[0]: self._pooled(apply_layers(self.embed, x, exists), exists)}
        layers = list(self.embed)
        features = apply_layers(layers[: self.n_first], x, exists)
        features = self._transformed(features, exists, self.all_features, self.feature_matrix)
        embedded = apply_layers(layers[self.n_first :], features, exists)
        return {self.out_keys[0]: self._pooled(embedded, exists)}

    def _transformed(self, x: Tensor, exists: Tensor | None, layers: nn.Sequential, matrix: nn.Sequential) -> Tensor:
        """Multiply points by a matrix that is predicted from all of them.

        Args:
            x: [..., P, n].
            exists: [..., P] bool, points that exist; None for all.
            layers: Layers that embed each point.
            matrix: Layers from the pooled embeddings to (n, n), to which the identity is added.
        """
        pooled = self._pooled(apply_layers(layers, x, exists), exists)
        change = apply_layers(matrix, pooled, None if exists is None else exists.any(-1))
        return x @ (change + torch.eye(x.shape[-1], dtype=change.dtype, device=x.device))

    def _pooled(self, x: Tensor, exists: Tensor | None) -> Tensor:
        return masked_pooling(x, exists, pooling_func=self.pooling_func_name, dim=-2)


def _transform_layers(
    size: int,
    widths: list[int],
    activations: list[type[nn.Module]],
    normalization: Normalization | None,
) -> tuple[nn.Sequential, nn.Sequential]:
    """Make the layers that predict a matrix (size, size) from vectors [..., P, size].

    Args:
        size: Size of the vectors.
        widths: Widths of the layers that embed each vector.
        activations: Activation of each of these layers.
        normalization: Normalisation of all layers but the last one.

    Returns:
        Layers that embed each vector, and layers from the pooled embeddings to the matrix.
    """
    embedding_dim = widths[-1]
    last = nn.Linear(embedding_dim // 4, size * size).apply(make_module_init_normc(0.0))
    embed = dense_layers([size, *widths], activations, normalization)
    narrow = [embedding_dim, embedding_dim // 2, embedding_dim // 4]
    matrix = dense_layers(narrow, activations[:2], normalization).append(last)
    matrix.append(nn.Unflatten(-1, (size, size)))
    return embed, matrix

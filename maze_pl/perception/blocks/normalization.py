"""Batch and layer normalisation of features, images and sets with masks."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.layer_options import Normalization

_BATCH_NORMS: tuple[type[nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d], ...] = (
    nn.BatchNorm1d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
)


class BatchNormalization(nn.Module):
    """Batch normalisation of features [..., C], or of images [B, C, ...].

        y = (x - m) / sqrt(v + eps) * weight + bias,   for each feature or channel

    In training mode, m and v are the mean and the variance of the current tensor, and the running
    statistics follow them; in evaluation mode they are the running statistics. Ioffe and Szegedy
    2015, arXiv:1502.03167. Departures: elements that do not exist are not part of the statistics;
    with fewer than two elements, which have no variance, training mode uses the running statistics.

    Args:
        n_features: C.
        n_image_dims: Number of dimensions after the channels of an image; 0 for features [..., C].
    """

    def __init__(self, n_features: int, n_image_dims: int = 0) -> None:
        super().__init__()
        self.norm = _BATCH_NORMS[n_image_dims](n_features)
        self.n_image_dims = n_image_dims

    def forward(self, x: Tensor, exists: Tensor | None = None) -> Tensor:
        """Normalise a tensor.

        Args:
            x: [..., C], or images [B, C, ...].
            exists: [...] bool, elements of [..., C] that count; None for all.
        """
        if self.training and exists is not None:
            return self._of_existing(x, exists)
        elements = x if self.n_image_dims else x.reshape(-1, x.shape[-1])
        norm = self.norm
        is_enough = elements.numel() >= 2 * norm.num_features
        if self.training and not is_enough and not isinstance(norm, nn.SyncBatchNorm):
            elements = nn.functional.batch_norm(
                elements, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
            )
        else:
            elements = norm(elements)
        return elements.reshape(x.shape)

    def _of_existing(self, x: Tensor, exists: Tensor) -> Tensor:
        """Normalise by statistics of some elements, without shapes that depend on values."""
        norm = self.norm
        running_mean, running_var, momentum = norm.running_mean, norm.running_var, norm.momentum
        assert running_mean is not None and running_var is not None and momentum is not None
        values = x.to(torch.promote_types(x.dtype, torch.float32))
        counts = exists.unsqueeze(-1).to(values.dtype)
        over = tuple(range(x.dim() - 1))
        n = counts.sum()
        mean = (values * counts).sum(over) / n.clamp(min=1.0)
        square = ((values - mean).square() * counts).sum(over)
        variance = square / n.clamp(min=1.0)
        is_enough = n > 1.0
        with torch.no_grad():
            step = momentum * is_enough
            running_mean.add_(step * (mean - running_mean))
            running_var.add_(step * (square / (n - 1.0).clamp(min=1.0) - running_var))
            if norm.num_batches_tracked is not None:
                norm.num_batches_tracked.add_(is_enough)
        mean = torch.where(is_enough, mean, running_mean)
        variance = torch.where(is_enough, variance, running_var)
        normalized = (values - mean) * (variance + norm.eps).rsqrt()
        return (normalized * norm.weight + norm.bias).to(x.dtype)


def normalization_layers(
    normalization: Normalization | None, n_features: int, n_image_dims: int = 0
) -> list[nn.Module]:
    """Make the layer of an option `normalization`, in a list that is empty without normalisation.

    Layer normalisation (Ba et al. 2016, arXiv:1607.06450) of images is over all channels and
    pixels, with one weight and bias for each channel.

    Args:
        normalization: "batch", "layer", or None.
        n_features: Number of features or channels.
        n_image_dims: Number of dimensions after the channels of an image; 0 for features [..., C].
    """
    if normalization is None:
        return []
    if normalization == "batch":
        return [BatchNormalization(n_features, n_image_dims)]
    return [nn.GroupNorm(1, n_features) if n_image_dims else nn.LayerNorm(n_features)]


def apply_layers(layers: Iterable[nn.Module], x: Tensor, exists: Tensor | None) -> Tensor:
    """Apply layers one after the other; statistics of batches are of existing elements.

    Args:
        layers: Layers for [..., n].
        x: [..., n].
        exists: [...] bool; None if all elements exist.
    """
    for layer in layers:
        x = layer(x, exists) if isinstance(layer, BatchNormalization) else layer(x)
    return x

"""Transformations of values: a compressed scale for large returns, and distributions over integers.

A critic may learn transformed values if returns differ greatly in magnitude.
"""

import torch
from torch import Tensor


def reduce_scale(value: Tensor, epsilon: float = 1e-3) -> Tensor:
    """Compress values to a scale that grows as their square root.

        h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x

    Pohlen et al. 2018, arXiv:1805.11593.

    Args:
        value: x, of any shape.
        epsilon: Keeps the scale from flattening; not negative.

    Returns:
        h(x), of the shape of `value`; `restore_scale` inverts it.

    Example:
        >>> reduce_scale(torch.tensor([-8.0, 0.0, 99.0]), epsilon=0.0)
        tensor([-2.,  0.,  9.])
    """
    return value / ((value.abs() + 1).sqrt() + 1) + epsilon * value  # exact near 0, and so is the gradient


def restore_scale(value: Tensor, epsilon: float = 1e-3) -> Tensor:
    """Invert `reduce_scale`.

        x = sign(y) (r^2 - 1),   r = (sqrt(1 + 4 epsilon (|y| + 1 + epsilon)) - 1) / (2 epsilon)

    The computation uses a form without loss of precision, which also allows an epsilon of 0.

    Args:
        value: y, of any shape.
        epsilon: The value passed to `reduce_scale`.

    Returns:
        x, of the shape of `value`.

    Example:
        >>> restore_scale(reduce_scale(torch.tensor([-8.0, 0.0, 99.0])))
        tensor([-8.0000,  0.0000, 99.0000])
    """
    a = value.abs() + 1 + epsilon
    s = (1 + 4 * epsilon * a).sqrt()
    return value * 4 * a * (2 * a / (s + 1) + 1) / ((2 * a - 1 + s) * (s + 1))  # y times (r - 1) / |y| times r + 1


def scalar_to_support(scalar: Tensor, low: int, high: int) -> Tensor:
    """Encode scalars as distributions over the integers from `low` to `high` with these means.

        p_i = max(0, 1 - |x - i|),   x between low and high

    At most two adjacent integers have a nonzero probability. Schrittwieser et al. 2020,
    arXiv:1911.08265, appendix F.

    Args:
        scalar: x [...], clipped to [low, high].
        low: Smallest integer.
        high: Largest integer.

    Returns:
        [..., high - low + 1] probabilities.

    Example:
        >>> scalar_to_support(torch.tensor([0.25, 7.0]), -1, 2)
        tensor([[0.0000, 0.7500, 0.2500, 0.0000],
                [0.0000, 0.0000, 0.0000, 1.0000]])
    """
    distance = scalar.clamp(low, high).unsqueeze(-1) - torch.arange(low, high + 1, device=scalar.device)
    return (1 - distance.abs()).clamp(min=0)


def support_to_scalar(probability: Tensor, low: int, high: int) -> Tensor:
    """Compute the means of distributions over the integers from `low` to `high`: sum_i p_i i.

    Args:
        probability: [..., high - low + 1] probabilities, such as the softmax of a critic's outputs.
        low: Smallest integer.
        high: Largest integer.

    Returns:
        [...] means.

    Raises:
        ValueError: The number of probabilities differs from the number of integers.

    Example:
        >>> support_to_scalar(torch.tensor([[0.0, 0.75, 0.25, 0.0]]), -1, 2)
        tensor([0.2500])
    """
    if probability.shape[-1] != high - low + 1:
        expected = f"[..., {high - low + 1}] for {low}..{high}"
        raise ValueError(f"probability has shape {tuple(probability.shape)}, expected {expected}")
    return probability @ torch.arange(low, high + 1, dtype=probability.dtype, device=probability.device)

"""Other scales of values: one on which large returns differ less, and distributions over whole numbers.

A critic may learn on them where returns are of very different sizes.
"""

import torch
from torch import Tensor


def reduce_scale(value: Tensor, epsilon: float = 1e-3) -> Tensor:
    """Values on a scale that grows as their square root.

        h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x

    Pohlen et al. 2018, arXiv:1805.11593.

    Args:
        value: x, of any shape.
        epsilon: Keeps the scale from flattening; not negative.

    Returns:
        h(x), of the shape of `value`; `restore_scale` takes it back.

    Example:
        >>> reduce_scale(torch.tensor([-8.0, 0.0, 99.0]), epsilon=0.0)
        tensor([-2.,  0.,  9.])
    """
    return value / ((value.abs() + 1).sqrt() + 1) + epsilon * value  # exact near 0, and so is the gradient


def restore_scale(value: Tensor, epsilon: float = 1e-3) -> Tensor:
    """The values of which `reduce_scale` makes these.

        x = sign(y) (r^2 - 1),   r = (sqrt(1 + 4 epsilon (|y| + 1 + epsilon)) - 1) / (2 epsilon)

    Computed in a form that loses no digits, and allows for an epsilon of 0.

    Args:
        value: y, of any shape.
        epsilon: The one of `reduce_scale`.

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
    """Distributions over the whole numbers from `low` to `high` whose means are these scalars.

        p_i = max(0, 1 - |x - i|),   x between low and high

    So at most two neighbours have a probability. Schrittwieser et al. 2020, arXiv:1911.08265, appendix F.

    Args:
        scalar: x [...]; beyond the ends it counts as the end.
        low: The smallest number.
        high: The greatest number.

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
    """Means of distributions over the whole numbers from `low` to `high`: sum_i p_i i.

    Args:
        probability: [..., high - low + 1] probabilities, such as the softmax of a critic's outputs.
        low: The smallest number.
        high: The greatest number.

    Returns:
        [...] means.

    Raises:
        ValueError: There is not one probability for each number.

    Example:
        >>> support_to_scalar(torch.tensor([[0.0, 0.75, 0.25, 0.0]]), -1, 2)
        tensor([0.2500])
    """
    if probability.shape[-1] != high - low + 1:
        expected = f"[..., {high - low + 1}] for {low}..{high}"
        raise ValueError(f"probability has shape {tuple(probability.shape)}, expected {expected}")
    return probability @ torch.arange(low, high + 1, dtype=probability.dtype, device=probability.device)

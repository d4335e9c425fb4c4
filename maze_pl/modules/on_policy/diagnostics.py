"""Statistics of a learning batch that cannot be averaged act by act."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.modules.on_policy.minibatches import PolicySamples
from maze_pl.system.ranks import sum_over_ranks, world_size

Numbers = Any
"""An array, or a tensor on any device."""
_SMALL = 4096
_RESOLUTION = 1e-7
"""Standard deviation relative to the mean or the values, below which returns count as constant."""


class ExplainedVariance(NamedTuple):
    """The explained variance of some returns as a fraction of sums, which can be added up.

    Attributes:
        explained: Sum of squared deviations of the returns, minus that of the errors; [] or a number.
        total: Sum of squared deviations of the returns. Both are 0 if there are no values, or the
            returns are constant on all ranks, up to rounding.
    """

    explained: Tensor | float
    total: Tensor | float


def explained_variances(samples: Mapping[StepKey, PolicySamples]) -> dict[StepKey, ExplainedVariance]:
    """Compute how much of the variance of the returns the values before learning explain.

        1 - Var(R - V) / Var(R)

    as in stable-baselines3. The variances are about the means over all ranks; adding `explained`
    and `total` over ranks gives the fraction of the whole batch, and over batches the mean weighted
    by the variances of their returns. A collective call.

    Args:
        samples: The acts of a whole learning batch, whose `value_weight` is 0 or 1.

    Returns:
        By step key; tensors on a device, so that nothing waits for it.
    """
    return {key: _explained_variance(*_doubles(part)) for key, part in samples.items()}


def _doubles(part: PolicySamples) -> tuple[Numbers, ...]:
    """Return weights, returns and values [B] in double precision; few of them in arrays, which cost less."""
    tensors = part.value_weight, part.return_, part.old_value
    if part.return_.is_cpu and len(part.return_) < _SMALL and world_size() == 1:
        return tuple(tensor.detach().numpy().astype(np.float64) for tensor in tensors)
    return tuple(tensor.double() for tensor in tensors)


def _explained_variance(weights: Numbers, returns: Numbers, values: Numbers) -> ExplainedVariance:
    """Compute the sums of one step key, with the same operations on arrays and on tensors."""
    errors = returns - values
    total_weight = weights.sum()
    count = total_weight.clip(1.0)
    mean, mean_error = weights @ returns / count, weights @ errors / count
    squares = weights @ (returns - mean) ** 2
    error_squares = weights @ (errors - mean_error) ** 2
    # returns are advantage + value, and rounded like these
    spread, size = squares, weights @ values**2
    if world_size() > 1:
        means, sums = torch.stack([mean, mean_error]), torch.stack([squares, error_squares])
        count, means, sums = _about_common_means(total_weight, means, sums)
        (mean, _), (squares, error_squares) = means.unbind(), sums.unbind()
        spread, size = sum_over_ranks(torch.stack([squares, size])).unbind()
    varies = spread > _RESOLUTION**2 * size.clip(count * mean**2)
    return ExplainedVariance((squares - error_squares) * varies, squares * varies)


def _about_common_means(count: Tensor, mean: Tensor, squares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Turn sums of squares about the means of a rank into those about the means over all ranks.

    Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance".

    Args:
        count: [] number of values.
        mean: [2] their means.
        squares: [2] sums of their squared deviations.

    Returns:
        The number of values and the means over all ranks, and the sums of this rank.
    """
    of_all = sum_over_ranks(torch.cat([count.unsqueeze(0), count * mean]))
    n_all = of_all[0].clamp(min=1.0)
    mean_of_all = of_all[1:] / n_all
    return n_all, mean_of_all, squares + count * (mean - mean_of_all).square()

"""Statistics of a learning batch that cannot be averaged act by act."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.modules.on_policy.minibatches import PolicySamples
from maze_pl.system.ranks import sum_over_ranks

_RESOLUTION = 1e-7
"""Standard deviation relative to the mean, below which returns in float32 count as constant."""


class ExplainedVariance(NamedTuple):
    """The explained variance of some returns as a fraction of sums, which can be added up.

    Attributes:
        explained: [] sum of squared deviations of the returns, minus that of the errors.
        total: [] sum of squared deviations of the returns. Both are 0 if there are no values, or the
            returns are constant on all ranks.
    """

    explained: Tensor
    total: Tensor


def explained_variances(samples: Mapping[StepKey, PolicySamples]) -> dict[StepKey, ExplainedVariance]:
    """Compute how much of the variance of the returns the values before learning explain.

        1 - Var(R - V) / Var(R)

    as in stable-baselines3. The variances are about the means over all ranks; adding `explained`
    and `total` over ranks gives the fraction of the whole batch, and over batches the mean weighted
    by the variances of their returns. A collective call.

    Args:
        samples: The acts of a whole learning batch, whose `value_weight` is 0 or 1.

    Returns:
        By step key; tensors, so that nothing waits for an accelerator.
    """
    errors: list[Tensor] = []
    returns: list[Tensor] = []
    weights: list[Tensor] = []
    moments: list[Tensor] = []
    for part in samples.values():
        weight = part.value_weight.double()
        return_ = part.return_.double()
        error = return_ - part.old_value
        weights.append(weight)
        returns.append(return_)
        errors.append(error)
        sums = [weight.sum(), weight.dot(return_), weight.dot(return_.square()), weight.dot(error)]
        moments.append(torch.stack(sums))
    of_all = sum_over_ranks(torch.stack(moments))
    means = of_all[:, 1:] / of_all[:, :1].clamp(min=1.0)
    found: dict[StepKey, ExplainedVariance] = {}
    for index, key in enumerate(samples):
        mean, mean_square, mean_error = means[index].unbind()
        total = weights[index].dot((returns[index] - mean).square())
        unexplained = weights[index].dot((errors[index] - mean_error).square())
        varies = mean_square - mean.square() > (_RESOLUTION * mean).square()
        both = torch.stack([total - unexplained, total])
        found[key] = ExplainedVariance(*torch.where(varies, both, 0.0).unbind())
    return found

"""Normalisation of advantages."""

import torch

from maze_pl.core.actor_id import StepKey
from maze_pl.modules.on_policy.minibatches import PolicySamples
from maze_pl.system.ranks import sum_over_ranks


def normalize_advantages(acts: dict[StepKey, PolicySamples], *, weighted: bool = False) -> None:
    """Normalise the advantages of each step key to mean 0 and standard deviation 1 over all ranks.

    This is a collective call. The advantage of a step key with a single act on all ranks becomes 0.
    If they are `weighted`, acts of weight 0 are left out of mean and deviation.
    """
    advantages = [part.advantage.double() for part in acts.values()]
    moments = []
    for x, part in zip(advantages, acts.values(), strict=True):
        count = x.new_full((), len(x))
        if weighted:
            counts = part.weight > 0
            count, x = counts.sum(dtype=x.dtype), torch.where(counts, x, 0.0)
        moments.append(torch.stack([count, x.sum(), x.square().sum()]))
    count, total, square = sum_over_ranks(torch.stack(moments)).unbind(1)
    mean = total / count.clamp(min=1.0)
    deviation = (square / count.clamp(min=1.0) - mean.square()).clamp(min=0.0).sqrt()
    for index, part in enumerate(acts.values()):
        part.advantage = ((advantages[index] - mean[index]) / (deviation[index] + 1e-8)).to(part.advantage.dtype)

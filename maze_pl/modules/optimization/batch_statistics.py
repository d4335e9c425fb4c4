"""Running statistics of batch normalisation, which all ranks must share.

Gradients are averaged over ranks, so weights are equal everywhere. Running statistics follow the
minibatches of one rank. Without averaging them, ranks would act with different networks, and a
resumed run, whose checkpoint has the statistics of the first rank, would not continue exactly.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from maze_pl.system.ranks import mean_over_ranks, world_size


@torch.no_grad()
def average_batch_statistics(module: nn.Module) -> None:
    """Average running means and variances of batch normalisation over ranks; a collective call.

    Args:
        module: Module whose parts are examined; they are the same on all ranks.
    """
    if world_size() == 1:
        return
    statistics: list[Tensor] = []
    for part in module.modules():
        if isinstance(part, _BatchNorm):
            buffers = (part.running_mean, part.running_var)
            statistics += [buffer for buffer in buffers if buffer is not None]
    if not statistics:
        return
    flat = mean_over_ranks(torch.cat([buffer.reshape(-1) for buffer in statistics]))
    start = 0
    for buffer in statistics:
        end = start + buffer.numel()
        buffer.copy_(flat[start:end].view_as(buffer))
        start = end

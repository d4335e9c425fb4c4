"""What the processes of a run say to each other; with one process nothing is said.

Every function here but `world_size` must be called by all ranks equally often.
"""

import atexit
from typing import Any

from torch import Tensor, distributed


def world_size() -> int:
    """Number of processes that train together."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """Sum a tensor over all ranks, in place."""
    if world_size() > 1:
        distributed.all_reduce(tensor)
    return tensor


def mean_over_ranks(tensor: Tensor) -> Tensor:
    """Average a tensor over all ranks, in place."""
    return sum_over_ranks(tensor).div_(world_size())


def gather_objects(value: Any) -> list[Any]:
    """The value of each rank, in their order, on all of them."""
    size = world_size()
    if size == 1:
        return [value]
    values: list[Any] = [None] * size
    distributed.all_gather_object(values, value)
    return values


def leave_at_exit() -> None:
    """Have the process group closed when the process ends.

    Threads of the gloo backend that still run when the interpreter ends abort the process (torch 2.13, one run in four
    of two that exchange a few tensors), and Lightning closes only groups of the nccl backend.
    """
    if world_size() > 1:
        atexit.register(lambda: distributed.is_initialized() and distributed.destroy_process_group())

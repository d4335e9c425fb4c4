"""Collective operations across ranks; with one process nothing is communicated.

All ranks must call every function here except `world_size` equally often.
"""

import atexit
import pickle
from typing import Any

from torch import Tensor, distributed

from maze_pl.system.worker_process import dumps


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
    """Gather a value from each rank, in rank order, on all ranks.

    On several ranks, tensors arrive on the CPU.
    """
    size = world_size()
    if size == 1:
        return [value]
    parts: list[Any] = [None] * size
    # As bytes: torch 2.13 cannot load pickled tensors of uint16, uint32 and uint64.
    distributed.all_gather_object(parts, dumps(value))
    return [pickle.loads(part) for part in parts]


def from_first_rank(value: Any) -> Any:
    """Return the value of rank 0, on all ranks; on several ranks, tensors arrive on the CPU."""
    if world_size() == 1:
        return value
    parts = [dumps(value) if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(parts, src=0)
    content = parts[0]
    assert content is not None
    return pickle.loads(content)


def leave_at_exit() -> None:
    """Close the process group when the process exits.

    Threads of the gloo backend that still run at interpreter exit abort the process (torch 2.13, in
    one of four runs of two processes that exchange a few tensors), and Lightning closes only nccl
    groups.
    """
    if world_size() > 1:
        atexit.register(lambda: distributed.is_initialized() and distributed.destroy_process_group())

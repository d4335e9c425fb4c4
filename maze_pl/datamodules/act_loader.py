"""Dataloader of imitation learning, whose batches are acts of a data set."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from maze_pl.core.batches import TrajectoryBatch
from maze_pl.datasets.in_memory_dataset import InMemoryDataset


class ActLoader:
    """A sized iterable of batches, which resumes where it was saved.

    Several ranks share one order of the acts: each has a different part of each joint batch.

    Args:
        dataset: The episodes, loaded.
        acts: [n] indices of the acts.
        batch_size: Acts per batch on each rank.
        order_seed: Returns the seed of this epoch's order; None keeps the order of `acts`.
        rank: Rank that learns from the batches.
        n_ranks: Number of ranks.
    """

    def __init__(
        self,
        dataset: InMemoryDataset,
        acts: Tensor,
        batch_size: int,
        order_seed: Callable[[], int] | None = None,
        rank: int = 0,
        n_ranks: int = 1,
    ) -> None:
        self._dataset = dataset
        self._acts = acts
        self._joint_size = batch_size * n_ranks
        self._order_seed = order_seed
        self._rank = rank
        self._n_ranks = n_ranks
        self._position = {"order": 0, "batch": 0}  # seed of the epoch's order, and batches served
        self._resume_at = self._position  # where the first epoch begins

    def __len__(self) -> int:
        return -(-len(self._acts) // self._joint_size)

    def __iter__(self) -> Iterator[TrajectoryBatch]:
        order = 0
        acts = self._acts
        if self._order_seed is not None:
            order = self._order_seed()
            acts = acts[torch.randperm(len(acts), generator=torch.Generator().manual_seed(order))]
        first = self._resume_at["batch"] if self._resume_at["order"] == order else 0
        for batch in range(first, len(self)):
            self._position = {"order": order, "batch": batch + 1}
            joint = acts[batch * self._joint_size : (batch + 1) * self._joint_size]
            yield self._dataset.batch(joint[self._rank :: self._n_ranks])

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch's order and the number of batches that were served."""
        return self._position

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Skip the batches of this epoch that were served before."""
        self._position = self._resume_at = state_dict

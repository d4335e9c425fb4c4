"""Dataloader of self-labelling, whose batches are acts of the best episodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from maze_pl.core.batches import BestEpisodesBatch
from maze_pl.core.seeding import derive_seed
from maze_pl.datamodules.best_episodes import BestEpisodes
from maze_pl.datasets.in_memory_dataset import InMemoryDataset
from maze_pl.records.record_files import SpacesTrajectoryRecord

if TYPE_CHECKING:
    from maze_pl.datamodules.self_labelling import SelfLabellingDataModule


class BestEpisodesLoader:
    """A sized iterable of the batches of an epoch, which resumes where it was saved.

    Args:
        data: Plays the episodes.
        rank: Rank that learns from the batches.
        n_ranks: Number of ranks, which share the acts of the episodes.
    """

    def __init__(self, data: SelfLabellingDataModule, rank: int, n_ranks: int) -> None:
        self._data = data
        self._rank = rank
        self._n_ranks = n_ranks
        self._position = {"epoch": -1, "batch": 0}  # the epoch, and batches served
        self._resume_at = self._position  # where the first epoch begins

    def __len__(self) -> int:
        return self._data.epoch_length

    def __iter__(self) -> Iterator[BestEpisodesBatch]:
        data = self._data
        trainer = data.trainer
        epoch = 0 if trainer is None else trainer.current_epoch
        first = self._resume_at["batch"] if self._resume_at["epoch"] == epoch else 0
        episodes = data.episodes if data.episodes.epoch == epoch else data.play(epoch)
        records = []
        for encoded in episodes.records:
            records.append(SpacesTrajectoryRecord.from_bytes(bytearray(encoded)))
        dataset = InMemoryDataset(records).load(spec=data.spec)
        generator = torch.Generator().manual_seed(derive_seed(data.seed, "acts", epoch))
        size = data.batch_size * self._n_ranks
        n_passes = -(-size * len(self) // len(dataset))
        order = torch.cat([torch.randperm(len(dataset), generator=generator) for _ in range(n_passes)])
        for number in range(first, len(self)):
            self._position = {"epoch": epoch, "batch": number + 1}
            joint = order[number * size : (number + 1) * size]
            acts = dataset.batch(joint[self._rank :: self._n_ranks]).acts
            batch = BestEpisodesBatch(acts)
            if number == 0:
                batch.summaries = episodes.summaries
                batch.measures = episodes.measures
                batch.seconds = episodes.seconds
            if number == len(self) - 1:
                data.episodes = BestEpisodes()  # checkpoints need those of unfinished epochs only
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch and the number of batches that were served."""
        return self._position

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Skip the batches of this epoch that were served before."""
        self._position = self._resume_at = state_dict

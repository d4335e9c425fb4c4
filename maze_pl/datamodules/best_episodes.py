"""The episodes from which self-labelling learns in an epoch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class BestEpisodes:
    """The best episode of each start of an epoch.

    Args:
        epoch: Number of the epoch; -1 for none.
        records: Each episode's record, as bytes.

    Attributes:
        summaries: Statistics of all episodes that this rank has played, until they are served.
        measures: Statistics of the epoch.
        seconds: Duration of playing.
    """

    def __init__(self, epoch: int = -1, records: list[bytes] | None = None) -> None:
        self.epoch = epoch
        self.records = records or []
        self.summaries: list[Any] = []
        self.measures: dict[str, float] = {}
        self.seconds = 0.0

    def to_tensors(self) -> list[Tensor]:
        """Return the records as tensors of bytes, for checkpoints."""
        return [torch.frombuffer(bytearray(record), dtype=torch.uint8) for record in self.records]

    @classmethod
    def from_tensors(cls, epoch: int, records: list[Tensor]) -> BestEpisodes:
        """Restore the result of `to_tensors`."""
        return cls(epoch, [record.numpy().tobytes() for record in records])

"""Episodes that ended on a device, whose statistics are fetched when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import overload

import numpy as np
import torch
from torch import Tensor

from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.episode_batch import EpisodeBatch, PendingEpisodes


class TensorEpisodes(PendingEpisodes):
    """The episodes that ended in a rollout of N environments on a device.

    Nothing is fetched from the device before something is read, usually at the end of an epoch.

    Args:
        ended: [T, N] bool, whether an episode ended with this row.
        numbers: Name -> [T, N] of the episodes: `env_steps`, `reward`, `episode_index`, and
            `kpi <name>`.
        first_env_index: Index of the first environment across all ranks and workers.
        check: Called when the episodes are fetched; raises an error if data of the rollout is invalid.
    """

    def __init__(
        self, ended: Tensor, numbers: Mapping[str, Tensor], first_env_index: int, check: Callable[[], None]
    ) -> None:
        self._on_device = ended.clone(), {name: tensor.clone() for name, tensor in numbers.items()}
        self._first_env_index = first_env_index
        self._check = check
        self._fetched: EpisodeBatch | None = None

    def fetched(self) -> EpisodeBatch:
        """Return the episodes, sorted by environment and episode."""
        if self._fetched is None:
            self._check()
            ended, numbers = self._on_device
            env, row = ended.T.nonzero(as_tuple=True)
            columns = {name: tensor[row, env].cpu().numpy() for name, tensor in numbers.items()}
            kpis = {}
            for name, values in columns.items():
                if name.startswith("kpi "):
                    kpis[name.removeprefix("kpi ")] = values.astype(np.float64)
            self._fetched = EpisodeBatch(
                env.cpu().numpy() + self._first_env_index,
                columns["episode_index"],
                columns["env_steps"],
                columns["reward"],
                kpis,
            )
            self._on_device = ended[:0], {}
        return self._fetched

    def __len__(self) -> int:
        return len(self.fetched())

    @overload
    def __getitem__(self, index: int) -> EpisodeSummary: ...
    @overload
    def __getitem__(self, index: slice) -> EpisodeBatch: ...
    def __getitem__(self, index: int | slice) -> EpisodeSummary | EpisodeBatch:
        """Return the summary of one episode, or a batch of several."""
        return self.fetched()[index]

    def __iter__(self) -> Iterator[EpisodeSummary]:
        """Yield the summary of each episode."""
        return iter(self.fetched())


def flags_of_invalid(tensor: Tensor) -> Tensor:
    """Return for each environment whether any of its numbers is NaN or infinite.

    Args:
        tensor: [T, N, ...], floating point.

    Returns:
        [N] bool.
    """
    return torch.isfinite(tensor).transpose(0, 1).flatten(1).all(1).logical_not()

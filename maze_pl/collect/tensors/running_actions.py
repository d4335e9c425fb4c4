"""Actions of running episodes on a device, until the episodes end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode_batch import consecutive
from maze_pl.core.spec import Spec
from maze_pl.envs.structured_env import Array

Actions = Mapping[StepKey, Mapping[str, Tensor]]
"""Step key -> head -> tensor."""


@dataclass
class _Piece:
    """Actions of consecutive acts, environment by environment.

    Attributes:
        values: Step key -> head -> [V, ...].
        starts: [N] place of the first act of each environment that belongs to a running episode.
        counts: [N] number of these acts.
    """

    values: Actions
    starts: Array
    counts: Array

    @property
    def size(self) -> int:
        """Number of acts in memory."""
        tensors = [tensor for heads in self.values.values() for tensor in heads.values()]
        return len(tensors[0]) if tensors else 0


class RunningActions:
    """Actions of the running episodes of N environments, and of those that end.

    The actions of a rollout are kept as they come. Two pieces are joined only if the earlier one is
    at most twice as large, so that few pieces remain, and actions of long episodes are rarely copied.

    Args:
        spec: Observation and action spaces of the agents.
        n_envs: Number of environments.
    """

    def __init__(self, spec: Spec, n_envs: int) -> None:
        self._spec = spec
        self._n_envs = n_envs
        self._pieces: list[_Piece] = []

    def add(
        self, actions: Actions, n_rows: int, env: Array, row: Array
    ) -> tuple[dict[StepKey, dict[str, Array]], Array]:
        """Add the actions of a rollout of T rows; remove those of the episodes that ended in it.

        Args:
            actions: Step key -> head -> [T, N, ...].
            n_rows: T.
            env: [n] environments of the ended episodes, ascending.
            row: [n] their last rows.

        Returns:
            Step key -> head -> [V, ...] actions of the ended episodes, one episode after the other,
            and [n] the number of acts of each of them.
        """
        is_first = np.diff(env, prepend=-1) > 0
        before = np.where(is_first, -1, np.roll(row, 1))
        values = {}
        for key, heads in actions.items():
            values[key] = {head: tensor.transpose(0, 1).flatten(0, 1) for head, tensor in heads.items()}
        # the parts of the ended episodes: first act and number of acts, in each piece and this rollout
        parts = [(piece, piece.starts[env], piece.counts[env] * is_first) for piece in self._pieces]
        last = np.full(self._n_envs, -1)
        last[env] = row
        firsts = np.arange(self._n_envs) * n_rows
        rollout = _Piece(values, firsts + last + 1, n_rows - 1 - last)
        parts.append((rollout, firsts[env] + before + 1, row - before))
        lengths = np.sum([counts for *_, counts in parts], 0)
        ended = self._ended(parts, lengths) if len(env) else {}
        for piece in self._pieces:
            piece.counts[env] = 0
        self._pieces = [piece for piece in (*self._pieces, rollout) if piece.counts.any()]
        self._join_last()
        return ended, lengths

    def _ended(self, parts: list[tuple[_Piece, Array, Array]], lengths: Array) -> dict[StepKey, dict[str, Array]]:
        """Return actions of episodes, from their parts in several pieces."""
        filled = np.cumsum(lengths) - lengths
        ended: dict[StepKey, dict[str, Array]] = {}
        for key, step in self._spec.steps.items():
            ended[key] = {}
            for head, space in step.action_space.spaces.items():
                ended[key][head] = np.empty((int(lengths.sum()), *(space.shape or ())), space.dtype)
        for piece, starts, counts in parts:
            place = torch.from_numpy(consecutive(starts, counts))
            into = consecutive(filled, counts)
            filled = filled + counts
            if not len(into):
                continue
            for key, heads in piece.values.items():
                for head, tensor in heads.items():
                    ended[key][head][into] = tensor[place.to(tensor.device)].cpu().numpy()
        return ended

    def _join_last(self) -> None:
        """Join the last pieces while they are large compared to the one before; drop ended acts."""
        while len(self._pieces) > 1 and self._pieces[-2].size <= 2 * self._pieces[-1].size:
            self._pieces[-2:] = [_joined(self._pieces[-2:])]
        first = self._pieces[:1]
        if first and first[0].size > 2 * first[0].counts.sum():
            self._pieces[0] = _joined(first)

    def state(self) -> tuple[Actions, Array]:
        """Return the actions on the host, environment by environment, and the number of each, [N]."""
        if not self._pieces:
            return {}, np.zeros(self._n_envs, np.int64)
        self._pieces = [_joined(self._pieces)]
        (piece,) = self._pieces
        values = {}
        for key, heads in piece.values.items():
            values[key] = {head: tensor.cpu() for head, tensor in heads.items()}
        return values, piece.counts.copy()

    def load(self, actions: Actions, counts: Array) -> None:
        """Restore the result of `state`."""
        values = {key: dict(heads) for key, heads in actions.items()}
        starts = np.cumsum(counts) - counts
        self._pieces = [_Piece(values, starts, counts.copy())] if counts.any() else []


def _joined(pieces: Sequence[_Piece]) -> _Piece:
    """Join pieces, without acts that have ended."""
    counts = np.sum([piece.counts for piece in pieces], 0)
    starts = np.cumsum(counts) - counts
    filled = starts
    places = []
    for piece in pieces:
        places.append((consecutive(piece.starts, piece.counts), consecutive(filled, piece.counts)))
        filled = filled + piece.counts
    values: dict[StepKey, dict[str, Tensor]] = {}
    for key, heads in pieces[-1].values.items():
        values[key] = {}
        for head, newest in heads.items():
            parts = [piece.values[key][head] for piece in pieces]
            dtype = reduce(torch.promote_types, [part.dtype for part in parts])
            joined = newest.new_empty((int(counts.sum()), *newest.shape[1:]), dtype=dtype)
            for part, (place, into) in zip(parts, places, strict=True):
                chosen = part[torch.from_numpy(place).to(part.device)]
                joined[torch.from_numpy(into).to(newest.device)] = chosen.to(joined)
            values[key][head] = joined
    return _Piece(values, starts, counts)

"""The acts of running episodes, kept so that a resumed run can play the episodes again and go on from there."""

from typing import Any

import numpy as np

from maze_pl.collect.storage import Array, RolloutStorage
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import Spec
from maze_pl.envs.vector.vector_env import History

Chunk = tuple[Array, dict[StepKey, dict[str, Array]]]
"""Positions among the step keys of consecutive acts, and the actions of each key."""


class Histories:
    """For each environment, the acts since its episode began, in chunks of one rollout.

    Args:
        spec: What agents see and do.
        n_envs: Number of environments.
    """

    def __init__(self, spec: Spec, n_envs: int) -> None:
        self.spec, self._flat = spec, spec.is_flat
        self._chunks: list[list[Chunk]] = [[] for _ in range(n_envs)]

    def forget(self, n: int) -> None:
        """An environment has started another episode."""
        self._chunks[n] = []

    def extend(self, storage: RolloutStorage, n_rows: Array) -> None:
        """Take over the acts of a rollout.

        Args:
            storage: The rollout.
            n_rows: [N] rows of each environment.
        """
        n_most = int(n_rows.max())
        ends: Array = storage.rows.terminated[:n_most] | storage.rows.truncated[:n_most]
        has_ended: list[bool] = np.any(ends, axis=0).tolist()
        starts: list[int] = (n_most - ends[::-1].argmax(0)).tolist()  # the row after the last end
        for n, stop in enumerate(n_rows.tolist()):
            start = starts[n] if has_ended[n] else 0
            if has_ended[n]:
                self._chunks[n] = []
            if start < stop:
                self._chunks[n].append(self._chunk(storage, n, start, stop))

    def _chunk(self, storage: RolloutStorage, n: int, start: int, stop: int) -> Chunk:
        if self._flat:
            key, segment = next(iter(storage.segments.items()))
            actions = {head: array[start:stop, n].copy() for head, array in segment.action.items()}
            return np.zeros(stop - start, np.int64), {key: actions}
        keys, times, positions, taken = [], [], [], {}
        for index, (key, segment) in enumerate(storage.segments.items()):
            width = self.spec.steps[key].n_slots
            part = slice(start, stop), slice(n * width, (n + 1) * width)
            rows, slots = np.nonzero(segment.active[part])
            order = np.lexsort((segment.position[part][rows, slots], rows))
            rows, slots = rows[order], slots[order]
            keys.append(np.full(len(rows), index))
            times.append(rows)
            positions.append(segment.position[part][rows, slots])
            taken[key] = {head: array[part][rows, slots] for head, array in segment.action.items()}
        order = np.lexsort((np.concatenate(positions), np.concatenate(times)))
        return np.concatenate(keys)[order], taken

    def state_dict(self, episodes: list[int]) -> list[dict[str, Any]]:
        """The running episodes.

        Args:
            episodes: [N] index of the episode that each environment is in.
        """
        state = []
        for chunks, episode in zip(self._chunks, episodes, strict=True):
            trees = [{str(key): actions for key, actions in taken.items()} for _, taken in chunks]
            actions = mapped(lambda *parts: np.concatenate(parts), *trees) if trees else {}
            keys = np.concatenate([np.zeros(0, np.int64), *(keys for keys, _ in chunks)])
            state.append({"episode": episode, "keys": keys, "actions": actions})
        return state

    def load_state_dict(self, state: list[dict[str, Any]]) -> list[History]:
        """Take over running episodes.

        Returns:
            For each environment, the acts that lead to where it was.
        """
        histories = []
        for n, entry in enumerate(state):
            actions = {key: entry["actions"].get(str(key), {}) for key in self.spec.steps}
            self._chunks[n] = [(entry["keys"], actions)] if len(entry["keys"]) else []
            histories.append(History(entry["episode"], entry["keys"], actions))
        return histories

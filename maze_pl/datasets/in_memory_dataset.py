"""Data set of recorded episodes, kept as a few large arrays."""

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from maze_pl.collect.engines import Engine, InProcessEngine, ProcessEngine
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import TrajectoryBatch, TransitionBatch
from maze_pl.core.spaces import leaves, mapped
from maze_pl.core.spec import Spec
from maze_pl.datasets.act_faults import fault_of
from maze_pl.datasets.column_store import ColumnStore
from maze_pl.datasets.episode_loader import (
    Damaged,
    EpisodeLoader,
    Loaded,
    MakeEnv,
    adapting,
    entries_of,
    has_states,
    name_of_source,
    refuse_states,
    require_same_spaces,
    sources_of,
    without_copies,
)
from maze_pl.datasets.identity_trajectory_processor import IdentityTrajectoryProcessor
from maze_pl.datasets.trajectory_processors import TrajectoryProcessor
from maze_pl.envs.trajectory_record import Trajectory
from maze_pl.envs.wrappers.sample_episodes import PROGRESS_AFTER
from maze_pl.records.columns import Columns, taken
from maze_pl.records.same_episode import Parts

_FILES_PER_PROCESS = 200
"""Number of files of states that are worth another process."""
_EPISODES_TOGETHER = 100
"""Number of episodes that are copied at once from temporary files."""
_MOST_NAMES = 3
"""Number of sources that messages name."""


class InMemoryDataset:
    """In-memory data set of recorded episodes; batches are drawn from their acts.

    Space records are used as they are. State records are converted after all space records, by the
    environment passed to `load`, even if it has changed since they were recorded. An episode
    recorded in both forms, as `maze-pl rollout` does, is read from the space record only. An
    episode that occurs twice, with the same id and the same actions, is in the data set once. The
    part of an episode that was recorded before a resumed run continued it is left out.

    Args:
        input_data: A file, a folder with files at any depth, a record, a Minari data set as
            `minari:<id>`, or a sequence of these.
        trajectory_processor: Turns episodes into training data; all acts unchanged if None.
        n_workers: Number of processes that convert files of state records. 1 means this process; 0
            means one per core, but at most one per 200 files.
        trust: Whether files may execute code while they are read; set it only if you know who wrote
            them.
        on_damaged: Treatment of files that are damaged or hold no episode: `refuse` raises, `skip`
            leaves out what cannot be read and warns at the end with the count. Other spaces, and
            states of another environment, are always refused.
        max_memory: Size in bytes above which acts are kept in unnamed temporary files, which leave
            nothing behind; 0 for no limit.

    Raises:
        TypeError: Something in the input is neither a path nor a record.
        ValueError: There is nothing to read, reading is not allowed, the data is damaged, or
            episodes do not fit together.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.envs.wrappers import SpacesRecordingWrapper
        >>> env = SpacesRecordingWrapper(GymMazeEnv("CartPole-v1"))
        >>> observation, info = env.reset(seed=1)
        >>> for action in (0, 1, 1):
        ...     result = env.step({"action": action})
        >>> env.close()
        >>> dataset = InMemoryDataset(env.trajectories[0]).load()
        >>> dataset.batch(torch.tensor([2, 0])).acts[0].action
        {'action': tensor([1, 0])}

    Attributes:
        spec: Specification of the episodes, once they are loaded.
        damaged: Messages naming what could not be read, and why.
        n_episodes: Number of episodes.
        has_space_records: Whether some acts are loaded that no environment has converted.
    """

    def __init__(
        self,
        input_data: Sequence[Any] | str | Path | Trajectory,
        trajectory_processor: TrajectoryProcessor | None = None,
        n_workers: int = 0,
        trust: bool = False,
        on_damaged: Literal["refuse", "skip"] = "refuse",
        max_memory: int = 0,
    ) -> None:
        if on_damaged not in ("refuse", "skip") or n_workers < 0 or max_memory < 0:
            numbers = f"and {n_workers=} and {max_memory=} at least 0"
            raise ValueError(f"on_damaged={on_damaged!r} must be 'refuse' or 'skip', {numbers}")
        self.input_data = entries_of(input_data)
        self.processor = trajectory_processor or IdentityTrajectoryProcessor()
        self.n_workers = n_workers
        self.trust = trust
        self.on_damaged = on_damaged
        self.max_memory = max_memory
        self.spec: Spec | None = None
        self._masked: Spec | None = None  # with the masks that actions were compared with
        self._given_masks: dict[str, str] = {}  # with which the episodes were read
        self.damaged: list[str] = []
        self.n_episodes = 0
        self._columns: dict[StepKey, Columns] = {}
        self._counts: list[list[int]] = []  # for each episode, acts of each sub-step
        self._has_converted = False  # True if an environment converted some of the loaded episodes
        self.has_space_records = False

    def __len__(self) -> int:
        """Number of acts."""
        return sum(map(sum, self._counts))

    @property
    def lengths(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """[n_episodes, sub-steps] number of acts in each episode and sub-step."""
        return np.array(self._counts, np.int64)

    @property
    def is_converted(self) -> bool:
        """True if the environment that was passed to `load` has converted states to the loaded acts."""
        return bool(self._columns) and self._has_converted

    def __repr__(self) -> str:
        """Return sources and size."""
        size = "not loaded"
        if self._columns:
            size = f"{self.n_episodes:,} episodes, {len(self):,} acts"
        return f"{type(self).__name__}({self._names}: {size})"

    @property
    def _names(self) -> str:
        """Names of the sources, of the first ones if there are many."""
        n_more = len(self.input_data) - _MOST_NAMES
        names = ", ".join(map(name_of_source, self.input_data[:_MOST_NAMES]))
        return f"{names} and {n_more:,} more" if n_more > 0 else names

    def load(
        self, make_env: MakeEnv | None = None, spec: Spec | None = None, masks: Mapping[str, str] | None = None
    ) -> Self:
        """Read all episodes, unless they were already read.

        Args:
            make_env: Makes the environment that converts states; a plain gymnasium environment or
                an array environment is adapted.
            spec: Specification of that environment, which episodes must match; read from it if
                None.
            masks: Action head -> observation that masks it, in addition to those of `spec`. If one is
                new and forbids an action that was read, all is read again, also by earlier masks.

        Raises:
            TypeError: `make_env` cannot be called, or makes something else.
            ValueError: See the class; also if a mask fits no sub-step.
        """
        masks = masks or {}
        make_env = adapting(make_env)
        if self.spec is not None and self._columns:
            require_same_spaces(self.spec, spec or self.spec, self._names, "the environment's")
            if self._fits((spec or self.spec).with_masks(masks)):
                return self
        masks = {**self._given_masks, **masks}
        if make_env is not None and spec is None:
            with closing(make_env()) as env:
                spec = Spec.of(env)
        self._columns = {}
        self._counts, self.damaged = [], []
        self._has_converted = self.has_space_records = False
        with ExitStack() as files:
            spec, columns = self._read(make_env, spec, masks, files)
        if self.damaged:
            skipped = f"skipped, {len(self.damaged)} in all: {', '.join(self.damaged[:3])}"
            warnings.warn(skipped, stacklevel=2)
        if not len(self):
            raise ValueError(f"{self._names}: there is no act to learn from")
        self.spec = spec
        self._given_masks = masks
        self.n_episodes = len(self._counts)
        self._columns = mapped(torch.from_numpy, columns)
        return self

    def _read(
        self, make_env: MakeEnv | None, spec: Spec | None, masks: Mapping[str, str], files: ExitStack
    ) -> tuple[Spec | None, Any]:
        """Read all episodes that have the same spaces.

        Args:
            make_env: As for `load`.
            spec: As for `load`; if None, the first episode determines it.
            masks: As for `load`.
            files: Closes the temporary files.

        Returns:
            The specification, and the columns of all acts, by step key; None if there is no
            episode.
        """
        owner = "the environment's"
        matching = spec  # the last specification that was compared; most episodes share one object
        store = ColumnStore(files)
        parts = files.enter_context(closing(Parts(math.ceil(self.max_memory / 10))))
        episodes: list[Loaded] = []
        n_bytes = 0
        identities: set[bytes] = set()
        self._masked = None if spec is None else spec.with_masks(masks)
        for episode in self._episodes(make_env, spec):
            identity = episode.choices.identity()
            if identity in identities:
                continue
            if spec is None:
                spec = episode.spec
                self._masked = spec.with_masks(masks)
                owner = f"that of {episode.name}"
            if episode.spec is not matching:
                require_same_spaces(episode.spec, spec, episode.name, owner)
                matching = episode.spec
            if self.on_damaged == "skip" and not self._is_valid(episode):
                continue  # a copy of the episode may be intact
            identities.add(identity)
            self._has_converted |= episode.is_converted
            self.has_space_records |= not episode.is_converted
            episodes.append(episode)
            if self.max_memory:
                n_bytes += sum(array.nbytes for array in leaves(episode.acts))
                n_bytes += sum(map(len, episode.choices.acts))
                if n_bytes > self.max_memory:
                    store.write(self._joined(episodes, parts))
                    episodes = []
                    n_bytes = 0
        if episodes:
            joined = self._joined(episodes, parts)
            if store.columns is None:
                return spec, self._without(parts.find(), joined, files)
            store.write(joined)
        return spec, self._without(parts.find(), store.columns, files)

    def _joined(self, episodes: list[Loaded], parts: Parts) -> Any:
        """Concatenate episodes.

        Raises:
            ValueError: A value is outside its space, or an action is masked.
        """
        assert self._masked is not None
        joined = mapped(_concatenated, *(episode.acts for episode in episodes))
        if self.on_damaged == "refuse" and fault_of(self._masked, joined):  # faster than each episode
            for episode in episodes:
                self._is_valid(episode)
        for episode in episodes:
            self._counts.append([len(columns["agent_id"]) for columns in episode.acts.values()])
            parts.add(episode.choices)
        return joined

    def _without(self, left_out: list[int], columns: Any, files: ExitStack) -> Any:
        """Return columns without the episodes of some numbers."""
        if not left_out:
            return columns
        is_kept = np.ones(len(self._counts), bool)
        is_kept[left_out] = False
        counts = np.array(self._counts)
        self._counts = counts[is_kept].tolist()
        # by sub-step, [n_episodes] acts up to the end of each episode
        ends = dict(zip(columns, np.cumsum(counts, axis=0).T, strict=True))
        store = ColumnStore(files)
        n_together = _EPISODES_TOGETHER if self.max_memory else len(counts)
        for first in range(0, len(counts), n_together):
            some = slice(first, first + n_together)
            chosen = {}
            for (key, of_key), n_acts in zip(columns.items(), counts[some].T, strict=True):
                begin = ends[key][first] - n_acts[0]
                rows = slice(begin, begin + n_acts.sum())
                chosen[key] = taken(taken(of_key, rows), np.repeat(is_kept[some], n_acts))
            if not self.max_memory:
                return chosen
            store.write(chosen)
        return store.columns

    def _fits(self, spec: Spec) -> bool:
        """Return whether the masks of a specification allow all loaded actions."""
        assert self._masked is not None
        known = self._masked.steps
        if all(step.masks.items() <= known[key].masks.items() for key, step in spec.steps.items()):
            return True
        if fault_of(spec, mapped(Tensor.numpy, self._columns)):
            return False
        self._masked = spec
        return True

    def _is_valid(self, episode: Loaded) -> bool:
        """Return whether the values of an episode are in their spaces; note the first that is not."""
        assert self._masked is not None
        problem = fault_of(self._masked, episode.acts)
        if problem:
            self._note_damage(f"{episode.place}: {problem}")
        return not problem

    def _note_damage(self, problem: str) -> None:
        """Note what cannot be read, or raise ValueError if damage is refused."""
        if self.on_damaged == "refuse":
            raise ValueError(f"{problem}; on_damaged=skip leaves out what cannot be read")
        self.damaged.append(problem)

    def _episodes(self, make_env: MakeEnv | None, spec: Spec | None) -> Iterator[Loaded]:
        """Yield all episodes, also copies, in the order of `input_data`, states last."""
        sources = without_copies(list(chain.from_iterable(map(sources_of, self.input_data))))
        n_state_files = sum(map(has_states, sources))
        if not self.trust:
            refuse_states(sources)
        n_processes = self._n_processes(n_state_files)
        engine: Engine = InProcessEngine() if n_processes == 1 else ProcessEngine(n_processes)
        make_loader = partial(EpisodeLoader, self.processor, self.trust, make_env, spec)
        engine.start(lambda policy, actor, restarts: make_loader(), None)
        method = "load" if n_processes == 1 else "load_all"
        bar = tqdm(
            total=len(sources),
            desc="recorded episodes",
            delay=PROGRESS_AFTER,
            disable=None,
            leave=False,
        )
        with closing(engine), bar:
            for start in range(0, len(sources), n_processes):
                group = sources[start : start + n_processes]
                jobs = [(i, method, (source,)) for i, source in enumerate(group)]
                for loaded in chain.from_iterable(engine.map(jobs)):
                    if isinstance(loaded, Damaged):
                        self._note_damage(loaded.message)
                    else:
                        yield loaded
                bar.update(len(jobs))

    def _n_processes(self, n_state_files: int) -> int:
        """Number of processes; other sources are read faster than sent between processes."""
        if self.n_workers:
            return max(1, min(self.n_workers, n_state_files))
        return max(1, min(len(os.sched_getaffinity(0)), n_state_files // _FILES_PER_PROCESS))

    def split(self, validation_percentage: float, seed: int) -> tuple[Tensor, Tensor]:
        """Split acts at random into a training and a validation set, by whole episodes.

        Args:
            validation_percentage: Percentage of episodes to hold out. The number is rounded, but
                never all episodes, and at least one if the percentage is above 0.
            seed: Determines the episodes that are held out.

        Returns:
            Indices of the training acts and of the held-out acts, for `batch`.
        """
        least = 1 if validation_percentage > 0 else 0
        n_held_out = max(round(self.n_episodes * validation_percentage / 100), least)
        n_held_out = min(n_held_out, self.n_episodes - 1)
        order = np.random.default_rng(seed).permutation(self.n_episodes)
        is_held_out = np.isin(np.arange(self.n_episodes), order[:n_held_out])  # [n_episodes]
        by_step = [np.repeat(is_held_out, counts) for counts in np.transpose(self._counts)]
        act_is_held_out = np.concatenate(by_step)  # [acts], in the order of the sub-steps
        training = torch.from_numpy(np.flatnonzero(~act_is_held_out))
        return training, torch.from_numpy(np.flatnonzero(act_is_held_out))

    def batch(self, acts: Tensor) -> TrajectoryBatch:
        """Return a batch of the given acts.

        Args:
            acts: [n] indices of acts, counted through all sub-steps in order.
        """
        batch = {}
        first = 0  # index of the sub-step's first act
        for key, columns in self._columns.items():
            size = len(columns["agent_id"])
            rows = acts
            if len(self._columns) > 1:
                rows = acts[(acts >= first) & (acts < first + size)] - first
            batch[key] = TransitionBatch(**taken(columns, rows))
            first += size
        return TrajectoryBatch(batch)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the loaded acts when pickling: other processes read everything themselves."""
        return {**self.__dict__, "_columns": {}}


def _concatenated(*parts: Any) -> Any:
    """Concatenate arrays, with the dtype of the first one."""
    return np.concatenate(parts, dtype=parts[0].dtype, casting="unsafe")

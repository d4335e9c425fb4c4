"""Data set of recorded episodes, kept as a few large arrays; and a policy that replays episodes."""

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import chain, product
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from tqdm import tqdm

from maze_pl.collect.engines import Engine, InProcessEngine, ProcessEngine
from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.batches import TrajectoryBatch, TransitionBatch
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.spaces import MaskError, allowed_entries, leaves, mapped, no_value
from maze_pl.core.spec import Spec
from maze_pl.datasets.minari_data import minari_records
from maze_pl.datasets.trajectory_processors import IdentityTrajectoryProcessor, TrajectoryProcessor
from maze_pl.envs.trajectory_record import StateTrajectoryRecord, Trajectory, read_trajectories
from maze_pl.envs.wrappers.normalization import PROGRESS_AFTER
from maze_pl.records.columns import Columns, taken
from maze_pl.records.record_files import SpacesTrajectoryRecord

MakeEnv = Callable[[], Any]
SUFFIXES = (".spaces", ".states")
_MINARI, _SEEN_AND_DONE = "minari:", ("observation", "action")


class Loaded(NamedTuple):
    """An episode that was read.

    Attributes:
        name: Source of the episode.
        identity: Equal for records of the same episode; see `_identity`.
        spec: Specification of the episode.
        acts: Training data made from the episode.
    """

    name: str
    identity: bytes
    spec: Spec
    acts: dict[StepKey, Columns]


class InMemoryDataset:
    """In-memory data set of recorded episodes; batches are drawn from their acts.

    Space records are used as they are. State records are converted after all space records, by the
    environment passed to `load`, even if it has changed since they were recorded. An episode
    recorded in both forms, as `maze-pl rollout` does, is read from the space record only. An
    episode that occurs twice, with the same id and the same actions, is in the data set once.

    Args:
        input_data: A file, a folder with files at any depth, a record, a Minari data set as
            `minari:<id>`, or a list of these.
        trajectory_processor: Turns episodes into training data; all acts unchanged if None.
        n_workers: Number of processes that convert files of state records. 1 means this process; 0
            means one per core, but at most one per 200 files.
        trust: Whether files may execute code while they are read; set it only if you know who wrote
            them.
        on_damaged: Treatment of files that are damaged or hold no episode: `refuse` raises, `skip`
            leaves out what cannot be read and warns at the end with the count.
        max_memory: Size in bytes above which acts are kept in unnamed temporary files, which leave
            nothing behind; 0 for no limit.

    Raises:
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
    """

    def __init__(
        self,
        input_data: str | Path | Trajectory | list[Any],
        trajectory_processor: TrajectoryProcessor | None = None,
        n_workers: int = 0,
        trust: bool = False,
        on_damaged: Literal["refuse", "skip"] = "refuse",
        max_memory: int = 0,
    ) -> None:
        if on_damaged not in ("refuse", "skip") or n_workers < 0 or max_memory < 0:
            numbers = f"and {n_workers=} and {max_memory=} at least 0"
            raise ValueError(f"on_damaged={on_damaged!r} must be 'refuse' or 'skip', {numbers}")
        self.input_data = input_data if isinstance(input_data, list) else [input_data]
        self.processor = trajectory_processor or IdentityTrajectoryProcessor()
        self.n_workers, self.trust, self.on_damaged, self.max_memory = n_workers, trust, on_damaged, max_memory
        self.spec: Spec | None = None
        self.damaged: list[str] = []
        self.n_episodes = 0
        self._columns: dict[StepKey, Columns] = {}
        self._counts: list[list[int]] = []  # for each episode, acts of each sub-step

    def __len__(self) -> int:
        """Number of acts."""
        return sum(map(sum, self._counts))

    @property
    def lengths(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """[n_episodes, sub-steps] number of acts in each episode and sub-step."""
        return np.array(self._counts, np.int64)

    def load(self, make_env: MakeEnv | None = None, spec: Spec | None = None) -> Self:
        """Read all episodes, unless they were already read.

        Args:
            make_env: Makes the environment that converts states.
            spec: Specification of that environment, which episodes must match; read from it if
                None.
        """
        names, whose = ", ".join(map(_name, self.input_data)), "the environment's"
        if self.spec is not None and self._columns:
            _require_same(self.spec, spec or self.spec, names, whose)
            return self
        if make_env is not None and spec is None:
            with closing(make_env()) as env:
                spec = Spec.of(env)
        self._counts, self.damaged, known = [], [], spec
        kept, n_bytes = list[tuple[str, dict[StepKey, Columns]]](), 0
        files, columns = cast(Any, None), cast(Any, None)
        with ExitStack() as stack:
            for name, _, own, acts in self._episodes(make_env, spec):
                spec, whose = (own, f"that of {name}") if spec is None else (spec, whose)
                if own is not known:
                    _require_same(own, spec, name, whose)
                known = own
                kept.append((name, acts))
                if self.max_memory:
                    n_bytes += sum(rows.nbytes for rows in leaves(acts))
                    if n_bytes > self.max_memory:
                        files = files or mapped(lambda _: stack.enter_context(tempfile.TemporaryFile()), acts)
                        joined = self._joined(kept, spec)
                        columns, kept, n_bytes = mapped(_written, files, joined, columns or joined), [], 0
            if kept:
                rest = self._joined(kept, cast(Spec, spec))
                columns = mapped(_written, files, rest, columns) if files else rest
        if self.damaged:
            warnings.warn(f"skipped, {len(self.damaged)} in all: {', '.join(self.damaged[:3])}", stacklevel=2)
        if not len(self):
            raise ValueError(f"{names}: there is no act to learn from")
        self.spec, self.n_episodes, self._columns = spec, len(self._counts), mapped(torch.from_numpy, columns)
        return self

    def _joined(self, kept: list[tuple[str, dict[StepKey, Columns]]], spec: Spec) -> Any:
        """Concatenate episodes, except episodes with a value outside its space."""
        joined = mapped(_concatenated, *(acts for _, acts in kept))
        if _no_values(spec, joined):  # faster than checking each episode
            kept = [(name, acts) for name, acts in kept if self._is_good(_no_values(spec, acts, f"{name}: "))]
            joined = mapped(_concatenated, mapped(lambda rows: rows[:0], joined), *(acts for _, acts in kept))
        self._counts += [[len(fields["agent_id"]) for fields in acts.values()] for _, acts in kept]
        return joined

    def _is_good(self, problem: str) -> bool:
        """Return True if an episode has no problem; otherwise raise or note the problem."""
        if problem and self.on_damaged == "refuse":
            raise ValueError(f"{problem}; on_damaged=skip leaves out what cannot be read")
        self.damaged += [problem] if problem else []
        return not problem

    def _episodes(self, make_env: MakeEnv | None, spec: Spec | None) -> Iterator[Loaded]:
        """Yield each episode once, in the order of `input_data`, states last."""
        sources = _without_copies(list(chain.from_iterable(map(self._sources, self.input_data))))
        if not self.trust and (unsafe := next(filter(_has_states, sources), None)):
            raise ValueError(f"reading {unsafe} runs whatever code it holds; say trust=True if you know who wrote it")
        found = set[bytes]()
        n_slow = sum(map(_has_states, sources))  # the others are read faster than sent between processes
        size = max(1, min(self.n_workers or len(os.sched_getaffinity(0)), n_slow if self.n_workers else n_slow // 200))
        engine: Engine = InProcessEngine() if size == 1 else ProcessEngine(size)
        engine.start(lambda policy, actor, restarts: _Loader(self, make_env, spec), None)
        method = "load" if size == 1 else "load_all"
        bar = tqdm(total=len(sources), desc="recorded episodes", delay=PROGRESS_AFTER, disable=None, leave=False)
        with closing(engine), bar:
            for first in range(0, len(sources), size):
                jobs = [(i, method, (source,)) for i, source in enumerate(sources[first : first + size])]
                for loaded in chain.from_iterable(engine.map(jobs)):
                    if isinstance(loaded, str):
                        self._is_good(loaded)
                    elif loaded.identity not in found:
                        found.add(loaded.identity)
                        yield loaded
                bar.update(len(jobs))

    def _sources(self, entry: Any) -> list[Any]:
        """List the sources to read for an entry of `input_data`."""
        if not isinstance(entry, str | Path) or str(entry).startswith(_MINARI):
            return [entry]
        path = Path(entry)
        if not path.exists():
            raise ValueError(f"there is no file or folder {path} with recorded episodes")
        files = [one for one in sorted(path.rglob("*"), key=str) if one.suffix in SUFFIXES] if path.is_dir() else [path]
        if not files:
            raise ValueError(f"the folder {path} holds no recorded episodes: no files named *{' or *'.join(SUFFIXES)}")
        return files

    def check_values(self, spec: Spec) -> None:
        """Refuse acts with a value outside its space, or an invalid mask.

        Args:
            spec: Specification that also names masks, which the episodes themselves do not.

        Raises:
            ValueError: There is such a value or mask; the message names it.
        """
        if problem := _no_values(spec, mapped(Tensor.numpy, self._columns)):
            raise ValueError(f"{', '.join(map(_name, self.input_data))}: {problem}")

    def split(self, validation_percentage: float, seed: int) -> tuple[Tensor, Tensor]:
        """Split acts at random into a training and a validation set, by whole episodes.

        Args:
            validation_percentage: Percentage of episodes to hold out. The number is rounded, but
                never all episodes, and at least one if the percentage is above 0.
            seed: Determines the episodes that are held out.

        Returns:
            Indices of the training acts and of the held-out acts, for `batch`.
        """
        n_held_out = max(round(self.n_episodes * validation_percentage / 100), validation_percentage > 0)
        order = np.random.default_rng(seed).permutation(self.n_episodes)
        is_held_out = np.isin(np.arange(self.n_episodes), order[: min(n_held_out, self.n_episodes - 1)])
        whose = np.concatenate([np.repeat(is_held_out, counts) for counts in np.transpose(self._counts)])
        return torch.from_numpy(np.flatnonzero(~whose)), torch.from_numpy(np.flatnonzero(whose))

    def batch(self, acts: Tensor) -> TrajectoryBatch:
        """Return a batch of the given acts.

        Args:
            acts: [n] indices of acts, counted through all sub-steps in order.
        """
        batch, first = {}, 0
        for key, fields in self._columns.items():
            size = len(fields["agent_id"])
            rows = acts if len(self._columns) == 1 else acts[(acts >= first) & (acts < first + size)] - first
            batch[key], first = TransitionBatch(**taken(fields, rows)), first + size
        return TrajectoryBatch(batch)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the loaded acts when pickling: other processes read everything themselves."""
        return {**self.__dict__, "_columns": {}}


def _concatenated(*parts: Any) -> Any:
    """Concatenate arrays, with the dtype of the first one."""
    return np.concatenate(parts, dtype=parts[0].dtype, casting="unsafe")


def _written(file: Any, rows: Any, like: Any) -> Any:
    """Append rows to a file, with the dtype of `like`, and memory-map all of its rows, [n, ...]."""
    file.write(rows.astype(like.dtype, copy=False).tobytes())
    written = np.memmap(file, like.dtype, "r+") if file.tell() else np.zeros(0, like.dtype)
    return written.reshape(-1, *rows.shape[1:])


class _Loader:
    """Reads episodes and prepares them; each reading process has one."""

    def __init__(self, dataset: InMemoryDataset, make_env: MakeEnv | None, spec: Spec | None) -> None:
        self._process, self._trust, self._spec = dataset.processor.process, dataset.trust, spec
        self._make_env, self._env = make_env, cast(Any, None)

    def load(self, source: Any) -> Iterator[Loaded | str]:
        """Yield the episodes of a source, then messages about what is damaged in it."""
        name, damaged = _name(source), list[str]()
        for record in _records(source, self._trust, damaged):
            if isinstance(record, StateTrajectoryRecord):
                if self._make_env is None or self._spec is None:
                    raise ValueError(f"{name} holds states, which only an environment can convert: give one")
                self._env = self._env or self._make_env()
                try:
                    record = converted(record, self._env, self._spec)
                except Exception as error:  # states of another environment may raise anything
                    raise ValueError(f"{name} holds states that the environment cannot convert: {error!r}") from error
            elif not isinstance(source, Path):  # records from files were checked when they were read
                record.check()
            yield Loaded(name, _identity(record), record.spec, self._process(record))
        yield from damaged

    def load_all(self, source: Any) -> list[Loaded | str]:
        """Return the results of `load` as a list."""
        return list(self.load(source))

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()


def _no_values(spec: Spec, acts: dict[StepKey, Columns], where: str = "") -> str:
    """Describe a value outside its space or an invalid mask (of a forged file); empty if valid."""
    for (key, step), what in product(spec.steps.items(), _SEEN_AND_DONE):
        for part, space in getattr(step, f"{what}_space").spaces.items():
            if no_value(space, acts[key][what][part], len(acts[key]["agent_id"])):
                return f"{where}its {what} {part!r} of sub-step {key!r} holds what is no value of {space}"
    for key, step in spec.steps.items():
        for head, name in step.masks.items():
            mask = acts[key]["observation"][name]
            try:
                allowed_entries(mask, (len(mask), spaces.flatdim(step.action_space[head])), name, head)
            except MaskError as error:
                return f"{where}{error}"
    return ""


def converted(record: StateTrajectoryRecord, env: Any, spec: Spec) -> SpacesTrajectoryRecord:
    """Convert a state record to a space record with an environment's conversions and wrappers.

    Args:
        record: The episode.
        env: The environment.
        spec: Specification of the environment.
    """
    acts, last_actor = list[Any](), None
    for place, step in enumerate(record.steps):
        seen, done = env.get_observation_and_action_dicts(step.maze_state, step.maze_action, place == 0)
        for left, key in zip(range(len(done))[::-1], done, strict=True):
            agent = 0 if spec.steps[key].n_agents == 1 else step.actor_id.agent_id
            acts.append((key, agent, step.env_time, 0.0 if left else step.reward, False, seen[key], done[key]))
    end = record.steps[-1]
    if not end.terminated:
        seen, _ = env.get_observation_and_action_dicts(record.last_maze_state, None, False)
        last_actor = next((ActorID(key, 0) for key in seen if spec.steps[key].n_agents == 1), None)
    ends = {"terminated": end.terminated, "truncated": not end.terminated, "last_env_time": end.env_time + 1}
    last = {"last_actor": last_actor, "last_observation": {} if last_actor is None else seen[last_actor.step_key]}
    made = SpacesTrajectoryRecord.of_acts(record.episode_id, spec, acts, **ends, **last)
    made.check()
    return made


def _identity(record: SpacesTrajectoryRecord) -> bytes:
    """Digest of the episode id, the actors and their actions.

    The id alone does not distinguish episodes: it is derived from the environment's seed, so it is
    the same for all policies that play from that seed.
    """
    digest = hashlib.blake2b(record.episode_id.encode(), digest_size=16)
    for array in (record.key_index, record.agent_id, *leaves(record.action)):
        digest.update(array.tobytes())
    return digest.digest()


def _without_copies(sources: list[Any]) -> list[Any]:
    """Sort sources, states last, and drop files of states with a copy in a file of spaces.

    Two such files have the same name and are in the same folder, or in sibling folders `states` and
    `spaces`, as `maze-pl rollout` leaves them.
    """
    safe = {source.with_suffix("") for source in sources if isinstance(source, Path) and not _has_states(source)}

    def is_copy(source: Any) -> bool:
        if not _has_states(source):
            return False
        places = [source.with_suffix("")]
        if source.parent.name == "states":
            places.append(source.parent.with_name("spaces") / source.stem)
        return not safe.isdisjoint(places)

    return sorted((source for source in sources if not is_copy(source)), key=_has_states)


def _name(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else f"episode {source.episode_id}"


def _records(source: Any, trust: bool, damaged: list[str]) -> Iterable[Trajectory]:
    if isinstance(source, Path):
        return read_trajectories(source, trust=trust, damaged=damaged)
    return minari_records(source.removeprefix(_MINARI)) if isinstance(source, str) else [source]


def _has_states(source: Any) -> bool:
    """Tell if a source is a file of states."""
    return isinstance(source, Path) and source.suffix == SUFFIXES[1]


def _require_same(own: Spec, other: Spec, name: str, whose: str) -> None:
    """Refuse an episode whose spaces differ from `other`, the specification of `whose`."""
    for key, what in product([*other.steps, *own.steps], ("observation", "action")):
        mine, theirs = (dict(getattr(spec.steps.get(key), f"{what}_space", {})) for spec in (own, other))
        for part in [*theirs, *mine]:
            if mine.get(part) != theirs.get(part):
                different = f"is {mine.get(part)}, and {whose} is {theirs.get(part)}"
                different = " ".join(different.split())  # bounds are printed on several lines
                raise ValueError(f"{name} does not fit: its {what} {part!r} of sub-step {key!r} {different}")


class ReplayRecordedActionsPolicy:
    """Replays recorded episodes: to watch them, to record them in another form, or to verify them.

    In episode i it takes the actions of the i-th record. The rollout needs the seed of the recorded
    episodes.

    Args:
        records: Space records, or a file with all episodes. State records too, with `env` and
            `spec`.
        trust: Whether the file may execute code while it is read; set it only if you know who wrote
            it.
        env: Converts state records; `rollout` passes it to a policy that it makes.
        spec: Specification of the environment.

    Example:
        >>> from maze_pl import rollout
        >>> from maze_pl.envs import GymMazeEnv
        >>> played = rollout(lambda: GymMazeEnv("CartPole-v1"), "random", episodes=2, seed=1)
        >>> replay = ReplayRecordedActionsPolicy([one.spaces for one in played])
        >>> again = rollout(lambda: GymMazeEnv("CartPole-v1"), replay, episodes=2, seed=1)
        >>> [one.summary.reward for one in again] == [one.summary.reward for one in played]
        True
    """

    def __init__(self, records: Any, trust: bool = False, env: Any = None, spec: Any = None) -> None:
        found = read_trajectories(records, trust=trust) if isinstance(records, str) else records
        self.records = [converted(one, env, spec) if isinstance(one, StateTrajectoryRecord) else one for one in found]

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        """Look up the recorded actions.

        Raises:
            ValueError: For an act nothing was recorded, or the act of another actor.
        """
        if batch.episode_index is None or batch.n_acts is None:
            raise ValueError("recorded actions can only be replayed where whole episodes are played, as in rollouts")
        acts = zip(batch.episode_index.tolist(), batch.n_acts.tolist(), batch.agent_id.tolist(), strict=True)
        actions = [self._action(episode, n, ActorID(batch.step_key, agent)) for episode, n, agent in acts]
        return PolicyStep({head: np.stack([action[head] for action in actions]) for head in actions[0]})

    def _action(self, episode: int, n_acts: int, actor: ActorID) -> dict[str, Any]:
        recorded: Any = "nothing"
        if episode < len(self.records) and n_acts < len(record := self.records[episode]):
            index = record.key_index[n_acts]
            recorded = ActorID(record.spec.step_keys[index], int(record.agent_id[n_acts]))
            if recorded == actor:
                place = np.count_nonzero(record.key_index[:n_acts] == index)
                return {head: values[place] for head, values in record.action[actor.step_key].items()}
        where = f"act {n_acts} of episode {episode} by {actor}, {recorded} was recorded"
        raise ValueError(f"instead of {where}: use the same environment, seed and limit of steps")

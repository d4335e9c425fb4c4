"""Reading of recorded episodes from files, records in memory, and data sets of Minari."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.datasets.identity_with_next_observation_trajectory_processor import (
    IdentityWithNextObservationTrajectoryProcessor,
)
from maze_pl.datasets.minari_data import minari_records
from maze_pl.datasets.state_conversion import converted
from maze_pl.datasets.trajectory_processors import TrajectoryProcessor
from maze_pl.envs.arrays.array_maze_env import ArrayMazeEnv
from maze_pl.envs.attribution import attributes_rewards
from maze_pl.envs.building import adapted
from maze_pl.envs.trajectory_record import StateTrajectoryRecord, Trajectory, read_trajectories
from maze_pl.envs.wrappers.step_skip_wrapper import StepSkipWrapper
from maze_pl.records.columns import Columns
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.records.same_episode import Choices
from maze_pl.system.deferred_files import deferred_files

MakeEnv = Callable[[], Any]
SPACES_SUFFIX = ".spaces"
STATES_SUFFIX = ".states"
SUFFIXES = (SPACES_SUFFIX, STATES_SUFFIX)
MINARI_PREFIX = "minari:"
_NeedsRewards = IdentityWithNextObservationTrajectoryProcessor


class Loaded(NamedTuple):
    """An episode that was read.

    Attributes:
        name: Source of the episode.
        choices: Its acts, to compare it with others.
        spec: Specification of the episode.
        acts: Training data made from the episode.
        is_converted: Whether the environment converted it from states.
    """

    name: str
    choices: Choices
    spec: Spec
    acts: dict[StepKey, Columns]
    is_converted: bool

    @property
    def place(self) -> str:
        """Source and identifier of the episode, for messages."""
        own = f"episode {self.choices.episode_id}"
        return own if self.name == own else f"{self.name}, {own}"


class Damaged(NamedTuple):
    """A part of a source that could not be read, with the reason."""

    message: str


class EpisodeLoader:
    """Reads episodes and prepares them; each reading process has one.

    Args:
        processor: Turns episodes into training data.
        trust: Whether files may execute code while they are read.
        make_env: Makes the environment that converts states.
        spec: Specification of that environment.
    """

    def __init__(
        self,
        processor: TrajectoryProcessor,
        trust: bool,
        make_env: MakeEnv | None,
        spec: Spec | None,
    ) -> None:
        self._processor = processor
        self._trust = trust
        self._make_env = make_env
        self._spec = spec
        self._env: Any = None

    def load(self, source: Any) -> Iterator[Loaded | Damaged]:
        """Yield the episodes of a source, then descriptions of what is damaged in it."""
        name = name_of_source(source)
        damaged: list[str] = []
        for record in _records(source, self._trust, damaged):
            is_converted = isinstance(record, StateTrajectoryRecord)
            if isinstance(record, StateTrajectoryRecord):
                record = self._converted(record, name)
            elif not isinstance(source, Path):
                record.check()  # records from files were checked when they were read
            acts = self._processor.process(record)
            yield Loaded(name, Choices.of(record), record.spec, acts, is_converted)
        yield from map(Damaged, damaged)

    def _converted(self, record: StateTrajectoryRecord, name: str) -> SpacesTrajectoryRecord:
        if self._make_env is None or self._spec is None:
            raise ValueError(f"{name} holds states, which only an environment can convert: pass one")
        if self._env is None:
            self._env = self._make_env()
        is_unknown = record.is_attributed is None and isinstance(self._processor, _NeedsRewards)
        if is_unknown and attributes_rewards(self._env, StepSkipWrapper):
            fault = f"{name} holds no rewards of single acts, which earlier versions did not record"
            remedy = "record it again, or use a space record"
            raise ValueError(f"{fault}, but the environment has them: {remedy}")
        try:
            return converted(record, self._env, self._spec)
        except Exception as error:  # states of another environment may raise anything
            found = f"{name} holds states that the environment cannot convert"
            unwrapped = getattr(self._env, "unwrapped", None)
            if isinstance(unwrapped, ArrayMazeEnv) and not _is_of_arrays(record.steps[0].maze_state, unwrapped):
                kind = type(unwrapped.array_env.unwrapped).__name__
                fact = f"array environments such as {kind} convert only states that they recorded"
                remedy = "pass the form for single episodes, or space records"
                raise ValueError(f"{found}: {fact}; {remedy}") from error
            raise ValueError(f"{found}: {error!r}") from error

    def load_all(self, source: Any) -> list[Loaded | Damaged]:
        """Return the results of `load` as a list."""
        return list(self.load(source))

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()


def _is_of_arrays(maze_state: Any, env: ArrayMazeEnv) -> bool:
    """Return whether a state is an observation of an array environment."""
    if not isinstance(maze_state, Mapping):
        return False
    return any(maze_state.keys() >= space.spaces.keys() for space in env.observation_spaces_dict.values())


def adapting(make_env: MakeEnv | None) -> MakeEnv | None:
    """Return a function that makes an environment and adapts it; None if there is none.

    Raises:
        TypeError: It cannot be called.
    """
    if make_env is None:
        return None
    if not callable(make_env):
        expected = "a function that makes an environment, such as lambda: MyEnv()"
        raise TypeError(f"make_env={make_env!r} must be {expected}")
    return partial(_adapted, make_env)


def _adapted(make_env: MakeEnv) -> Any:
    """Make an environment and adapt it."""
    return adapted(make_env())


def name_of_source(source: Any) -> str:
    """Name of a source for messages: its path or name, or the id of an episode."""
    return f"episode {source.episode_id}" if isinstance(source, Trajectory) else str(source)


def has_states(source: Any) -> bool:
    """Return whether a source is a file of states."""
    return isinstance(source, Path) and source.suffix == STATES_SUFFIX


def entries_of(input_data: Any) -> list[Any]:
    """List the entries of `input_data`: files, folders and records."""
    if isinstance(input_data, str | Path | Trajectory) or not isinstance(input_data, Iterable):
        return [input_data]
    return list(input_data)


def require_record(entry: Any) -> None:
    """Refuse an entry that is not a record of an episode.

    Raises:
        TypeError: It is something else, such as a trajectory of `rollout`, which holds records.
    """
    if not isinstance(entry, Trajectory):
        remedy = "pass files or records, such as [episode.spaces for episode in rollout(...)]"
        raise TypeError(f"a {type(entry).__name__} is not a recorded episode; {remedy}")


def sources_of(entry: Any) -> list[Any]:
    """List the sources to read for an entry of `input_data`.

    Raises:
        TypeError: It is neither a path nor a record.
        ValueError: There is no such file or folder, or the folder holds no episodes.
    """
    if not isinstance(entry, str | Path):
        require_record(entry)
        return [entry]
    if str(entry).startswith(MINARI_PREFIX):
        return [entry]
    path = Path(entry)
    deferred_files().flush()  # files of this process that are not on the disk yet
    if not path.exists():
        raise ValueError(f"there is no file or folder {path} with recorded episodes")
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.rglob("*"), key=str) if file.suffix in SUFFIXES]
    if not files:
        names = f"*{' or *'.join(SUFFIXES)}"
        raise ValueError(f"the folder {path} holds no recorded episodes: no files named {names}")
    return files


def without_copies(sources: list[Any]) -> list[Any]:
    """Sort sources, states last, and drop files of states with a copy in a file of spaces.

    Two such files have the same name and are in the same folder, or in sibling folders `states` and
    `spaces`, as `maze-pl rollout` leaves them.
    """
    space_files = {source.with_suffix("") for source in sources if isinstance(source, Path) and not has_states(source)}

    def is_copy(source: Any) -> bool:
        if not has_states(source):
            return False
        places = [source.with_suffix("")]
        if source.parent.name == "states":
            places.append(source.parent.with_name("spaces") / source.stem)
        return not space_files.isdisjoint(places)

    return sorted((source for source in sources if not is_copy(source)), key=has_states)


def _records(source: Any, trust: bool, damaged: list[str]) -> Iterable[Trajectory]:
    if isinstance(source, Path):
        return read_trajectories(source, trust=trust, damaged=damaged)
    if isinstance(source, str):
        return minari_records(source.removeprefix(MINARI_PREFIX))
    return [source]


class UntrustedRecordsError(ValueError):
    """Records hold states, which run whatever code they contain when they are read."""


class UnfitEpisodeError(ValueError):
    """The spaces of an episode are not those of another specification.

    Args:
        message: The message.
        is_of_observation: Whether an observation differs, which wrappers may have changed.
        is_missing: Whether the episode lacks it.
    """

    def __init__(self, message: str, is_of_observation: bool = False, is_missing: bool = False) -> None:
        super().__init__(message, is_of_observation, is_missing)  # all, so that processes can send it
        self.is_of_observation = is_of_observation
        self.is_missing = is_missing

    def __str__(self) -> str:
        """The message."""
        return str(self.args[0])


def refuse_states(sources: Iterable[Any]) -> None:
    """Refuse sources with states.

    Args:
        sources: Files and records.

    Raises:
        UntrustedRecordsError: There is one.
    """
    unsafe = next(filter(has_states, sources), None)
    if unsafe is not None:
        remedy = "set trust=True if you know who wrote it"
        raise UntrustedRecordsError(f"reading {unsafe} runs whatever code it holds; {remedy}")


def require_same_spaces(spec: Spec, other: Spec, name: str, owner: str) -> None:
    """Refuse an episode whose spaces differ from those of another specification.

    Args:
        spec: Specification of the episode.
        other: The other specification.
        name: Name of the episode for the message.
        owner: Owner of the other specification for the message, such as "the environment's".

    Raises:
        UnfitEpisodeError: A space differs; the message names it.
    """
    for key, tree in product([*other.steps, *spec.steps], ("observation", "action")):
        found = _spaces(spec, key, tree)
        expected = _spaces(other, key, tree)
        for part in [*expected, *found]:
            if found.get(part) != expected.get(part):
                came = f"is {found[part]}" if part in found else f"is missing, as there are only {sorted(found)}"
                wanted = f"is {expected[part]}" if part in expected else f"has only {sorted(expected)}"
                difference = f"{came}, and {owner} {wanted}"
                difference = " ".join(difference.split())  # bounds are printed on several lines
                what = f"its {tree} {part!r} of sub-step {key!r}"
                raise UnfitEpisodeError(
                    f"{name} does not fit: {what} {difference}",
                    is_of_observation=tree == "observation",
                    is_missing=part not in found,
                )


def _spaces(spec: Spec, key: StepKey, tree: str) -> dict[str, spaces.Space[Any]]:
    """Spaces of a sub-step's observation or action by name; empty if it does not exist."""
    if key not in spec.steps:
        return {}
    return dict(getattr(spec.steps[key], f"{tree}_space").spaces)

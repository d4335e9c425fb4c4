"""Episodes from paths: run directories, folders of rollouts, and files of records."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from maze_pl.config.assembling import require_single_run
from maze_pl.config.factories import Factory
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, read
from maze_pl.config.trust import Trust, extend_import_path, import_folders
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.trajectory_record import StateTrajectoryRecord, read_trajectories
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.loading import load
from maze_pl.runs.other_sizes import in_sizes_of
from maze_pl.runs.recording_run import recording_checkpoint, recording_run
from maze_pl.runs.rollout_table import EPISODES_FILE, EpisodeRow, read_episode_table
from maze_pl.runs.rollout_wrappers import reward_wrappers_of, rollout_folder
from maze_pl.runs.run_checkpoints import BEST, holds_checkpoints
from maze_pl.viewer.decisions import decisions_of
from maze_pl.viewer.episode import Episode, EventRows
from maze_pl.viewer.events import rows_of_folder
from maze_pl.viewer.normalizers import Normalizer, normalizers_of
from maze_pl.viewer.playing import PlayOptions, played_by_run, source_of

_RECORDS: Final = (".spaces", ".states")
_MOST_READ: Final = 10
"""Episodes of a path that are read unless another number is given."""
Record = SpacesTrajectoryRecord | StateTrajectoryRecord


def episodes_of_paths(
    paths: Sequence[Path], options: PlayOptions, progress: bool = False
) -> tuple[list[Episode], list[tuple[int, int]]]:
    """Return the episodes of paths, and pairs of them with the same seed.

    Args:
        paths: Run directories and checkpoints, whose agents play; folders of rollouts; and files of
            records.
        options: Options of playing; of what is read, `n_episodes`, `pictures` and `trust`.
        progress: Whether to show the progress of playing.

    Raises:
        ConfigurationError: There is nothing to view, or a file cannot be read.
    """
    episodes: list[Episode] = []
    pairs: list[tuple[int, int]] = []
    for path in paths:
        first = len(episodes)
        if path.suffix == ".ckpt" or holds_checkpoints(path):
            played, pairs_of_run = played_by_run(path, options, progress)
            pairs += [(first + one, first + other) for one, other in pairs_of_run]
            episodes += played
        else:
            episodes += _read(path, options)
    return episodes, pairs or _same_episodes(episodes)


def _same_episodes(episodes: Sequence[Episode]) -> list[tuple[int, int]]:
    """Return pairs of episodes that began in the same way, by the ids that follow from their seeds."""
    first: dict[str, int] = {}
    pairs = []
    for place, episode in enumerate(episodes):
        if first.setdefault(episode.episode_id, place) != place:
            pairs.append((first[episode.episode_id], place))
    return pairs


# ------------------------------------------------------------------------------------------------------ what was read


def _read(path: Path, options: PlayOptions) -> list[Episode]:
    """Return the episodes of a rollout's folder, or of a folder or file of records."""
    files = _record_files(path)
    if not options.trust:
        files = _without_states(files, path)
    require_single_run(path)
    if not files:
        _refuse_without_records(path)
    origin = _Origin.of(path, options)
    episodes = _episodes(_limited(files, origin, options), origin)
    for episode in episodes:
        episode.renderer_arguments = options.renderer_arguments or {}
        episode.source = source_of(path)
    return episodes


def _record_files(path: Path) -> list[Path]:
    """Return the files of records at a path: itself, or all below a folder, in order.

    Raises:
        ConfigurationError: The path does not exist, or is another file.
    """
    if not path.exists():
        expected = "name a run directory, a rollout's folder or a file of episodes"
        raise ConfigurationError(f"{path} does not exist: {expected}")
    if not path.is_file():
        return sorted(file for file in path.rglob("*") if file.suffix in _RECORDS)
    if path.suffix not in _RECORDS:
        raise ConfigurationError(f"{path} is not a file of episodes: those of maze_pl end in {' or '.join(_RECORDS)}")
    return [path]


def _without_states(files: Sequence[Path], path: Path) -> list[Path]:
    """Return files of records without those of states; say so if there are any.

    Args:
        files: Files of records.
        path: Path that the user named, for messages.

    Raises:
        ConfigurationError: No others are left.
    """
    kept = [file for file in files if file.suffix != ".states"]
    if len(kept) < len(files):
        reason = "reading them runs whatever code they hold"
        remedy = "repeat the command with --trust (trust=True in Python) if you know who wrote them"
        if not kept:
            raise ConfigurationError(f"{path} has only state records, which are left out: {reason}; {remedy}")
        sys.stderr.write(f"maze-pl: state records, and with them pictures, are left out: {reason}; {remedy}\n")
    return kept


def _refuse_without_records(path: Path) -> NoReturn:
    """Raise ConfigurationError for a run that has no checkpoint, or another path without records."""
    if (path / RUN_CONFIG).is_file() and not (path / EPISODES_FILE).is_file():
        raise ConfigurationError(f"the run {path} has no checkpoint yet, so that its agent cannot play")
    known = "a run directory of `maze-pl fit`, a folder of `maze-pl rollout`, or files of records"
    raise ConfigurationError(f"there is nothing to view in {path}: it is not {known}")


def _limited(files: Sequence[Path], origin: "_Origin", options: PlayOptions) -> list[Record]:
    """Read the records of at most the requested number of episodes, in the order of the rollout."""
    n_episodes = options.n_episodes or _MOST_READ
    order = {episode_id: place for place, episode_id in enumerate(origin.rows)}
    records: list[Record] = []
    wanted: set[str] = set()
    for file in sorted(files, key=lambda file: (order.get(file.stem, len(order)), str(file))):
        if len(wanted) == n_episodes and file.stem in order and file.stem not in wanted:
            continue
        try:
            for record in read_trajectories(file, trust=options.trust):
                if record.episode_id not in wanted and len(wanted) == n_episodes:
                    break
                wanted.add(record.episode_id)
                records.append(record)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
    return records


@dataclass(frozen=True)
class _Origin:
    """Everything that a rollout's folder says about its episodes.

    Attributes:
        rows: Episode id -> its line in the table of episodes.
        events: Episode id -> its events.
        policy: Name of the policy.
        agent: The agent that played, if it is known.
        temperature: Temperature with which it sampled.
        renderer: Renderer of the environment, if states may be read.
        kpi_calculator: Its calculator of KPIs.
        reward_wrappers: Class names of the wrappers that changed rewards.
        normalizers: Wrappers that normalised observations.
    """

    rows: dict[str, EpisodeRow]
    events: dict[str, list[EventRows]]
    policy: str = ""
    agent: Any = None
    temperature: float = 1.0
    renderer: Any = None
    kpi_calculator: Any = None
    reward_wrappers: Sequence[str] = ()
    normalizers: Sequence[Normalizer] = ()

    @classmethod
    def of(cls, path: Path, options: PlayOptions) -> "_Origin":
        """Read the folder of the rollout that a path belongs to."""
        folder = rollout_folder(path)
        if folder is None:
            return cls({}, {})
        rows = read_episode_table(folder / EPISODES_FILE)
        events = rows_of_folder(folder / "event_logs")
        config = read(folder / RUN_CONFIG) or {}
        agent = _agent_of(folder, config, options)
        policy = "trained" if agent is not None else _policy_name(config)
        env = _env_of(folder, config) if options.trust and options.pictures else None
        parts: dict[str, Any] = {}
        if env is not None:
            parts = {"renderer": env.get_renderer(), "kpi_calculator": env.get_kpi_calculator()}
            env.close()
        parts["reward_wrappers"] = reward_wrappers_of(config, options.trust)
        parts["normalizers"] = normalizers_of(config, options.trust)
        return cls(rows, events, policy, agent, float(config.get("temperature") or 1.0), **parts)


def _policy_name(config: dict[str, Any]) -> str:
    """Return the name of the policy that the configuration of a rollout names."""
    policy = config.get("policy")
    if isinstance(policy, dict):
        policy = policy.get("class_path")
    if policy is None:
        return "trained" if config.get("run") else "random"
    return str(policy)


def _agent_of(folder: Path, config: dict[str, Any], options: PlayOptions) -> Any:
    """Return the agent that played a rollout; None if there is none, it is unknown, or it has changed since."""
    if config.get("policy") is not None:
        return None
    try:
        run = recording_run(folder, config)
        if run is None:
            return None
        path = recording_checkpoint(folder, run, str(config.get("checkpoint") or BEST))
        return load(path, trust=options.trust)
    except ConfigurationError as error:
        sys.stderr.write(f"maze-pl: there are no probabilities: {error}\n")
        return None


def _env_of(folder: Path, config: dict[str, Any]) -> Any:
    """Make the environment of a rollout, whose folder is trusted, for its renderer."""
    node = config.get("env")
    if not isinstance(node, dict):
        return None
    try:
        run = recording_run(folder, config) or folder
        extend_import_path([str(Path.cwd()), *import_folders(run if holds_checkpoints(run) else folder)])
        return make_wrapped(Factory.of(node, Trust()))
    except (ImportError, ConfigurationError) as error:
        sys.stderr.write(f"maze-pl: there are no pictures: the environment cannot be made: {error}\n")
        return None


# ----------------------------------------------------------------------------------------------------------- episodes


def episodes_of_records(records: Sequence[Record], agent: Any = None) -> list[Episode]:
    """Return the episodes of records; a space and a state record of one episode belong together.

    Args:
        records: The records.
        agent: The algorithm or policy that acted, if it is known.
    """
    return _episodes(records, _Origin({}, {}, "" if agent is None else type(agent).__name__, agent))


def _episodes(records: Sequence[Record], origin: _Origin) -> list[Episode]:
    """Return the episodes of records of one origin, in their order."""
    episodes: list[Episode] = []
    open_: dict[tuple[str, str], Episode] = {}  # id and missing kind of record -> episode
    agent = origin.agent
    for record in records:
        other = "states" if record.kind == "spaces" else "spaces"
        episode = open_.pop((record.episode_id, record.kind), None)
        if episode is None:
            episode = Episode("", origin.policy, record.episode_id, reward_wrappers=origin.reward_wrappers)
            episodes.append(episode)
            open_[record.episode_id, other] = episode
        if isinstance(record, SpacesTrajectoryRecord):
            episode.spaces = record
            if agent is not None:
                agent = in_sizes_of(agent, record.spec)  # once for all records of these sizes
                episode.decisions = decisions_of(agent, record, origin.temperature)
        else:
            episode.states = record
    for number, episode in enumerate(episodes):
        _describe(episode, number, origin)
    return episodes


def _describe(episode: Episode, number: int, origin: _Origin) -> None:
    """Add to an episode what the folder of its rollout says about it."""
    row = origin.rows.get(episode.episode_id, EpisodeRow())
    episode.name = f"{origin.policy or 'episode'} {row.number or number}"
    episode.events = origin.events.get(episode.episode_id, [])
    episode.normalizers = origin.normalizers
    episode.renderer = origin.renderer
    episode.kpi_calculator = origin.kpi_calculator
    episode.seed = row.seed
    episode.total_reward = row.total_reward
    episode.kpis = dict(row.kpis)

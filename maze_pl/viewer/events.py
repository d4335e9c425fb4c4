"""Events of episodes: for an episode document, and as a table for notebooks."""

from __future__ import annotations

import ast
import contextlib
import csv
import importlib.util
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs.trajectory_record import StateTrajectoryRecord
from maze_pl.events import BaseEnvEvents, RewardShareEvents
from maze_pl.events.topics import declarations
from maze_pl.viewer.arrays import Array, decoded, encoded, plain
from maze_pl.viewer.episode import EventRows

if TYPE_CHECKING:
    import pandas

REWARD: Final = f"{BaseEnvEvents.__name__}.reward"
SHARE: Final = f"{RewardShareEvents.__name__}.share"
_ANY_LENGTH: Final = 2**53
_IDENTITY: Final = ("episode_id", "episode_started", "env_time")
"""Columns of an event log before those of the attributes."""


class EpisodeEvents:
    """Events of one episode, in the order of their environment steps.

    Args:
        rows: Events by kind, as an `EventLogFiles` receives them.
        n_env_steps: Number of environment steps.
    """

    def __init__(self, rows: Iterable[EventRows], n_env_steps: int) -> None:
        self.names: list[str] = []
        self._n_env_steps = n_env_steps
        found: list[tuple[int, int, dict[str, Any]]] = []  # environment time, number of the name, attributes
        for name, columns, cells in rows:
            self.names.append(name)
            attributes = [_attribute_of(column, columns) for column in columns][len(_IDENTITY) :]
            for row in cells:
                _, _, env_time = row[: len(_IDENTITY)]
                named = dict(zip(attributes, row[len(_IDENTITY) :], strict=True))
                found.append((int(env_time), len(self.names) - 1, named))
        rewards = [time for time, name, _ in found if self.names[name] == REWARD]
        first = min(rewards, default=0)  # the simulation's clock need not begin at 0
        found.sort(key=lambda event: event[0])
        self.env_step = [min(max(time - first, 0), max(n_env_steps - 1, 0)) for time, _, _ in found]
        self.name = [name for _, name, _ in found]
        self.attributes = [attributes for _, _, attributes in found]

    def reward(self) -> Array | None:
        """[environment steps] rewards of the environment; None if they were not recorded."""
        return self._sums(REWARD).get("")

    def shares(self) -> dict[str, Array]:
        """Name of a part of the reward -> [environment steps] its contribution."""
        return self._sums(SHARE)

    def _sums(self, event: str) -> dict[str, Array]:
        """Sums of the attribute `value` by environment step, for each value of the attribute `name`."""
        sums: dict[str, Array] = {}
        for step, name, attributes in zip(self.env_step, self.name, self.attributes, strict=True):
            if self.names[name] == event:
                part = str(attributes.get("name", ""))
                total = sums.setdefault(part, np.zeros(self._n_env_steps))
                total[step] += float(attributes["value"])
        return sums

    def content(self) -> dict[str, Any]:
        """Return the entry of an episode document; rewards are not repeated in it."""
        kept = [place for place, name in enumerate(self.name) if self.names[name] != REWARD]
        return {
            "names": self.names,
            "env_step": encoded(np.array([self.env_step[place] for place in kept], np.int64)),
            "name": encoded(np.array([self.name[place] for place in kept], np.int64)),
            "attributes": [plain(self.attributes[place]) for place in kept],
        }


def _attribute_of(column: str, columns: Collection[str]) -> str:
    """Return the attribute in a column, which ends in `_` to differ from another column."""
    return column.removesuffix("_") if column[:-1] in columns else column


def rows_of_states(record: StateTrajectoryRecord) -> list[EventRows]:
    """Return the events of a state record as rows by kind."""
    kinds: dict[str, EventRows] = {}
    for step in record.steps:
        for event in step.events:
            name = f"{event.topic.__name__}.{event.event.__name__}"
            attributes = list(declarations(event.topic)[event.event.__name__].signature.parameters)
            columns = dict.fromkeys((*_IDENTITY, *map(_column_of, attributes)), "")
            rows = kinds.setdefault(name, (name, columns, []))[2]
            values = [plain(event.attributes[attribute]) for attribute in attributes]
            rows.append((record.episode_id, None, event.env_time, *values))
    return list(kinds.values())


def _column_of(attribute: str) -> str:
    """Return the column of an event's attribute: other than those that tell episode and time."""
    return f"{attribute}_" if attribute in _IDENTITY else attribute


def rows_of_folder(folder: Path) -> dict[str, list[EventRows]]:
    """Read a folder of raw event logs in which no episode is repeated, such as that of a rollout.

    Args:
        folder: Folder of files `<Topic>.<event>.csv`.

    Returns:
        Episode id -> its events, of the last episode with this id.

    Raises:
        ConfigurationError: A file is not an event log.
    """
    episodes = _episodes_of_folder(folder)
    return {episode_id: episodes[episode_id, started] for episode_id, started in sorted(episodes)}


def _episodes_of_folder(folder: Path) -> dict[tuple[str, float], list[EventRows]]:
    """Read a folder of raw event logs: id and start of each episode -> its events.

    Evaluations repeat episodes with the same ids, which differ in their starts.

    Raises:
        ConfigurationError: A file is not an event log.
    """
    episodes: dict[tuple[str, float], list[EventRows]] = {}
    for path in sorted(folder.glob("*.csv")):
        lines = _complete_lines(path)
        if not lines:
            continue
        columns = dict.fromkeys(lines[0], "")
        cells_of_rows = lines[1:]
        _require_event_log(path, list(columns), cells_of_rows)
        cells_of_columns = list(zip(*cells_of_rows, strict=True))
        attributes = [_values(cells) for cells in cells_of_columns[len(_IDENTITY) :]]
        by_episode: dict[tuple[str, float], list[tuple[Any, ...]]] = {}
        for place, cells in enumerate(cells_of_rows):
            episode_id, started_text, env_time = cells[: len(_IDENTITY)]
            started = float(started_text or 0)
            row = (episode_id, started, int(env_time), *(column[place] for column in attributes))
            by_episode.setdefault((episode_id, started), []).append(row)
        for episode, rows in by_episode.items():
            episodes.setdefault(episode, []).append((path.stem, columns, rows))
    return episodes


def _complete_lines(path: Path) -> list[list[str]]:
    """Read the cells of a CSV file by line, without empty and incomplete lines.

    Raises:
        ConfigurationError: It is not CSV in UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8")
        complete = text[: text.rfind("\n") + 1]
        return [line for line in csv.reader(io.StringIO(complete, newline="")) if line]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the event log {path} cannot be read: {error}") from error


def _require_event_log(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Raise ConfigurationError if a file is not an event log, or has a damaged row."""
    if tuple(columns[: len(_IDENTITY)]) != _IDENTITY:
        raise ConfigurationError(f"{path} is not an event log: its columns are {columns}")
    for row in rows:
        is_whole = len(row) == len(columns)
        if not is_whole or not _is_number(row[1]) or not row[2].lstrip("-").isdigit():
            raise ConfigurationError(f"the event log {path} is damaged: it has the row {row}")


def _is_number(cell: str) -> bool:
    """True if a cell is empty or holds a number."""
    with contextlib.suppress(ValueError):
        float(cell or 0)
        return True
    return False


def _values(cells: Sequence[str]) -> list[Any]:
    """Return the values of a column, None for empty cells.

    They are numbers, tuples or other literals if all cells are written as Python writes these,
    otherwise texts: `007` may be the name of something.
    """
    values = []
    for cell in cells:
        value = _literal(cell) if cell else None
        if cell and (value is None or str(value) != cell):
            return [cell or None for cell in cells]
        values.append(value)
    return values


def _literal(cell: str) -> Any:
    """Return the number, truth value, tuple, list or dict in a cell; None for other texts."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(cell)
    if cell[0] not in "([{TF":
        return None
    try:
        return ast.literal_eval(cell)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def events_table(source: Any) -> pandas.DataFrame:
    """Return the raw events of episodes as a table: one row for each event.

    Its columns are `episode_id`, `env_step`, `topic`, `event`, and the attributes of all events;
    attributes that an event does not have are missing values. Tables of folders also have the
    column `episode_started` (Unix time), as evaluations repeat episodes with the same ids. There,
    an attribute is a number only if all of its values look like numbers.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.runs.rollout import rollout
        >>> played = rollout(lambda: GymMazeEnv("CartPole-v1"), "heuristic", record=["events"], max_steps=3)
        >>> events_table(played)[["env_step", "event", "value"]].to_dict("records")[:2]
        [{'env_step': 0, 'event': 'reward', 'value': 1.0}, {'env_step': 1, 'event': 'reward', 'value': 1.0}]

    Args:
        source: Trajectories of `maze_pl.rollout`, played with `record=["events"]`; state records;
            an episode document; or the folder of a rollout or of its event logs.

    Raises:
        ImportError: pandas is not installed.
        ConfigurationError: There are no events.
    """
    if importlib.util.find_spec("pandas") is None:
        raise ImportError("events_table needs pandas: pip install 'maze-pl[pandas]'")
    import pandas

    if isinstance(source, Mapping):
        rows = _rows_of_document(source)
    else:
        rows = []
        for identity, kinds in _kinds_of(source):
            events = EpisodeEvents(kinds, _ANY_LENGTH)
            for step, name, attributes in zip(events.env_step, events.name, events.attributes, strict=True):
                rows.append(_row(identity, step, events.names[name], attributes))
    if not rows:
        remedy = "play with record=['events'], or name the folder of a rollout with event logs"
        raise ConfigurationError(f"there are no events in {type(source).__name__} {str(source)[:80]!r}: {remedy}")
    return pandas.DataFrame(rows)


def _row(identity: Mapping[str, Any], step: int, name: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the table; an attribute called like an earlier column gets the name `<name>_`."""
    topic, _, event = name.rpartition(".")
    row = {**identity, "env_step": step, "topic": topic, "event": event}
    for attribute, value in attributes.items():
        row[f"{attribute}_" if attribute in row else attribute] = value
    return row


def _rows_of_document(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the table for an episode document."""
    rows = []
    for episode in document.get("episodes", []):
        events = episode["events"]
        steps = decoded(events["env_step"]).tolist()
        names = decoded(events["name"]).tolist()
        for step, name, attributes in zip(steps, names, events["attributes"], strict=True):
            identity = {"episode_id": episode["episode_id"]}
            rows.append(_row(identity, step, events["names"][name], attributes))
    return rows


def _kinds_of(source: Any) -> list[tuple[dict[str, Any], list[EventRows]]]:
    """Return episodes as pairs of the columns that identify them and their events by kind."""
    if isinstance(source, str | Path):
        folder = Path(source)
        if not folder.is_dir():
            raise ConfigurationError(f"{folder} is not a folder of a rollout or of event logs")
        logs = folder / "event_logs"
        of_folder = _episodes_of_folder(logs if logs.is_dir() else folder)
        return [
            ({"episode_id": episode_id, "episode_started": started}, kinds)
            for (episode_id, started), kinds in of_folder.items()
        ]
    episodes = source if isinstance(source, Sequence) else [source]
    found = []
    for episode in episodes:
        is_record = isinstance(episode, StateTrajectoryRecord)
        rows = rows_of_states(episode) if is_record else list(episode.events)
        found.append(({"episode_id": episode.episode_id}, rows))
    return found

"""The table of a rollout's episodes, `episodes.csv`, which is written and read in this file."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.tables import merged_names

if TYPE_CHECKING:
    from maze_pl.runs.rollout import Trajectory

EPISODES_FILE: Final = "episodes.csv"
_COLUMNS: Final = ("episode", "episode_id", "seed", "return", "env_steps")
_PREFIX: Final = "kpi/"
_AMBIGUOUS: Final = re.compile(f"(?:{_PREFIX})*(?:{'|'.join(_COLUMNS)})")
"""Names of KPIs whose columns have a prefix, so that all columns differ."""


@dataclass(frozen=True)
class EpisodeRow:
    """A line of the table.

    Attributes:
        number: Number of the episode, as written; "" if it is missing.
        seed: Seed that the environment was reset with, if known.
        total_reward: Its return, if known.
        kpis: Name of a KPI -> value; a KPI that the episode lacks is left out.
    """

    number: str = ""
    seed: int | None = None
    total_reward: float | None = None
    kpis: dict[str, float] = field(default_factory=dict)


def csv_content(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Return the content of a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()


def episode_table(played: Sequence["Trajectory"]) -> bytes:
    """Return the content of the table of episodes; a KPI that an episode lacks is an empty cell."""
    kpis = merged_names(trajectory.summary.kpis for trajectory in played)
    rows: list[Sequence[Any]] = []
    for trajectory in played:
        summary = trajectory.summary
        identity = (summary.episode_index, trajectory.episode_id, trajectory.seed)
        values = [summary.kpis.get(name, "") for name in kpis]
        rows.append((*identity, summary.reward, summary.env_steps, *values))
    return csv_content((*_COLUMNS, *map(_column_of, kpis)), rows)


def read_episode_table(path: Path) -> dict[str, EpisodeRow]:
    """Read a table of episodes: episode id -> its line.

    In tables of earlier versions, the column of a KPI may have the name of a previous column.

    Raises:
        ConfigurationError: The file cannot be read, or is damaged.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, cells) for cells in reader if cells]
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is damaged: {error}") from error
    header = lines[0][1] if lines else []
    found: dict[str, EpisodeRow] = {}
    for number, cells in lines[1:]:
        try:
            episode_id, row = _row_of(header, cells)
        except ValueError as error:
            raise ConfigurationError(f"{path} is damaged: line {number}: {error}") from error
        if episode_id:
            found[episode_id] = row
    return found


def _row_of(header: Sequence[str], cells: Sequence[str]) -> tuple[str, EpisodeRow]:
    """Return the id of the episode in a line, "" if it has none, and the line.

    Raises:
        ValueError: The return or a KPI is not a number.
    """
    values: dict[str, str] = {}
    kpis: dict[str, float] = {}
    for name, cell in zip(header, cells, strict=False):
        if name in _COLUMNS and name not in values:
            values[name] = cell
        elif cell:
            kpis[_kpi_of(name)] = float(cell)
    if len(cells) > len(header):  # some without a name: the others may be in wrong columns
        kpis = {}
    seed, total = values.get("seed", ""), values.get("return", "")
    row = EpisodeRow(
        values.get("episode", ""),
        int(seed) if seed.isdecimal() else None,
        float(total) if total else None,
        kpis,
    )
    return values.get("episode_id", ""), row


def _column_of(kpi: str) -> str:
    """Return the name of the column of a KPI."""
    return f"{_PREFIX}{kpi}" if _AMBIGUOUS.fullmatch(kpi) else kpi


def _kpi_of(column: str) -> str:
    """Return the name of the KPI in a column."""
    return column.removeprefix(_PREFIX) if _AMBIGUOUS.fullmatch(column) else column

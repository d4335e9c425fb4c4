"""The table of a rollout's episodes, `episodes.csv`, which is written and read in this file."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
    """
    with path.open(newline="", encoding="utf-8") as file:
        header, *lines = [cells for cells in csv.reader(file) if cells] or [[]]
    found: dict[str, EpisodeRow] = {}
    for cells in lines:
        values: dict[str, str] = {}
        kpis: dict[str, float] = {}
        for name, cell in zip(header, cells, strict=False):
            if name in _COLUMNS and name not in values:
                values[name] = cell
            elif cell:
                kpis[_kpi_of(name)] = float(cell)
        if len(cells) > len(header):  # some without a name: the others may be in wrong columns
            kpis = {}
        if values.get("episode_id"):
            seed, total = values.get("seed", ""), values.get("return", "")
            found[values["episode_id"]] = EpisodeRow(
                values.get("episode", ""),
                int(seed) if seed.isdigit() else None,
                float(total) if total else None,
                kpis,
            )
    return found


def _column_of(kpi: str) -> str:
    """Return the name of the column of a KPI."""
    return f"{_PREFIX}{kpi}" if _AMBIGUOUS.fullmatch(kpi) else kpi


def _kpi_of(column: str) -> str:
    """Return the name of the KPI in a column."""
    return column.removeprefix(_PREFIX) if _AMBIGUOUS.fullmatch(column) else column

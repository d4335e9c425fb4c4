"""The table of a rollout's episodes: KPIs of any name are read as they were written."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import pytest

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.episode import EpisodeSummary
from maze_pl.runs.rollout import Trajectory
from maze_pl.runs.rollout_table import EpisodeRow, episode_table, read_episode_table

COLUMNS = ["episode", "episode_id", "seed", "return", "env_steps"]
NAMES = [*COLUMNS, "kpi/return", "kpi/kpi/return", "kpi/cost", "cost", "a,b", "returns", ""]


def played(number: int, kpis: dict[str, float]) -> Trajectory:
    summary = EpisodeSummary({}, 10 + number, 0.5 * number, kpis, episode_index=number)
    return Trajectory(f"id-{number}", 700 + number, summary)


def test_kpis_with_names_of_columns_are_kept_apart_from_them(tmp_path: Path) -> None:
    values = itertools.count(1000.25)
    episodes = [played(number, {name: next(values) for name in NAMES[number:]}) for number in range(3)]
    path = tmp_path / "episodes.csv"
    path.write_bytes(episode_table(episodes))
    with path.open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    assert header[:5] == COLUMNS
    assert len(set(header)) == len(header) == 5 + len(NAMES)
    assert {"kpi/return", "kpi/seed", "cost", "returns"} <= set(header)
    assert [line[:5] for line in lines] == [
        ["0", "id-0", "700", "0.0", "10"],
        ["1", "id-1", "701", "0.5", "11"],
        ["2", "id-2", "702", "1.0", "12"],
    ]
    assert read_episode_table(path) == {
        one.episode_id: EpisodeRow(str(number), one.seed, one.summary.reward, one.summary.kpis)
        for number, one in enumerate(episodes)
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # columns of KPIs had the names of KPIs
        (
            "episode,episode_id,seed,return,env_steps,return,seed,cost\n0,x,7,1.5,3,111.0,222.0,4.0\n",
            {"x": EpisodeRow("0", 7, 1.5, {"return": 111.0, "seed": 222.0, "cost": 4.0})},
        ),
        # rows had cells without a name if the first episode lacked KPIs
        ("episode,episode_id,seed,return,env_steps,cost\n0,x,7,1.5,3,4.0,5.0\n", {"x": EpisodeRow("0", 7, 1.5)}),
        ("episode,episode_id\n\n0,x\n", {"x": EpisodeRow("0")}),
        ("episode,seed\n0,3\n", {}),
        ("", {}),
    ],
)
def test_tables_of_earlier_versions_and_parts_of_tables_are_read(
    tmp_path: Path, text: str, expected: dict[str, EpisodeRow]
) -> None:
    path = tmp_path / "episodes.csv"
    path.write_text(text, encoding="utf-8")
    assert read_episode_table(path) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"episode,episode_id,cost\n0,x,1.5\n1,y,free\n", "line 3: could not convert string to float: 'free'"),
        (b"episode_id,return\nx,1.5\ny,\0\0\0\n", "line 3: could not convert string to float"),
        (b"episode_id,return\n\xff,1.5\n", "'utf-8' codec can't decode"),
        (b"episode_id,return\n" + b"x" * 200_000 + b",1.5\n", "field larger than field limit"),
    ],
)
def test_a_damaged_table_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "episodes.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"episodes.csv is damaged: {message}"):
        read_episode_table(path)


def test_a_folder_in_its_place_is_named_and_the_mark_of_a_spreadsheet_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"{tmp_path} cannot be read: Is a directory"):
        read_episode_table(tmp_path)
    path = tmp_path / "episodes.csv"
    path.write_bytes(b"\xef\xbb\xbfepisode,episode_id,seed\r\n0,x,\xc2\xb2\r\n")
    assert read_episode_table(path) == {"x": EpisodeRow("0")}

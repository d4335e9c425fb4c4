"""Events as a table, from whatever holds them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import maze_pl
from maze_pl.config.search_path import ConfigurationError
from maze_pl.events import EventLogFiles, define_episode_stats, define_epoch_stats, define_step_stats
from maze_pl.runs.rollout import Trajectory, rollout
from maze_pl.viewer.document import episode_document
from maze_pl.viewer.events import EpisodeEvents, rows_of_folder, rows_of_states
from maze_pl.viewer.playing import episode_of
from tests.envs.line import make_line_env


@pytest.fixture(scope="module")
def played() -> list[Trajectory]:
    return rollout(make_line_env, "random", 2, record=["spaces", "states", "events"], max_steps=4)


def moves(table: Any) -> Any:
    return table[table["event"] == "moved"].reset_index(drop=True)[["episode_id", "env_step", "distance"]]


def test_table_has_a_row_for_each_event(played: list[Trajectory]) -> None:
    table = maze_pl.events_table(played)
    assert list(table.columns[:4]) == ["episode_id", "env_step", "topic", "event"]
    assert moves(table)["env_step"].tolist() == [0, 1, 2, 3] * 2
    assert moves(table)["episode_id"].nunique() == 2
    assert (table[table["event"] == "reward"]["topic"] == "BaseEnvEvents").all()
    total = table[table["event"] == "reward"].groupby("episode_id")["value"].sum()
    assert total.tolist() == [one.summary.reward for one in sorted(played, key=lambda one: one.episode_id)]


def test_records_documents_and_folders_give_the_same_events(played: list[Trajectory], tmp_path: Path) -> None:
    files = EventLogFiles(str(tmp_path / "event_logs"))
    for trajectory in played:
        for rows in trajectory.events:
            files.append(*rows)
    expected = moves(maze_pl.events_table(played))
    document = episode_document([episode_of(one, "", "") for one in played])
    for source in (document, [one.states for one in played]):
        assert moves(maze_pl.events_table(source)).astype(str).equals(expected.astype(str))
    of_folder = moves(maze_pl.events_table(tmp_path)).sort_values(["episode_id", "env_step"], ignore_index=True)
    assert of_folder.equals(expected.sort_values(["episode_id", "env_step"], ignore_index=True))


def test_half_a_last_row_of_an_event_log_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "LineEvents.moved.csv"
    header = "episode_id,episode_started,env_time,distance\n"
    for half in ("", "e", "e,1.5,4", "e,1.5,4,1"):  # of 17
        path.write_text(f"{header}e,1.5,3,16\n{half}")
        assert [rows for _, _, rows in rows_of_folder(tmp_path)["e"]] == [[("e", 1.5, 3, 16)]]
    path.write_text(header[:-1])
    assert rows_of_folder(tmp_path) == {}


def test_shares_of_rewards_are_summed_by_step() -> None:
    columns = {"episode_id": "str", "episode_started": "float", "env_time": "int", "name": "str", "value": "float"}
    rows = [("e", 0.0, 5, "cost", -1.0), ("e", 0.0, 5, "gain", 3.0), ("e", 0.0, 6, "cost", -2.0)]
    rewards = [("e", 0.0, 5, 2.0), ("e", 0.0, 6, -2.0)]
    plain = {name: columns[name] for name in list(columns)[:3]} | {"value": "float"}
    events = EpisodeEvents([("RewardShareEvents.share", columns, rows), ("BaseEnvEvents.reward", plain, rewards)], 2)
    assert {name: values.tolist() for name, values in events.shares().items()} == {"cost": [-1, -2], "gain": [3, 0]}
    assert events.reward() is not None and events.reward().tolist() == [2.0, -2.0]


def test_folders_without_events_are_named(played: list[Trajectory], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there are no events"):
        maze_pl.events_table(tmp_path)
    with pytest.raises(ConfigurationError, match="not a folder of a rollout"):
        maze_pl.events_table(tmp_path / "missing")


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "episode_id,episode_started,env_time\ne,0.0,x\n"])
def test_damaged_log_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "Topic.event.csv").write_text(content)
    with pytest.raises(ConfigurationError, match=r"Topic\.event\.csv"):
        rows_of_folder(tmp_path)


def write_log(folder: Path, name: str, attributes: list[str], rows: list[tuple[Any, ...]]) -> None:
    columns = dict.fromkeys(["episode_id", "episode_started", "env_time", *attributes], "")
    EventLogFiles(str(folder)).append(name, columns, rows)


def test_repetitions_of_an_episode_are_told_apart_by_their_starts(tmp_path: Path) -> None:
    rewards = [("e", started, time, started + time) for started in (3.5, 7.25) for time in range(3)]
    write_log(tmp_path, "BaseEnvEvents.reward", ["value"], [*rewards, ("f", 3.5, 0, 9.0)])
    write_log(tmp_path, "A.b", ["episode_started_", "topic"], [("e", 7.25, 1, 2, "name")])
    table = maze_pl.events_table(tmp_path)
    totals = table[table["event"] == "reward"].groupby(["episode_id", "episode_started"])["value"].sum()
    assert totals.to_dict() == {("e", 3.5): 3 * 3.5 + 3, ("e", 7.25): 3 * 7.25 + 3, ("f", 3.5): 9.0}
    (other,) = table[table["event"] == "b"].to_dict("records")
    assert [other[name] for name in ("episode_started", "topic", "episode_started_", "topic_")] == [
        7.25,
        "A",
        2,
        "name",
    ]
    assert [len(rows) for _, _, rows in rows_of_folder(tmp_path)["e"]] == [1, 3]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ([7, 10], [7, 10]),
        ([1.5, 2, None], [1.5, 2, None]),
        (["007", "10"], ["007", "10"]),
        (["1e3", "2.0"], ["1e3", "2.0"]),
        (["12", "x"], ["12", "x"]),
        ([True, False], [True, False]),
        (["True", "not"], ["True", "not"]),
        (["(4, 3)", "[1]"], [(4, 3), [1]]),
        (["(4,3)", "(a)"], ["(4,3)", "(a)"]),
        (["1_0", "2"], ["1_0", "2"]),
    ],
)
def test_texts_of_a_log_are_not_made_numbers(written: list[Any], read: list[Any], tmp_path: Path) -> None:
    write_log(tmp_path, "A.b", ["x"], [("e", 0.0, time, value) for time, value in enumerate(written)])
    ((_, _, rows),) = rows_of_folder(tmp_path)["e"]
    assert [(row[3], type(row[3])) for row in rows] == [(value, type(value)) for value in read]


class Lateness:
    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="minutes")
    def late(self, env_time: int, minutes: int) -> None:
        """Something planned for a time came later."""


def test_an_attribute_may_have_the_name_of_a_column() -> None:
    event = SimpleNamespace(topic=Lateness, event=Lateness.late, attributes={"env_time": 7, "minutes": 5}, env_time=9)
    record: Any = SimpleNamespace(steps=[SimpleNamespace(events=[event])], episode_id="e")
    (rows,) = rows_of_states(record)
    assert list(rows[1]) == ["episode_id", "episode_started", "env_time", "env_time_", "minutes"]
    assert rows[2] == [("e", None, 9, 7, 5)]
    assert EpisodeEvents([rows], 10).content()

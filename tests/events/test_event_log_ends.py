"""Event logs are cut back to a checkpoint, and only those of the run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from maze_pl.events import EventLogFiles
from maze_pl.events.event_log_ends import cut_event_logs, event_log_ends, last_ends
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from maze_pl.system.deferred_files import deferred_files
from tests.events.yard import yard

FORMATS = pytest.mark.parametrize("format", ["csv", "parquet"])


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path / "run"))
    return tmp_path / "run"


def log(folder: str | Path, format: Any, names: str, event: str = "arrived") -> str:
    """Write an event for each letter, and return the folder."""
    writer = EventLogFiles(str(folder), format)
    events, _ = yard(writer)
    for name in names:
        if event == "arrived":
            events.arrived(name, 1.0)
        else:
            events.left()
    written = writer.write_pending()
    deferred_files().flush()
    assert written is not None
    return written


def names_in(folder: Path, format: str) -> str:
    path = folder / f"YardEvents.arrived.{format}"
    frame = pd.read_parquet(path) if format == "parquet" else pd.read_csv(path)
    return "".join(frame["lorry"])


@pytest.mark.slow
@FORMATS
def test_rows_after_a_checkpoint_are_removed_and_others_follow(run_dir: Path, format: Any) -> None:
    log("logs", format, "a")
    ends = event_log_ends([log("logs", format, "bc")])
    log("logs", format, "d")
    log("logs", format, "e", event="left")
    assert names_in(run_dir / "logs", format) == "abcd"
    cut_event_logs(ends)
    assert names_in(run_dir / "logs", format) == "abc"
    left = run_dir / "logs" / f"YardEvents.left.{format}"
    assert list(left.iterdir()) == [] if format == "parquet" else not left.exists()
    log("logs", format, "f")
    assert names_in(run_dir / "logs", format) == "abcf"
    cut_event_logs(ends)  # the run was killed once more
    assert names_in(run_dir / "logs", format) == "abc"
    cut_event_logs(ends)
    assert names_in(run_dir / "logs", format) == "abc"


def test_parquet_files_are_cut_in_their_order_on_a_machine_whose_clock_is_behind(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, now = run_dir / "logs", [10**18]
    monkeypatch.setattr("time.time_ns", lambda: now.append(now[-1] + 1) or now[-1])
    log("logs", "parquet", "a")
    first = event_log_ends([log("logs", "parquet", "b")])
    second = event_log_ends([log("logs", "parquet", "c")])
    log("logs", "parquet", "d")
    for start in (10**17, 10**16):  # another machine each time, whose clock is further behind
        now.append(start)
        cut_event_logs(second)
        assert names_in(folder, "parquet") == "abc"
        third = event_log_ends([log("logs", "parquet", "e")])
        log("logs", "parquet", "f")
        assert names_in(folder, "parquet") == "abcef"
        cut_event_logs(third)
        assert names_in(folder, "parquet") == "abce"
        cut_event_logs(second)  # killed before the next checkpoint
        assert names_in(folder, "parquet") == "abc"
        log("logs", "parquet", "g")
    cut_event_logs(first)
    assert names_in(folder, "parquet") == "ab"


def test_a_kill_while_parquet_files_get_other_numbers_changes_neither_their_rows_nor_their_order(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        ends = event_log_ends([log("logs", "parquet", name)])
    log("logs", "parquet", "d")
    monkeypatch.setattr("time.time_ns", lambda: 5)
    rename, n_left = Path.rename, [0]

    def rename_until_killed(path: Path, target: Path) -> Path:
        n_left[0] -= 1
        if n_left[0] < 0:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_until_killed)
    for n_renamed in range(3):
        n_left[0] = n_renamed
        with pytest.raises(KeyboardInterrupt):
            cut_event_logs(ends)
        assert names_in(run_dir / "logs", "parquet") == "abc"
    n_left[0] = 3
    cut_event_logs(ends)
    log("logs", "parquet", "e")
    assert names_in(run_dir / "logs", "parquet") == "abce"


def test_rows_of_ranks_that_wrote_later_are_kept(run_dir: Path) -> None:
    first = event_log_ends([log("logs", "csv", "a")])
    second = event_log_ends([log("logs", "csv", "b"), log("others", "csv", "c")])
    log("logs", "csv", "d")
    log("others", "csv", "e")
    cut_event_logs(last_ends([first, second, {}]))
    assert names_in(run_dir / "logs", "csv") == "ab"
    assert names_in(run_dir / "others", "csv") == "c"


@FORMATS
def test_folders_outside_of_the_run_directory_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Any
) -> None:
    folders = [log(tmp_path / "shared", format, "a"), log("../beside", format, "a")]
    assert event_log_ends(folders) == {}
    inside = event_log_ends([log("logs", format, "a")])
    log("logs", format, "b")
    monkeypatch.delenv(RUN_DIR_VARIABLE)
    assert event_log_ends([str(tmp_path / "run" / "logs")]) == {}
    cut_event_logs(inside)
    assert names_in(tmp_path / "run" / "logs", format) == "ab"


def test_other_files_in_the_folder_are_left_alone(run_dir: Path) -> None:
    ends = event_log_ends([log(".", "csv", "a")])
    contents = {"metrics.csv": "step,loss\n1,2\n", "episode.csv": "", "YardEvents.arrived.txt": "text"}
    for name, content in contents.items():
        (run_dir / name).write_text(content)
    (run_dir / "table.parquet").mkdir()
    (run_dir / "table.parquet" / "part.parquet").touch()
    cut_event_logs(ends)
    assert {name: (run_dir / name).read_text() for name in contents} == contents
    assert os.listdir(run_dir / "table.parquet") == ["part.parquet"]


def test_a_run_directory_may_have_been_moved(run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = event_log_ends([log("logs", "csv", "a")])
    log("logs", "csv", "b")
    run_dir.rename(tmp_path / "moved")
    cut_event_logs(ends)  # there is nothing any more
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path / "moved"))
    cut_event_logs(ends)
    assert names_in(tmp_path / "moved" / "logs", "csv") == "a"


def test_a_file_that_is_shorter_than_it_was_stays_as_it_is(run_dir: Path) -> None:
    ends = event_log_ends([log("logs", "csv", "ab")])
    path = run_dir / "logs" / "YardEvents.arrived.csv"
    shorter = path.read_bytes()[:-1]
    path.write_bytes(shorter)
    cut_event_logs(ends)
    assert path.read_bytes() == shorter

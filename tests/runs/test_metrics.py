from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

import maze_pl
from maze_pl.callbacks import MetricsFile, TensorBoardLog
from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.metrics import read_columns, wall_clock


@pytest.fixture
def run(tmp_path: Path) -> Path:
    metrics = MetricsFile(str(tmp_path))
    metrics.log_metrics({"train/a": 0.1, "own, quoted": 3}, step=10)
    metrics.log_metrics({"train/a": 1e-300}, step=2**53 + 2)
    return tmp_path


def test_metrics_are_a_table_over_env_steps_with_all_digits(run: Path) -> None:
    frame = maze_pl.read_metrics(run)
    assert frame.index.name == "env_steps" and frame.index.tolist() == [10, 2**53 + 2]
    assert frame["train/a"].tolist() == [0.1, 1e-300]
    np.testing.assert_array_equal(frame["own, quoted"], [3, np.nan])
    assert maze_pl.read_metrics(run / "metrics.csv").equals(frame)


def test_a_row_that_is_being_written_is_left_out(run: Path) -> None:
    with (run / "metrics.csv").open("a") as file:
        file.write("20,1.")
    assert read_columns(run)["step"].tolist() == [10, 2**53 + 2]


def test_the_wall_clock_continues_when_a_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("maze_pl.loggers.metrics_file.time.monotonic", lambda: now[0])
    first = MetricsFile(str(tmp_path))
    for step in (10, 20, 30):
        now[0] += 5
        first.log_metrics({"a": 1.0}, step=step)
    now[0] = 1000.0
    resumed = MetricsFile(str(tmp_path))
    now[0] += 2
    resumed.log_metrics({"a": 2.0}, step=30)
    now[0] += 2
    resumed.log_metrics({"b": 2.0}, step=40)
    columns = read_columns(tmp_path)
    assert columns["step"].tolist() == [10, 20, 30, 40]
    assert columns["time_wall_clock"].tolist() == [5, 10, 12, 14]


def test_runs_of_earlier_versions_have_the_times_of_their_epochs(tmp_path: Path) -> None:
    with (tmp_path / "metrics.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["step", "train_A/time_epoch"], [1, 2.0], [2, ""], [3, 4.0]])
    found = wall_clock(read_columns(tmp_path))
    assert found is not None and found.tolist() == [2, 2, 6]
    assert wall_clock({"step": np.zeros(1)}) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "has no metrics of maze_pl"),
        ("step,a\n1,2\n3\n", "line 3 has 1 values for 2 columns"),
        ("step,a\n1,x\n", "line 2 has 'x' for a, which is not a number"),
        ("step,a,a\n1,2,3\n", "must name different columns"),
        ("step,a", "its first line is incomplete"),
        ("step,a\n\n1,2\n\nx,3\n", "line 5 has 'x' for step"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_columns(tmp_path)


def test_a_file_that_a_spreadsheet_has_written_is_read(run: Path) -> None:
    before = read_columns(run)
    path = run / "metrics.csv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes() + b"\n")
    after = read_columns(path)
    assert list(after) == list(before)
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values)


def test_a_missing_file_bytes_and_a_missing_package_are_said(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="does not exist: it appears after the first epoch"):
        read_columns(run / "nowhere")
    (run / "binary.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="is damaged"):
        read_columns(run / "binary.csv")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigurationError, match=r"read_metrics needs pandas: pip install 'maze-pl\[pandas\]'"):
        maze_pl.read_metrics(run)


def test_the_name_in_maze_reads_the_same_log(tmp_path: Path) -> None:
    log = TensorBoardLog(str(tmp_path))
    log.log_metrics({"a": 2.0}, 10)
    log.finalize("success")
    frame = maze_pl.tensorboard_to_dataframe(tmp_path)
    assert frame["a"].tolist() == [2.0] and frame.equals(maze_pl.tensorboard_to_pandas(tmp_path))

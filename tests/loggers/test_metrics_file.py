from __future__ import annotations

import csv
from pathlib import Path

import torch

from maze_pl.callbacks import MetricsFile


def read(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert float(row.pop("time_wall_clock")) >= 0
    return rows


def test_values_of_one_step_share_a_row_and_new_names_become_columns(tmp_path: Path) -> None:
    metrics = MetricsFile(str(tmp_path / "run"))
    metrics.log_metrics({"train/a": 1.0}, step=10)
    metrics.log_metrics({"eval/b": torch.tensor(2.5)}, step=10)
    metrics.log_metrics({"train/a": 3}, step=20)
    metrics.log_metrics({"train/a": 4, "eval/c": 1e-9}, step=30)
    assert read(tmp_path / "run") == [
        {"step": "10", "train/a": "1.0", "eval/b": "2.5", "eval/c": ""},
        {"step": "20", "train/a": "3", "eval/b": "", "eval/c": ""},
        {"step": "30", "train/a": "4", "eval/b": "", "eval/c": "1e-09"},
    ]


def test_a_shorter_value_leaves_nothing_of_the_longer_one(tmp_path: Path) -> None:
    metrics = MetricsFile(str(tmp_path))
    metrics.log_metrics({"a": 123456.789, "b": 1}, step=1)
    metrics.log_metrics({"a": 1}, step=1)
    assert read(tmp_path) == [{"step": "1", "a": "1", "b": "1"}]


def test_a_resumed_run_goes_on_and_rows_that_it_will_write_again_are_dropped(tmp_path: Path) -> None:
    first = MetricsFile(str(tmp_path))
    for step in (10, 20, 30):
        first.log_metrics({"a": step, "b": 1}, step=step)
    resumed = MetricsFile(str(tmp_path))
    resumed.log_metrics({"a": 200}, step=20)
    resumed.log_metrics({"c": 2}, step=20)
    assert [(row["step"], row["a"], row["b"], row["c"]) for row in read(tmp_path)] == [
        ("10", "10", "1", ""),
        ("20", "200", "", "2"),
    ]


def test_steps_beyond_single_precision_stay_exact(tmp_path: Path) -> None:
    metrics = MetricsFile(str(tmp_path))
    metrics.log_metrics({"a": 1}, step=2**24 + 1)
    assert read(tmp_path)[0]["step"] == "16777217"

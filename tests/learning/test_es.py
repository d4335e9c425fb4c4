"""Evolution strategies solve CartPole with the shipped configuration."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from maze_pl.__main__ import main

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_es_solves_cartpole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--trainer.max_epochs", "40", "--stop_at_return.threshold", "475", "--run_dir", "run"]
    assert main(["fit", "--config", "es_cartpole", *options]) == 0
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").open(encoding="utf-8")))
    returns = [float(row["eval_BaseEnvEvents/reward/mean"]) for row in rows if row["eval_BaseEnvEvents/reward/mean"]]
    assert returns[0] < 200
    assert returns[-1] >= 475

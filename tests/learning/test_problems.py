"""The smallest row of each applied problem in docs/problems.md, once more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SIGNS = {"ride_hailing": -1}  # of problems whose values are better if they are higher
ROWS = [
    ("cutting_2d", "structured"),
    ("job_shop", "structured"),
    ("vehicle_routing", "structured_pointer"),
    ("multi_echelon_stock", "structured"),
    ("ride_hailing", "structured"),
]


def mean_of(result: dict[str, Any]) -> float:
    """Mean of the values of the test episodes."""
    return float(np.mean(result["values"]))


def run_python(*arguments: str) -> str:
    """Standard output of a program of Python that must succeed."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "ignore", *arguments]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("problem", "variant"), ROWS)
def test_row_of_an_applied_problem_is_repeated(problem: str, variant: str, tmp_path: Path) -> None:
    recorded = json.loads((ROOT / "docs" / "results" / "structure.json").read_text(encoding="utf-8"))
    file = tmp_path / "results.json"
    options = ["--problems", problem, "--variants", variant, "--seeds", "0", "--results", str(file)]
    run_python(str(ROOT / "benchmarks" / "structure.py"), *options)
    mean = mean_of(json.loads(file.read_text(encoding="utf-8"))[f"{problem}/{variant}/0"])
    expected = mean_of(recorded[f"{problem}/{variant}/0"])
    assert mean == pytest.approx(expected, rel=0.05)
    flat = [mean_of(result) for key, result in recorded.items() if key.startswith(f"{problem}/flat/")]
    assert SIGNS.get(problem, 1) * mean < SIGNS.get(problem, 1) * np.mean(flat)


@pytest.mark.slow
@pytest.mark.long
def test_the_small_stock_costs_at_most_one_percent_more_than_its_optimum(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    run_python("-m", "maze_pl", "fit", "--config", "ppo_multi_echelon_stock_small", "--run_dir", run)
    table = run_python(str(ROOT / "benchmarks" / "multi_echelon_stock.py"), "small", run)
    (row,) = [line for line in table.splitlines() if line.startswith(run)]
    match = re.search(r"(\d+\.\d+)% above the optimum", row)
    assert match is not None and float(match[1]) <= 1.0

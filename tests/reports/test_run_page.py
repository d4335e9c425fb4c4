"""The page of a run."""

from __future__ import annotations

from pathlib import Path

from maze_pl.reports.run_page import ReportedRuns, run_page
from tests.reports.written_runs import write_run


def test_numbers_that_are_too_large_to_be_drawn_are_named_on_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 0, [1.0, -1e308])
    assert "too large to be drawn" in run_page(ReportedRuns(run, [run]))

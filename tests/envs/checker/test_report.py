"""Reports of the doctor as they are shown."""

from __future__ import annotations

from maze_pl.envs.checker import CheckLine, CheckReport


def test_notebooks_show_the_table() -> None:
    report = CheckReport("Walk", (CheckLine("steps", "ok", "all well"),))
    assert repr(report) == str(report)
    assert "steps | ok      | all well" in repr(report).splitlines()

"""Sections of a run's page with results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from maze_pl.reports.page_results import comparison_section, kpi_section
from maze_pl.runs.checkpoint_files import checkpoint_digest
from tests.reports.written_runs import write_run

KPI = "eval_BaseEnvEvents/kpi/mean/"


def kpi_rows(run: Path, *lines: str) -> list[list[str]]:
    """Rows of the table of KPIs for the lines of a file of metrics."""
    (run / "metrics.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = str(kpi_section([run]))
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)]
    return [row for row in rows if row]


def test_kpis_are_those_of_the_last_evaluation(tmp_path: Path) -> None:
    head = f"step,eval_BaseEnvEvents/reward/mean,{KPI}delay,{KPI}waste,{KPI}never,train_BaseEnvEvents/loss"
    rows = kpi_rows(tmp_path, head, "100,1.0,5.0,0.5,,1.0", "200,2.0,,0.25,,2.0", "300,,,,,3.0")
    name = tmp_path.name
    assert rows == [[name, "eval", "delay", "200", "no episode has it"], [name, "eval", "waste", "200", "0.25"]]


def test_results_of_an_earlier_checkpoint_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = write_run(Path("run"))
    file = run / "checkpoints" / "best.ckpt"
    file.parent.mkdir()
    file.write_bytes(b"first")
    summary = {"n_values": 3, "mean": 1.0, "mean_interval": None, "iqm": 1.0, "iqm_interval": None}
    played = {"file": str(file), "sha256": checkpoint_digest(file), "env_steps": 6000}
    entries = [
        {"name": "run", "metrics": {"return": summary}, "checkpoints": [played, "damaged"]},
        {"name": "earlier_version", "metrics": {"return": summary}},
    ]
    (run / "comparison.json").write_text(json.dumps({"entries": entries}))
    assert "earlier checkpoint" not in str(comparison_section(run, [run], None))
    file.write_bytes(b"second")
    note = "run was played by an earlier checkpoint, after 6,000 env steps: "
    assert f"{note}{file} has changed." in str(comparison_section(run, [run], None))
    (tmp_path / "new").mkdir()
    run = run.rename(tmp_path / "new" / "run")
    assert f"{note}{run / 'checkpoints' / 'best.ckpt'} has changed." in str(comparison_section(run, [run], None))
    (run / "checkpoints" / "best.ckpt").unlink()
    assert "earlier checkpoint" not in str(comparison_section(run, [run], None))


def changed(run: Path, *files: str) -> list[str]:
    """Recorded files of checkpoints that a page of a run with another checkpoint marks as changed."""
    (run / "checkpoints").mkdir(parents=True, exist_ok=True)
    (run / "checkpoints" / "best.ckpt").write_bytes(b"now")
    summary = {"n_values": 3, "mean": 1.0, "mean_interval": None, "iqm": 1.0, "iqm_interval": None}
    entries = []
    for file in files:
        played = {"file": f"{file}/checkpoints/best.ckpt", "sha256": 64 * "0", "env_steps": 6000}
        entries.append({"name": file, "metrics": {"return": summary}, "checkpoints": [played]})
    (run / "comparison.json").write_text(json.dumps({"entries": entries}))
    text = str(comparison_section(run, [run], None))
    return [file for file in files if f"{file} was played by an earlier checkpoint" in text]


def test_a_moved_run_is_found_by_the_end_of_its_path(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a" / "seed_0")
    assert changed(run, "old/a/seed_0", "old/b/seed_0") == ["old/a/seed_0"]
    assert changed(run, "old/b/seed_0") == []  # a seed of another training
    assert changed(run, "seed_0") == ["seed_0"]  # named in the folder of its training
    run = write_run(tmp_path / "new" / "ppo")
    assert changed(run, "old/ppo", "old/a2c") == ["old/ppo"]
    assert changed(run, "old/ppo", "older/ppo") == []  # which of them is not known
    assert changed(run, str(run), "old/ppo") == [str(run)]

"""Sections of a run's page with results."""

from __future__ import annotations

import re
from pathlib import Path

from maze_pl.reports.page_results import kpi_section

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

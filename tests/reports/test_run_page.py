"""The page of a run."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

from maze_pl.reports.run_page import ReportedRuns, run_page
from tests.reports.written_runs import write_run


def test_numbers_that_are_too_large_to_be_drawn_are_named_on_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 0, [1.0, -1e308])
    assert "too large to be drawn" in run_page(ReportedRuns(run, [run]))


def section_of(page: str, title: str) -> str:
    """The part of a page below a heading."""
    return page.partition(f"<h2>{title}</h2>")[2].partition("</section>")[0]


def cells(section: str) -> list[list[str]]:
    """The cells of the tables in a section, without rows of titles."""
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", section, re.DOTALL)]
    return [[unescape(cell) for cell in row] for row in rows if row]


def two_trials(folder: Path) -> list[Path]:
    """Two seeds of each of two learning rates."""
    runs = []
    for trial, rate in enumerate((0.1, 0.2)):
        for seed in (0, 1):
            run = write_run(folder / f"trial_{trial}" / f"seed_{seed}", seed, config={"model": {"lr": rate}})
            episodes = {"evaluators": {"eval": {"best": [{"return": 1.0}]}}}
            (run / "final_evaluation.json").write_text(json.dumps(episodes))
            with (run / "metrics.csv").open("w") as file:
                file.write("step,eval_BaseEnvEvents/reward/mean,eval_BaseEnvEvents/kpi/mean/delay\n100,1.0,0.5\n")
            runs.append(run)
    return runs


def test_runs_of_several_folders_have_names_that_tell_them_apart(tmp_path: Path) -> None:
    runs = two_trials(tmp_path)
    names = [f"trial_{trial}/seed_{seed}" for trial in (0, 1) for seed in (0, 1)]
    page = run_page(ReportedRuns(runs[0], runs))
    for title in ("Runs", "Final evaluation", "KPIs"):
        assert [row[0] for row in cells(section_of(page, title))] == names, title
    for run in runs:
        (run / "final_evaluation.json").unlink()
    page = run_page(ReportedRuns(runs[0], runs))
    assert [row[0] for row in cells(section_of(page, "Final evaluation"))] == names
    paths = " ".join(str(run) for run in runs)
    assert f"maze-pl plot {paths} --statistic NAME" in section_of(page, "Curves")
    page = run_page(ReportedRuns(tmp_path / "trial_0", runs[:2]))
    assert [row[0] for row in cells(section_of(page, "Runs"))] == ["seed_0", "seed_1"]
    assert f"maze-pl plot {tmp_path / 'trial_0'} --statistic NAME" in section_of(page, "Curves")


def test_the_title_names_or_counts_all_paths(tmp_path: Path) -> None:
    runs = two_trials(tmp_path)
    titles = []
    for path, reported in ((runs[0], runs[:1]), (tmp_path / "trial_0", runs[:2]), (runs[0], runs[:2]), (runs[0], runs)):
        page = run_page(ReportedRuns(path, reported))
        titles.append(re.findall(r"<title>(.*): report</title>", page) + re.findall(r"<h1>(.*)</h1>\s*<p>", page))
    assert titles == [["seed_0"] * 2, ["trial_0"] * 2, ["seed_0 and seed_1"] * 2, ["4 runs"] * 2]
    assert f"<p>{', '.join(map(str, runs))}</p>" in page


def test_the_kpi_that_selects_the_best_checkpoint_is_shown_first(tmp_path: Path) -> None:
    monitor = {"best_checkpoint": {"monitor": "eval/kpi/profit"}}
    runs = [write_run(tmp_path / name, seed, config=monitor) for seed, name in enumerate(("a", "b"))]
    kpis = ",".join(f"eval_BaseEnvEvents/kpi/mean/{name}" for name in ("cycles", "profit"))
    for run in runs:
        (run / "metrics.csv").write_text(f"step,eval_BaseEnvEvents/reward/mean,{kpis}\n100,1.0,2.0,3.0\n")
    page = run_page(ReportedRuns(runs[0], runs))
    titles = re.findall(r"<th[^>]*>(.*?)</th>", section_of(page, "Runs"))
    assert titles[3:] == [
        "env steps",
        "eval profit, last",
        "eval return, last",
        "eval return, best",
        "eval cycles, last",
    ]
    assert cells(section_of(page, "Runs"))[0][3:] == ["100", "3", "1", "1", "2"]
    curves = section_of(page, "Curves")
    assert curves.index("curve of eval/kpi/profit") < curves.index("curve of eval/kpi/cycles")
    tiles = run_page(ReportedRuns(runs[0], runs[:1])).partition("<section>")[0]
    assert "<span>eval profit, last</span>" in tiles and "cycles" not in tiles


def test_the_page_says_if_runs_have_the_same_configuration_and_seed(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, 0) for name in ("a", "b")]
    section = section_of(run_page(ReportedRuns(runs[0], runs)), "Configuration")
    assert section.startswith("\n<p>The runs are these groups:</p>") and "are not independent" in section
    assert cells(section) == [["a", "a"], ["b", "b"]]


def test_the_page_says_if_the_configurations_of_runs_differ(tmp_path: Path) -> None:
    runs = two_trials(tmp_path)
    section = section_of(run_page(ReportedRuns(runs[0], runs)), "Configuration")
    assert section.startswith("\n<p>The runs have 2 different configurations:</p>") and "stands for all" not in section
    assert section.index("</table>") < section.index(">Of trial_0/seed_0:</p>") < section.index("<dl>")
    assert cells(section) == [
        ["model.lr=0.1", "trial_0/seed_0, trial_0/seed_1"],
        ["model.lr=0.2", "trial_1/seed_0, trial_1/seed_1"],
    ]
    section = section_of(run_page(ReportedRuns(runs[0], runs[:2])), "Configuration")
    assert section.index("Of seed_0, which stands for all runs:") < section.index("<dl>")
    assert "different configurations" not in section
    (runs[1] / "config.yaml").write_text("[]")
    section = section_of(run_page(ReportedRuns(runs[0], runs)), "Configuration")
    assert "seed_1/config.yaml is damaged: it holds no options" in section and "stands for all" not in section
    assert cells(section) == [
        ["model.lr=0.1", "trial_0/seed_0"],
        ["model.lr=0.2", "trial_1/seed_0, trial_1/seed_1"],
        ["trial_0/seed_1", "trial_0/seed_1"],
    ]


def test_a_comparison_of_all_runs_is_proposed(tmp_path: Path) -> None:
    runs = two_trials(tmp_path)
    section = section_of(run_page(ReportedRuns(runs[0], runs)), "Against other policies")
    assert f"maze-pl compare {' '.join(map(str, runs))} --baseline random --to {runs[0]}/comparison" in section
    section = section_of(run_page(ReportedRuns(tmp_path / "trial_0", runs[:2])), "Against other policies")
    assert f"maze-pl compare {tmp_path / 'trial_0'} --baseline random --to" in section


def test_a_damaged_configuration_leaves_the_curves_of_the_others(tmp_path: Path) -> None:
    runs = two_trials(tmp_path)
    n_charts = section_of(run_page(ReportedRuns(runs[0], runs)), "Curves").count("<svg")
    (runs[1] / "config.yaml").write_text("[]")
    section = section_of(run_page(ReportedRuns(runs[0], runs)), "Curves")
    assert section.count("<svg") == n_charts > 0
    assert "trial_0/seed_1 is a group by itself: " in section
    assert "seed_1/config.yaml is damaged: it holds no options" in section


def test_runs_without_metrics_are_named_and_the_curves_of_the_others_are_drawn(tmp_path: Path) -> None:
    runs = two_trials(tmp_path)
    (runs[0] / "metrics.csv").unlink()
    (runs[1] / "metrics.csv").write_text("")
    (runs[2] / "metrics.csv").write_text("step,a\n1,x\n")
    section = section_of(run_page(ReportedRuns(runs[0], runs)), "Curves")
    assert "trial_0/seed_0 has no metrics.csv yet" in section
    assert f"{runs[1] / 'metrics.csv'} is empty" in section and f"{runs[2] / 'metrics.csv'} is damaged" in section
    assert section.count("<svg") == 2  # the return and the KPI of the last run


def test_differences_are_those_of_all_commands_of_the_training_and_start_is_the_first(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    entries: list[dict[str, object]] = []
    for day, start in enumerate(({}, {}, {"resume": "run"})):
        described = {"summary": f"model.lr: {day}", "started": f"2030-01-0{day + 1}", "start": start}
        entries.append({"command": "maze-pl fit", "versions": {}, "git": None, **described})
    (run / "provenance.json").write_text(json.dumps({"commands": entries}), encoding="utf-8")
    section = section_of(run_page(ReportedRuns(run, [run])), "Configuration")
    assert "2030-01-02" in section and "model.lr: 1" in section and "model.lr: 2" in section
    assert "2030-01-01" not in section and "model.lr: 0" not in section

"""Results of several seeds: from the files of their runs to the table and the file."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from maze_pl.core.provenance import Provenance
from maze_pl.runs.provenance import append_provenance
from maze_pl.runs.seed_results import SeedResult, has_ended, read_results, read_values, table_of_seeds, write_results

RETURN, KPI = "eval_BaseEnvEvents/reward/mean", "eval_BaseEnvEvents/kpi/mean/waste"


def write_metrics(folder: Path, *rows: str, head: str = f"step,train_BaseEnvEvents/reward/mean,{RETURN},{KPI}") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "metrics.csv"
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return path


def test_values_are_of_the_last_and_the_best_evaluation(tmp_path: Path) -> None:
    path = write_metrics(tmp_path, "100,1.0,5.0,0.4", "200,2.0,9.0,0.3", "300,3.0,7.0,0.2", "400,4.0,,")
    assert read_values(path) == {
        "env steps": 400.0,
        "eval return, last": 7.0,
        "eval return, best": 9.0,
        "eval waste, last": 0.2,
    }


def test_a_kpi_that_the_last_evaluation_lacks_has_no_value(tmp_path: Path) -> None:
    path = write_metrics(tmp_path, "100,1.0,5.0,0.4", "200,2.0,9.0,0.3", "300,3.0,7.0,", "400,4.0,,")
    names = ["env steps", "eval return, last", "eval return, best"]
    assert read_values(path) == dict(zip(names, [400.0, 7.0, 9.0], strict=True))


def test_the_best_return_is_that_of_the_evaluations_that_have_one(tmp_path: Path) -> None:
    path = write_metrics(tmp_path, "100,1.0,nan,0.4", "200,2.0,9.0,0.3", "300,3.0,7.0,0.2")
    assert read_values(path)["eval return, best"] == 9.0
    path = write_metrics(tmp_path, "100,1.0,-inf,0.4", "200,2.0,nan,0.3")
    assert read_values(path)["eval return, best"] == -math.inf
    path = write_metrics(tmp_path, "100,1.0,nan,0.4")
    assert math.isnan(read_values(path)["eval return, best"])


def test_a_kpi_called_return_is_not_the_return(tmp_path: Path) -> None:
    kpi = KPI.removesuffix("waste")
    head = f"step,{RETURN},{kpi}return,{kpi}kpi/return,{kpi}returns"
    path = write_metrics(tmp_path, "100,5.0,0.5,1.5,2.5", "200,4.0,0.25,1.25,2.25", head=head)
    assert read_values(path) == {
        "env steps": 200.0,
        "eval return, last": 4.0,
        "eval return, best": 5.0,
        "eval kpi/return, last": 0.25,
        "eval kpi/kpi/return, last": 1.25,
        "eval returns, last": 2.25,
    }


def test_without_evaluations_they_are_those_of_training(tmp_path: Path) -> None:
    path = write_metrics(tmp_path, "100,1.0", "200,0.5", head="step,train_BaseEnvEvents/reward/mean")
    assert read_values(path) == {"env steps": 200.0, "train return, last": 0.5, "train return, best": 1.0}
    assert read_values(tmp_path / "nothing.csv") == {}


@pytest.mark.parametrize("half", ["300,3", "300,3.0,9", "300,3.0,99.5,0.", "\0\0\0"])
def test_half_a_last_row_has_no_values(tmp_path: Path, half: str) -> None:
    path = write_metrics(tmp_path, "100,1.0,5.0,0.4", "200,2.0,9.0,0.3")
    expected = read_values(path)
    path.write_text(path.read_text() + half)
    assert expected["env steps"] == 200.0 and read_values(path) == expected


def test_the_steps_of_a_clone_are_acts(tmp_path: Path) -> None:
    path = write_metrics(tmp_path, "100,1.0,5.0,0.4")
    command: Provenance = {"command": "fit", "started": "", "seed": 0, "versions": {}, "git": None}
    append_provenance(tmp_path, command | {"step_unit": "acts"})
    assert next(iter(read_values(path).items())) == ("acts", 100.0)


STARTED = "command: maze-pl fit\nrun directory: a\nconfiguration: b\n"
RESUMED = "command: maze-pl fit --resume a --data.env.init_args.text 'two\nlines'\nrun directory: a\n"
ENDED = "ended: max_epochs=1 reached\n40 env steps in 0:00:01 (40 env steps/s)\nrun directory: a\nnext:\n"


@pytest.mark.parametrize(
    ("exit_status", "log", "status", "counts"),
    [
        (0, "", "finished", True),
        (1, f"{STARTED}epoch 1\n{ENDED}", "required return missed", True),
        (1, f"{STARTED}{ENDED}{RESUMED}Traceback\n", "failed", False),
        (1, f"{STARTED}Traceback\n", "failed", False),
        (130, "", "stopped", False),
        (-9, "", "failed", False),
    ],
)
def test_the_status_tells_how_a_run_ended(
    tmp_path: Path, exit_status: int, log: str, status: str, counts: bool
) -> None:
    (tmp_path / "run.log").write_text(f"\n{log}", encoding="utf-8")
    result = SeedResult(3, str(tmp_path), "running")
    result.end(exit_status)
    assert (result.status, result.counts, result.exit_status) == (status, counts, exit_status)


@pytest.mark.parametrize("printed", ["the last command: turn left\n", "command: turn left\n", "ended: lost\n"])
def test_an_environment_that_prints_the_same_words_ends_no_run(tmp_path: Path, printed: str) -> None:
    log = tmp_path / "run.log"
    for text, expected in (
        (f"{STARTED}{ENDED}{printed}", True),
        (f"{STARTED}{printed}{ENDED}", True),
        (f"{STARTED}{ENDED}{RESUMED}{printed}{ENDED}{printed}", True),
        (f"{STARTED}{printed}Traceback\n", False),
        (f"{STARTED}{ENDED}{printed}{RESUMED}{printed}", False),
    ):
        log.write_text(text, encoding="utf-8")
        assert has_ended(tmp_path) == expected, text


def test_runs_that_did_not_end_are_shown_but_not_counted(tmp_path: Path) -> None:
    results = []
    for seed, number in ((0, 4.0), (1, 8.0), (2, 1000.0)):
        write_metrics(tmp_path / f"seed_{seed}", f"100,1.0,{number},0.5")
        result = SeedResult(seed, str(tmp_path / f"seed_{seed}"))
        result.end(0 if seed < 2 else 7)
        results.append(result)
    results.append(SeedResult(3, str(tmp_path / "seed_3")))
    table = table_of_seeds(results)
    assert "failed (exit status 7)" in table and "not started" in table
    (line,) = [line for line in table.splitlines() if line.startswith("eval return, last")]
    assert line.split()[3:5] == ["2", "6"]  # two seeds, and their mean
    write_results(tmp_path, results)
    content = json.loads((tmp_path / "seed_results.json").read_text(encoding="utf-8"))
    assert content["summary"]["eval return, last"]["mean"] == 6.0
    assert [entry["status"] for entry in content["seeds"]] == ["finished", "finished", "failed", "not started"]
    assert read_results(tmp_path) == results
    assert read_results(tmp_path / "nowhere") == []

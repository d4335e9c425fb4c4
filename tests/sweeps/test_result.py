"""What is shown of a sweep: table, importances, progress and pictures, whatever its trials have."""

from __future__ import annotations

import csv
import math
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from maze_pl.cli.option_check import check_options
from maze_pl.config.search_path import ConfigurationError
from maze_pl.reports.run_facts import folder_facts
from maze_pl.sweeps.importances import FEWEST_TRIALS
from maze_pl.sweeps.methods import optuna_module
from maze_pl.sweeps.pictures import write_pictures
from maze_pl.sweeps.progress import Progress, duration_text
from maze_pl.sweeps.result import SweepResult
from maze_pl.sweeps.search_space import suggested
from maze_pl.sweeps.storage import JOURNAL_FILE, create_study
from maze_pl.sweeps.sweep_file import SWEEP_FILE, parse_sweep

CONTENT: dict[str, Any] = {
    "config": "ppo_cartpole",
    "search": {
        "model": ["algorithm/ppo", "algorithm/a2c"],
        "model.lr": {"low": 1e-4, "high": 1e-1, "log": True},
        "model.clip_range": {"low": 0.1, "high": 0.3, "when": {"model": "algorithm/ppo"}},
        "data.n_envs": {"low": 1, "high": 9},
    },
    "sampler": "random",
    "n_trials": 12,
}


def finished(folder: Path, n_trials: int = 10, **changes: Any) -> SweepResult:
    """A sweep whose returns depend on the learning rate; the second trial was pruned, the third has failed."""
    content = {**CONTENT, **changes}
    (folder / SWEEP_FILE).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    plan = parse_sweep(content)
    study = create_study(folder, plan)
    states = optuna_module().trial.TrialState
    for number in range(n_trials):
        study.sampler = optuna_module().samplers.RandomSampler(seed=number)
        trial = study.ask()
        values = suggested(plan.parameters, trial)
        trial.set_user_attr("seconds", 60.0)
        if number == 1:
            trial.report(3.0, 0)
            study.tell(trial, state=states.PRUNED)
        elif number == 2:
            trial.set_user_attr("reason", "out of memory")
            study.tell(trial, state=states.FAIL)
        else:
            study.tell(trial, [math.log10(values["model.lr"]) + place for place in range(len(plan.objectives))])
    study.ask()
    return SweepResult(folder)


def test_the_table_has_every_trial_importances_and_the_best_command(tmp_path: Path) -> None:
    result = finished(tmp_path, 40)
    rates = {trial.number: trial.assignment["model.lr"] for trial in result.trials if trial.values}
    best = max(rates, key=lambda number: rates[number])
    assert [trial.number for trial in result.best_trials] == [best]
    assert max(result.importances, key=lambda name: result.importances[name]) == "model.lr"
    assert result.importances["model.lr"] > 0.9 and all(0.0 <= share <= 1.0 for share in result.importances.values())
    text = result.table()
    assert "trial 2 failed: out of memory" in text and f"best trial {best}: eval/return" in text
    assert f"--model.lr {rates[best]}" in text and "under way" in text
    for trial in result.trials[:10]:
        assert ("model.clip_range" in trial.assignment) == (trial.assignment["model"] == "algorithm/ppo")


def test_the_file_of_trials_tells_a_null_from_an_option_that_was_not_searched(tmp_path: Path) -> None:
    choices = [None, "null", True, 64, [64, 32], 0.1 + 0.2, "text"]
    search = {"model.init_args.a": [1, 2], "model.lr": {"values": choices, "when": {"model.init_args.a": 1}}}
    content = {"config": "ppo_cartpole", "search": search, "sampler": "grid"}
    (tmp_path / SWEEP_FILE).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    plan = parse_sweep(content)
    study = create_study(tmp_path, plan)
    labels = plan.parameters[1].labels  # type: ignore[attr-defined]
    for label in labels:
        study.enqueue_trial({"model.init_args.a": "1", "model.lr": label})
    study.enqueue_trial({"model.init_args.a": "2"})
    for _ in range(len(labels) + 1):
        trial = study.ask()
        suggested(plan.parameters, trial)
        study.tell(trial, [1.0])
    SweepResult(tmp_path).write_table()
    with (tmp_path / "trials.csv").open(newline="", encoding="utf-8") as file:
        cells = [row["model.lr"] for row in csv.DictReader(file)]
    assert cells[-1] == "" and len(set(cells)) == len(cells)
    assert [yaml.safe_load(cell) for cell in cells[:-1]] == choices


def test_commands_of_a_sweep_of_version_0_2_0_are_valid(tmp_path: Path) -> None:
    folder = Path(__file__).parents[1] / "data" / "0.2.0" / "sweep"
    for name in (SWEEP_FILE, JOURNAL_FILE):
        shutil.copy(folder / name, tmp_path)
    result = SweepResult(tmp_path)
    command = result.command(result.best_trials[0])
    assert "--data.n_envs 2" in command
    check_options([shlex.split(command)[1:]])


def importances(folder: Path, *directions: str) -> dict[str, float]:
    """Importances in a sweep whose best trials have certain learning rates, and some bad ones low gammas."""
    folder.mkdir()
    metrics = ["eval/return", "eval/kpi/cost"]
    objectives = [
        {"metric": metric, "direction": direction, "which": "last"}
        for metric, direction in zip(metrics, directions, strict=False)
    ]
    search = {"model.lr": {"low": 0.0, "high": 1.0}, "model.gamma": {"low": 0.0, "high": 1.0}}
    content = {"config": "ppo_cartpole", "search": search, "objective": objectives, "n_trials": 60}
    (folder / SWEEP_FILE).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    plan = parse_sweep(content)
    study = create_study(folder, plan)
    study.sampler = optuna_module().samplers.RandomSampler(seed=0)
    sign = 1.0 if directions[0] == "maximize" else -1.0
    for number in range(plan.n_trials):
        trial = study.ask()
        values = suggested(plan.parameters, trial)
        is_good = 0.4 < values["model.lr"] < 0.55
        is_bad = values["model.gamma"] < 0.1
        value = float(is_good) - float(is_bad) + 1e-3 * math.sin(number)
        study.tell(trial, [sign * value, 0.0][: len(directions)])
    return SweepResult(folder).importances


def test_importances_are_equal_for_each_direction_and_number_of_objectives(tmp_path: Path) -> None:
    single = importances(tmp_path / "single", "maximize")
    assert max(single, key=lambda name: single[name]) == "model.lr" and single["model.lr"] > 0.1
    for number, directions in enumerate(
        [("minimize",), ("maximize", "maximize"), ("maximize", "minimize"), ("minimize", "maximize")]
    ):
        assert importances(tmp_path / str(number), *directions) == pytest.approx(single)


def test_progress_counts_trials_and_estimates_the_time_left(tmp_path: Path) -> None:
    result = finished(tmp_path)
    progress = Progress(result.plan, result.study)
    line = progress.line([10])
    assert line.startswith("sweep: 10 of 12 trials done, 1 running, 1 pruned, 1 failed, best -")
    assert line.endswith("about 2 min left")
    assert [duration_text(seconds) for seconds in (5, 150, 9000)] == ["5 s", "2 min", "2.5 h"]


def test_pictures_show_lists_conditional_options_and_pruned_trials(tmp_path: Path) -> None:
    names = [path.stem for path in write_pictures(finished(tmp_path, 12))]
    assert names == ["history", "slices", "parallel_coordinates", "importances"]
    for name in names:
        content = (tmp_path / "pictures" / f"{name}.png").read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) > 10_000


def test_pictures_need_no_more_than_one_finished_trial(tmp_path: Path) -> None:
    result = finished(tmp_path, 1, objective=["eval/return", "eval/kpi/cost"])
    assert [path.stem for path in write_pictures(result)] == ["history", "slices", "parallel_coordinates"]
    assert result.importances == {}


def test_few_trials_have_no_importances(tmp_path: Path) -> None:
    assert finished(tmp_path, FEWEST_TRIALS + 1).importances == {}  # two of them have not finished


def test_folders_of_sweeps_are_described_and_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "trial_0000").mkdir()
    finished(tmp_path)
    facts = folder_facts(tmp_path)
    assert str(facts["kind"]).startswith("sweep") and list(facts["trials"]) == ["trial_0000"]
    with pytest.raises(ConfigurationError, match="is not the folder of a sweep"):
        SweepResult(tmp_path / "trial_0000")

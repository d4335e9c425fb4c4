"""`maze-pl sweep`: trials, their storage, what is shown, and what is refused before anything is written."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

import maze_pl
from maze_pl.__main__ import main
from maze_pl.cli import sweep as command
from maze_pl.cli.objective_check import check_kpis
from maze_pl.config.search_path import ConfigurationError
from tests.sweeps import stand_in

SWEEP: dict[str, Any] = {
    "config": "ppo_cartpole",
    "search": {"model.lr": {"low": 1e-4, "high": 1e-1, "log": True}},
    "n_trials": 3,
}

KEPT = {"class_path": "maze_pl.callbacks.LastCheckpoint", "init_args": {"dirpath": "shared"}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stand_in.install(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options are not checked by parsing command lines of `fit`, which takes a while."""
    monkeypatch.setattr(command, "_check_options", lambda plan: None)
    monkeypatch.setattr(command, "write_pictures", lambda result: [])


def sweep(content: dict[str, Any], *options: str) -> int:
    Path("search.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return main(["sweep", "search.yaml", "--run_dir", "here", *options])


def table(folder: str = "here") -> list[dict[str, str]]:
    with Path(folder, "trials.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def expected(rate: float) -> float:
    return 100 - 10 * abs(math.log10(rate) + 2)


def test_trials_are_trained_stored_and_shown(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(SWEEP) == 0
    rows = table()
    assert [row["status"] for row in rows] == ["finished"] * 3
    for row in rows:
        assert float(row["eval/return"]) == pytest.approx(expected(float(row["model.lr"])))
        (call,) = Path("here", row["run_dir"], "calls.txt").read_text().splitlines()
        assert f"--model.lr {float(row['model.lr'])}" in call and f"--run_dir here/{row['run_dir']}" in call
    output = capsys.readouterr().out
    best = max(rows, key=lambda row: float(row["eval/return"]))
    assert f"best trial {best['trial']}: eval/return" in output
    assert f"maze-pl fit --config ppo_cartpole --model.lr {best['model.lr']}\n" in output
    assert "sweep: 3 of 3 trials done, 0 running, 0 pruned, 0 failed, best " in output
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend("here/study.journal"))
    study = optuna.load_study(study_name="sweep", storage=storage)
    assert [trial.value for trial in study.trials] == [float(row["eval/return"]) for row in rows]
    assert yaml.safe_load(Path("here", "sweep.yaml").read_text()) == SWEEP


def test_a_sweep_says_that_its_trials_are_compared_in_different_environments(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "write_pictures", lambda result: [])
    search = {**SWEEP["search"], "data.env.name": ["CartPole-v1"]}
    assert sweep({**SWEEP, "search": search, "n_trials": 1}) == 0
    assert "data.env.name also changes the evaluator 'eval'" in capsys.readouterr().out


def test_a_grid_trains_each_combination_once_with_conditional_options(project: Path, unchecked: None) -> None:
    search = {
        "model": ["algorithm/ppo", "algorithm/a2c"],
        "model.clip_range": {"values": [0.1, 0.3], "when": {"model": "algorithm/ppo"}},
    }
    assert sweep({"config": "ppo_cartpole", "search": search, "sampler": "grid"}, "--n_parallel", "2") == 0
    found = [(row["model"], row["model.clip_range"]) for row in table()]
    assert found == [("algorithm/ppo", "0.1"), ("algorithm/ppo", "0.3"), ("algorithm/a2c", "")]


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "random", "nsga2"])
def test_every_sampler_searches_and_the_same_seed_gives_the_same_trials(
    project: Path, unchecked: None, sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = {**SWEEP["search"], "model.clip_range": {"low": 0.1, "high": 0.5}}
    objective: Any = "eval/return"
    if sampler == "nsga2":
        objective = ["eval/return", {"metric": "eval/kpi/cost", "direction": "minimize"}]
    content = {**SWEEP, "search": search, "sampler": sampler, "objective": objective, "n_trials": 3}
    assert sweep(content) == 0
    result = maze_pl.sweep(content, run_dir="again")
    first = [(row["model.lr"], row["model.clip_range"]) for row in table()]
    assert first == [(row["model.lr"], row["model.clip_range"]) for row in table("again")]
    assert len(set(first)) == 3
    assert len(result.best_trials) >= 1
    if sampler == "nsga2":
        beaten = [
            one
            for one in result.best_trials
            for other in result.trials
            if other.values[0] > one.values[0] and other.values[1] < one.values[1]
        ]
        assert not beaten and result.trials[0].values[1] == pytest.approx(float(first[0][0]) * 100 + 4)


def test_several_seeds_are_trained_by_the_seeds_of_fit(project: Path, unchecked: None) -> None:
    assert sweep(SWEEP, "--n_seeds", "4", "--n_trials", "1") == 0
    (row,) = table()
    assert float(row["eval/return"]) == pytest.approx(expected(float(row["model.lr"])) + 1.5)
    assert "--seeds 4" in Path("here", "trial_0000", "calls.txt").read_text()


def test_trials_that_are_worse_than_the_median_are_pruned(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("slow").touch()
    search = {"model.lr": [0.01, 0.0001]}
    pruner = {"name": "median", "n_startup_trials": 1}
    assert sweep({**SWEEP, "search": search, "sampler": "grid", "pruner": pruner}) == 0
    first, second = table()
    assert (first["status"], second["status"], second["eval/return"]) == ("finished", "pruned", "")
    result = maze_pl.SweepResult("here")
    assert list(result.trials[1].steps) == [0] and len(result.trials[0].steps) == 4
    assert "ended: epochs" not in Path("here", "trial_0001", "run.log").read_text()
    output = capsys.readouterr().out
    assert "trial 1: pruned after 1 evaluation" in output and "1 pruned" in output


def test_hyperband_prunes_across_the_evaluations_of_all_seeds(project: Path, unchecked: None) -> None:
    rates = [0.01, 0.02, 0.005, 0.0001, 0.0002, 0.0001001]
    pruner = {"name": "hyperband", "max_resource": 8, "reduction_factor": 2}
    content = {**SWEEP, "search": {"model.lr": rates}, "sampler": "grid", "n_trials": None, "pruner": pruner}
    assert sweep(content, "--n_seeds", "2") == 0
    result = maze_pl.SweepResult("here")
    assert {trial.status for trial in result.trials} == {"finished", "pruned"}
    assert max(len(trial.steps) for trial in result.trials) == 8


def test_failed_trials_are_counted_and_too_many_end_the_sweep(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {**SWEEP, "search": {"model.lr": [0.9, 0.01, 0.8, 0.7, 0.02]}, "sampler": "grid", "n_trials": None}
    assert sweep(content, "--max_failures", "3") == 0
    assert [row["status"] for row in table()] == ["failed", "finished", "failed", "failed", "finished"]
    output = capsys.readouterr().out
    assert "trial 0 failed: the learning rate is too high" in output and "next:\n  tensorboard" in output
    assert main(["sweep", "search.yaml", "--run_dir", "few", "--max_failures", "1"]) == 1
    assert [row["status"] for row in table("few")] == ["failed", "finished", "failed"]
    limit = "2 trials have failed, more than max_failures=1; to continue nevertheless: maze-pl sweep --resume few"
    assert limit in capsys.readouterr().err
    assert main(["sweep", "--resume", "few", "--max_failures", "3"]) == 0
    assert [row["status"] for row in table("few")] == [row["status"] for row in table()]


def test_a_trial_whose_process_succeeds_has_finished_whatever_its_log_says(project: Path, unchecked: None) -> None:
    Path("silent").touch()
    assert sweep(SWEEP, "--n_trials", "1") == 0
    assert [row["status"] for row in table()] == ["finished"]


def test_a_stopped_sweep_continues_trials_that_were_under_way(project: Path, unchecked: None) -> None:
    assert sweep(SWEEP, "--n_trials", "2") == 0
    whole = table()
    with pytest.raises(ConfigurationError, match=r"search\.model\.lr is fixed"):
        maze_pl.sweep(resume="here", **{"search.model.lr": [1]})
    storage = Path("here", "study.journal")
    entries = storage.read_text().splitlines(keepends=True)
    states = [place for place, line in enumerate(entries) if json.loads(line)["op_code"] == 6]
    storage.write_text("".join(entries[: states[-1]]) + '{"op_co')  # as if it was killed before trial 1 was stored
    Path("here", "trial_0001", "run.log").write_text("command: maze-pl fit\n")
    assert main(["sweep", "--resume", "here", "--n_trials", "3"]) == 0
    assert [row["status"] for row in table()] == ["finished"] * 3
    assert table()[1]["eval/return"] == whole[1]["eval/return"]
    assert Path("here", "trial_0001", "calls.txt").read_text().splitlines()[1] == "fit --resume here/trial_0001"
    assert len(Path("here", "trial_0000", "calls.txt").read_text().splitlines()) == 1


def test_a_sweep_of_version_0_2_0_continues_with_its_texts_as_yaml(project: Path, unchecked: None) -> None:
    options = {"data.env.dict_kwargs.is_slippery": "false"}
    assert sweep({**SWEEP, "options": options}, "--n_trials", "1") == 0
    storage = Path("here", "study.journal")
    entries = storage.read_text(encoding="utf-8").splitlines(keepends=True)
    storage.write_text("".join(line for line in entries if '"configurations"' not in line), encoding="utf-8")
    assert main(["sweep", "--resume", "here", "--n_trials", "2"]) == 0
    calls = [Path("here", f"trial_000{number}", "calls.txt").read_text(encoding="utf-8") for number in range(2)]
    assert "is_slippery 'false'" in calls[0] and "is_slippery false" in calls[1]
    assert "is_slippery false" in maze_pl.SweepResult("here").table()


def test_in_python_a_signal_is_raised_once_the_trials_have_ended(project: Path, unchecked: None) -> None:
    Path("hang").touch()

    def interrupt() -> None:
        while not Path("here", "trial_0000", "config.yaml").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        maze_pl.sweep(SWEEP, run_dir="here")
    thread.join()
    (stopped,) = maze_pl.SweepResult("here").trials
    assert stopped.status == "under way" and math.isnan(stopped.seconds)
    before = stopped_after("here")
    assert before is not None
    Path("hang").unlink()
    continued = maze_pl.sweep(resume="here").trials[0]
    assert continued.status == "finished" and continued.seconds >= before
    assert stopped_after("here") is None


def stopped_after(folder: str) -> float | None:
    """Seconds that the storage of a sweep has for its first trial, as long as it is stopped."""
    return maze_pl.SweepResult(folder).study.trials[0].user_attrs["seconds_so_far"]  # type: ignore[no-any-return]


@pytest.mark.slow
def test_signals_reach_the_trials_and_leave_no_process(project: Path) -> None:
    Path("hang").touch()
    Path("search.yaml").write_text(yaml.safe_dump({**SWEEP, "n_parallel": 2}, sort_keys=False), encoding="utf-8")
    program = """
import sys
from maze_pl.runs import run_processes
from maze_pl.cli import sweep
from maze_pl.__main__ import main
run_processes.program = lambda: [sys.executable, "-S", "trains.py"]
sweep._check_options = lambda plan: None
sys.exit(main(["sweep", "search.yaml", "--run_dir", "here"]))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(maze_pl.__file__).parents[1])}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(list(Path("here").glob("trial_*/config.yaml"))) < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "to continue: maze-pl sweep --resume here" in output
    assert [row["status"] for row in table()] == ["under way"] * 2


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"model.lrr": [0.1]}, "Option 'lrr' is not accepted; got lrr='0.1'; did you mean lr? (in a trial with"),
        (
            {"model.n_optimization_epochs": {"low": 0.5, "high": 2}},
            "n_optimization_epochs (maze_pl.modules.PPO): expec",
        ),
        ({"trainer.max_epoch": [1]}, "did you mean --trainer.max_epochs"),
        ({"model.lr": {"low": 1, "high": 1}}, "search.model.lr is empty"),
        ({"model": ["algorithm/pgo"]}, "algorithm/pgo"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_written(
    project: Path, capsys: pytest.CaptureFixture[str], search: dict[str, Any], message: str
) -> None:
    assert sweep({**SWEEP, "search": search}, "--n_seeds", "2") == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert not Path("here").exists()


def test_a_kpi_that_the_environment_lacks_is_refused_as_objective_before_anything_is_written(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep({**SWEEP, "search": {"model.lr": [0.1]}, "objective": "eval/kpi/cost"}) == 2
    error = capsys.readouterr().err
    assert "error: objective eval/kpi/cost: the environment has no KPI calculator" in error
    assert not Path("here").exists()


def test_objectives_are_compared_with_the_kpis_that_the_environment_declares(project: Path) -> None:
    command = ["fit", "--config", "ppo_cutting_2d"]
    check_kpis(command, ["eval/kpi/raw_piece_usage_per_step", "eval/return"])
    known = "the environment has the KPIs raw_piece_usage_per_step, raw_pieces_per_order_served"
    with pytest.raises(ConfigurationError, match=f"objective eval_BaseEnvEvents/kpi/mean/usage: {known}"):
        check_kpis(command, ["eval/return", "eval_BaseEnvEvents/kpi/mean/usage"])
    check_kpis(["fit", "--config", "no_such_configuration"], ["eval/kpi/other"])  # which the trials report


def test_nothing_is_named_next_for_a_sweep_without_results(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep({**SWEEP, "search": {"model.lr": [0.9, 0.8]}, "sampler": "grid", "n_trials": None}) == 0
    assert main(["sweep", "--show", "here"]) == 0
    output = capsys.readouterr().out
    assert "trial 1 failed" in output and "next:" not in output


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"sampler": {"name": "nsga2", "population_size": 1}}, "sampler nsga2: `population_size` must be"),
        ({"sampler": {"name": "nsga2", "mutation_prob": 2.0}}, "sampler nsga2: `mutation_prob` must be"),
        ({"sampler": {"name": "tpe", "n_ei_candidates": 0}}, "sampler.n_ei_candidates must be at least 1; got 0"),
        ({"sampler": {"name": "cmaes", "popsize": 0}}, "sampler.popsize must be at least 2; got 0"),
        ({"sampler": {"name": "cmaes", "with_margin": True, "lr_adapt": True}}, "sampler cmaes: It is prohibited"),
        ({"pruner": {"name": "median", "n_min_trials": 0}}, "pruner median: Number of trials for pruning must be"),
        ({"pruner": {"name": "hyperband", "reduction_factor": 1}}, "pruner.reduction_factor must be at least 2; got 1"),
        ({"pruner": {"name": "hyperband", "bootstrap_count": 1}}, "pruner hyperband: bootstrap_count > 0 and"),
    ],
)
def test_impossible_options_of_samplers_and_pruners_are_refused_before_anything_is_written(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str], method: dict[str, Any], message: str
) -> None:
    search = {**SWEEP["search"], "model.clip_range": {"low": 0.1, "high": 0.5}}
    assert sweep({**SWEEP, "search": search, **method}) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert not Path("here").exists()


@pytest.mark.parametrize(
    ("content", "callback"),
    [
        ({"options": {"last_checkpoint.dirpath": "shared"}}, "last_checkpoint"),
        ({"options": {"best_checkpoint": {"dirpath": "shared"}}}, "best_checkpoint"),
        ({"search": {"best_checkpoint.dirpath": ["shared"]}}, "best_checkpoint"),
        ({"config": "mine.yaml"}, "last_checkpoint"),
        ({"options": {"trainer.callbacks": [KEPT]}}, "trainer.callbacks"),
        ({"options": {"trainer.callbacks": KEPT}}, "trainer.callbacks"),
        ({"options": {"best_checkpoint.dirpath": "${run_dir}/../shared"}}, "best_checkpoint"),
        ({"options": {"best_checkpoint.dirpath": "shared/${seed_everything}"}}, "best_checkpoint"),
        ({"options": {"trainer.default_root_dir": "shared"}}, "trainer"),
    ],
)
def test_a_folder_for_the_checkpoints_of_all_trials_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], content: dict[str, Any], callback: str
) -> None:
    Path("mine.yaml").write_text("base: ppo_cartpole\nlast_checkpoint: {dirpath: shared}\n", encoding="utf-8")
    assert sweep({**SWEEP, **content}) == 2
    error = capsys.readouterr().err
    assert f"maze-pl: error: {callback}.d" in error and "shared" in error
    assert " is one folder for the checkpoints of all trials: omit it" in error
    assert not Path("here").exists()


def test_a_folder_for_checkpoints_in_the_run_directory_of_each_trial_is_allowed(project: Path) -> None:
    options = {"best_checkpoint.dirpath": "${run_dir}/kept", "trainer.default_root_dir": "${run_dir}"}
    assert sweep({**SWEEP, "options": options, "n_trials": 1}) == 0
    (call,) = Path("here", "trial_0000", "calls.txt").read_text().splitlines()
    assert "--best_checkpoint.dirpath ${run_dir}/kept" in call


def test_a_relative_configuration_of_the_command_line_is_found_from_another_folder(
    project: Path, unchecked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.yaml").write_text("base: ppo_cartpole\n", encoding="utf-8")
    Path("elsewhere").mkdir()
    content = {**SWEEP, "search": {"model.lr": [0.1, 0.2]}, "sampler": "grid"}
    assert sweep(content, "--config", "ppo_cartpole", "--config", "mine.yaml", "--n_trials", "1") == 0
    maze_pl.sweep({**content, "config": "mine.yaml"}, run_dir="there", n_trials=1)
    monkeypatch.chdir(project / "elsewhere")
    assert main(["sweep", "--resume", "../here", "--n_trials", "2"]) == 0
    (call,) = Path(project, "here", "trial_0001", "calls.txt").read_text().splitlines()
    assert call.startswith(f"fit --config ppo_cartpole --config {project / 'mine.yaml'} --model.lr 0.2 ")
    assert len(maze_pl.sweep(resume="../there", n_trials=2).trials) == 2


def test_printed_commands_hold_for_folders_with_spaces(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("search.yaml").write_text(yaml.safe_dump({**SWEEP, "n_trials": 1}), encoding="utf-8")
    assert main(["sweep", "search.yaml", "--run_dir", "my runs"]) == 0
    shown = "next:\n  tensorboard --logdir 'my runs'\n  optuna-dashboard 'my runs/study.journal'\n"
    assert shown in capsys.readouterr().out
    assert main(["sweep", "search.yaml", "--run_dir", "my runs"]) == 2
    assert "or continue it with `maze-pl sweep --resume 'my runs'`" in capsys.readouterr().err
    assert main(["fit", "--config", "ppo_cartpole", "--seeds", "2", "--run_dir", "my runs"]) == 2
    assert "or continue its sweep with `maze-pl sweep --resume 'my runs'`" in capsys.readouterr().err


def test_a_folder_is_named_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "search.yaml", "--run_dir", "here", "--run_dir=there"]) == 2
    assert "--run_dir is given twice: give it once" in capsys.readouterr().err


def test_the_command_that_continues_has_trust_if_options_name_foreign_classes(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text("", encoding="utf-8")
    content = {**SWEEP, "search": {"model.lr": [0.9]}, "sampler": "grid", "options": {"data.env": "mine.Env"}}
    assert sweep({**content, "n_trials": None}, "--max_failures", "0") == 1
    again = "to continue nevertheless: maze-pl sweep --resume here --trust --max_failures 1"
    assert again in capsys.readouterr().err


def test_no_folder_is_left_of_a_sweep_with_an_object_that_is_not_yaml(project: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"options\.data\.env may consist of"):
        maze_pl.sweep({**SWEEP, "options": {"data.env": object()}}, run_dir="here")
    assert not Path("here").exists()


def test_no_trial_starts_from_a_configuration_that_was_changed_during_the_sweep(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = "base: ppo_cartpole\n"
    Path("mine.yaml").write_text(before, encoding="utf-8")
    Path("edits").touch()  # the first trial edits it
    assert sweep({**SWEEP, "config": "mine.yaml"}) == 1
    fault = "a configuration of this sweep has changed since its trials were started: restore it"
    output = capsys.readouterr().out
    assert f"no further trial is started: {fault}" in output and "to continue: maze-pl sweep --resume here\n" in output
    assert [row["status"] for row in table()] == ["finished"]
    Path("edits").unlink()
    assert main(["sweep", "--resume", "here", "--n_trials", "5"]) == 2
    assert fault in capsys.readouterr().err
    assert yaml.safe_load(Path("here", "sweep.yaml").read_text())["n_trials"] == 3
    assert main(["sweep", "--resume", "here", "--n_trials", "1"]) == 0  # starts none
    Path("mine.yaml").write_text(before, encoding="utf-8")
    assert main(["sweep", "--resume", "here", "--n_trials", "3"]) == 0
    assert [row["status"] for row in table()] == ["finished"] * 3


def test_a_trial_that_was_not_trained_yet_does_not_start_from_a_changed_configuration(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.yaml").write_text("base: ppo_cartpole\n", encoding="utf-8")
    Path("edits").touch()
    assert sweep({**SWEEP, "config": "mine.yaml"}) == 1
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend("here/study.journal"))
    optuna.load_study(study_name="sweep", storage=storage).ask()  # and killed
    assert main(["sweep", "--resume", "here", "--n_trials", "2"]) == 1
    assert "no further trial is started: a configuration of this sweep has changed" in capsys.readouterr().out
    assert not Path("here", "trial_0001").exists()


def test_a_sweep_in_a_folder_that_cannot_be_written_to_is_shown(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(SWEEP, "--n_trials", "1") == 0
    printed = capsys.readouterr().out
    Path("here", "trials.csv").unlink()
    Path("here", "trials.csv").mkdir()  # no file can be written there, whatever the user's rights
    assert main(["sweep", "--show", "here"]) == 0
    shown = capsys.readouterr()
    assert shown.out.strip() and printed.endswith(shown.out)
    assert "maze-pl: table and pictures are not written: " in shown.err and "Traceback" not in shown.err


def test_an_unknown_objective_ends_the_sweep_with_similar_names(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep({**SWEEP, "objective": "eval/kpi/costs"}) == 2
    assert "objective: no run has logged the statistic 'eval/kpi/costs'; did you mean" in capsys.readouterr().err
    assert not Path("here", "trial_0001").exists()


def test_a_sweep_ends_if_the_best_checkpoint_cannot_monitor_the_objective(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maze_pl.sweeps.sweep_runs.UNKNOWN_VALUE", "the learning rate is too high")
    search = {"model.lr": [0.6, 0.1]}
    assert sweep({**SWEEP, "search": search, "sampler": "grid", "max_failures": 3}) == 2
    assert "error: objective: the learning rate is too high" in capsys.readouterr().err
    assert not Path("here", "trial_0001").exists()


def test_other_folders_and_storages_are_refused(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(SWEEP, "--n_trials", "1") == 0
    assert sweep(SWEEP) == 2
    assert "here holds a sweep: choose another folder, or continue it with" in capsys.readouterr().err
    assert main(["sweep", "--resume", "nowhere"]) == 2
    assert "nowhere is not the folder of a sweep: it has no sweep.yaml" in capsys.readouterr().err
    assert main(["sweep", "--resume", "here", "--seed", "3"]) == 2
    assert "seed is fixed for the sweep of here" in capsys.readouterr().err
    other = {**SWEEP, "search": {"model.gamma": [0.9]}, "n_trials": 1}
    Path("here", "sweep.yaml").write_text(yaml.safe_dump(other, sort_keys=False), encoding="utf-8")
    for option in ("--resume", "--show"):
        assert main(["sweep", option, "here"]) == 2
        assert "study.journal belongs to another sweep than here/sweep.yaml" in capsys.readouterr().err
    Path("here", "sweep.yaml").write_text(yaml.safe_dump({**SWEEP, "n_trials": 1}, sort_keys=False), encoding="utf-8")
    journal = Path("here", "study.journal")
    journal.write_text("nonsense\n" + journal.read_text())
    assert main(["sweep", "--show", "here"]) == 2
    assert "study.journal is damaged: line 1 is not an entry" in capsys.readouterr().err


def test_a_sweep_of_others_runs_no_code_of_theirs_without_trust(
    project: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "theirs.py").write_text("", encoding="utf-8")
    foreign = {**SWEEP, "search": {"data.env": ["theirs.Env"]}, "sampler": "grid", "n_trials": None}
    assert sweep(foreign) == 0  # the file of the user
    assert main(["sweep", "--resume", "here"]) == 2
    assert "theirs.Env" in (error := capsys.readouterr().err) and "use --trust" in error
    assert main(["sweep", "--resume", "here", "--trust"]) == 0
    search = {**SWEEP["search"], "model.clip_range": {"low": 0.1, "high": 0.5}}
    maze_pl.sweep({**SWEEP, "search": search, "sampler": "cmaes", "n_trials": 1}, run_dir="cma")
    assert main(["sweep", "--resume", "cma"]) == 2
    assert "the storage of the sampler cmaes contains pickles" in capsys.readouterr().err
    plan = {**SWEEP, "runner": {"name": "ray", "address": "10.0.0.1:6379"}}
    Path("ray").mkdir()
    Path("ray", "sweep.yaml").write_text(yaml.safe_dump(plan), encoding="utf-8")
    assert main(["sweep", "--resume", "ray"]) == 2
    assert "address: 10.0.0.1:6379; if you trust" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["search.yaml", "--resume", "here"], "name one of a sweep file, --resume DIR and --show DIR"),
        (["--show", "here", "--n_trials", "3"], "--show has no further options"),
        (["--resume"], "--resume needs a folder"),
        (["search.yaml", "--parallel", "3"], "there is no option '--parallel'; did you mean --n_parallel"),
    ],
)
def test_contradicting_options_are_refused(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["sweep", *words]) == 2
    assert message in capsys.readouterr().err


def test_help_describes_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--help"]) == 0
    assert "--resume DIR" in capsys.readouterr().out
    assert main(["sweep"]) == 2

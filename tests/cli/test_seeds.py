"""Training with several seeds: what is started, shown, written and continued, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from maze_pl.__main__ import main
from maze_pl.config.assembling import prepare
from maze_pl.runs import run_processes
from maze_pl.runs.seed_runs import SeedRuns
from maze_pl.sweeps.sweep_file import parse_sweep

ROOT = Path(__file__).parents[2]
TRAINS = """
import os, pathlib, sys, time
words = sys.argv[1:]
def value(name):
    return words[len(words) - 1 - words[::-1].index(name) + 1]
if "--resume" in words:
    folder = pathlib.Path(value("--resume"))
    seed = int(folder.name.partition("_")[2])
else:
    folder, seed = pathlib.Path(value("--run_dir")), int(value("--seed_everything"))
folder.mkdir(parents=True, exist_ok=True)
with (folder / "calls.txt").open("a") as file:
    file.write(" ".join(words) + "\\n")
if "--model.broken" in words:
    print("maze-pl: error: there is no such option", file=sys.stderr)
    sys.exit(2)
(folder / "config.yaml").write_text("{}")
if "--no_tensorboard" not in words:
    (folder / "events.out.tfevents.0").touch()
if "--model.edits" in words:
    pathlib.Path("mine.yaml").write_text("base: ppo_cartpole\\nmodel: {lr: 0.5}\\n")
if (folder / "stop").exists():
    (folder / "stop").unlink()
    sys.exit(143)
print("epoch 1 | 100 env steps | 0.1 s")
print("a line of a table")
if seed == 8 and "--resume" not in words:
    print("Traceback: seed 8 fails")
    sys.exit(1)
head = "step,eval_BaseEnvEvents/reward/mean"
(folder / "metrics.csv").write_text(f"{head}\\n100,{10 * seed}\\n")
"""
"""Stands for `maze-pl fit`: trains in no time, fails with seed 8 at first, and is stopped by a file `stop`."""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_processes, "SECONDS_BETWEEN_LOOKS", 0.01)
    return tmp_path


@pytest.fixture
def stand_in(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "trains.py").write_text(TRAINS, encoding="utf-8")
    monkeypatch.setattr(run_processes, "program", lambda: [sys.executable, "-S", str(project / "trains.py")])


def fit(*options: str) -> int:
    return main(["fit", "--config", "ppo_cartpole", *options])


def calls(run_dir: str) -> list[str]:
    return Path(run_dir, "calls.txt").read_text(encoding="utf-8").splitlines()


def results(folder: str) -> Any:
    return json.loads(Path(folder, "seed_results.json").read_text(encoding="utf-8"))


def test_seeds_are_counted_from_seed_everything_and_summarized(
    stand_in: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit("--seeds", "3", "--seed_everything", "5", "--run_dir", "here", "--model.lr", "0.1") == 0
    for seed in (5, 6, 7):
        (call,) = calls(f"here/seed_{seed}")
        wanted = f"--model.lr 0.1 --seed_everything {seed} --run_dir here/seed_{seed}"
        assert call == f"fit --config ppo_cartpole --seed_everything 5 {wanted}"
    found = results("here")["summary"]["eval return, last"]
    assert (found["n"], found["mean"], found["iqm"]) == (3, 60.0, 60.0)
    half = 4.3026527 * 10 / 3**0.5
    assert found["mean_interval"] == [pytest.approx(60 - half), pytest.approx(60 + half)]
    output = capsys.readouterr().out
    assert "seed 6 (2 of 3): here/seed_6" in output and "95% t interval" in output
    assert os.environ.get("MAZE_PL_RUN_DIR", os.path.abspath("here")) == os.path.abspath("here")


def test_listed_seeds_train_at_the_same_time_with_marked_main_lines(
    stand_in: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit("--seeds=[3,9]", "--seeds.parallel", "2") == 0
    (folder,) = Path("outputs", "ppo_cartpole").iterdir()
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["seed_3", "seed_9"]
    output = capsys.readouterr().out
    assert "[seed 3] epoch 1 | 100 env steps" in output and "[seed 9] epoch 1 | 100 env steps" in output
    assert "a line of a table" not in output


def test_others_go_on_if_a_seed_fails_and_resuming_trains_only_what_is_missing(
    stand_in: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit("--seeds", "[7,8,9]", "--seeds.parallel", "2", "--run_dir", "here") == 1
    output = capsys.readouterr().out
    assert "failed (exit status 1)" in output and "[seed 8] Traceback: seed 8 fails" in output
    assert "maze-pl fit --resume here" in output
    assert [entry["status"] for entry in results("here")["seeds"]] == ["finished", "failed", "finished"]
    assert results("here")["summary"]["eval return, last"]["mean"] == 80.0
    assert main(["fit", "--resume", "here"]) == 0
    assert len(calls("here/seed_7")) == 1
    assert calls("here/seed_8")[1:] == ["fit --resume here/seed_8"]
    assert results("here")["summary"]["eval return, last"]["n"] == 3
    assert main(["fit", "--resume", "here", "--trainer.max_epochs", "9"]) == 0  # an option concerns all of them
    assert calls("here/seed_7")[1:] == ["fit --resume here/seed_7 --trainer.max_epochs 9"]


def statuses(folder: str) -> list[str]:
    return [entry["status"] for entry in results(folder)["seeds"]]


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a command that is killed before it starts a process."""

    def run(*words: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(SeedRuns, "train", lambda runs: (_ for _ in ()).throw(MemoryError("killed")))
            with pytest.raises(MemoryError):
                main(["fit", *words])

    return run


def test_options_of_an_interrupted_continuation_hold_for_the_seeds_that_lack_them(stand_in: None) -> None:
    longer, slower = ["--trainer.max_epochs", "9"], ["--model.lr", "0.2"]
    assert fit("--seeds", "3", "--run_dir", "here") == 0
    Path("here", "seed_1", "stop").touch()
    assert main(["fit", "--resume", "here", *longer]) == 1
    assert statuses("here") == ["finished", "stopped", "finished"]
    assert main(["fit", "--resume", "here"]) == 0
    assert calls("here/seed_1")[1:] == ["fit --resume here/seed_1 --trainer.max_epochs 9"] * 2
    assert [len(calls(f"here/seed_{seed}")) for seed in (0, 2)] == [2, 2]
    Path("here", "seed_2", "stop").touch()
    assert main(["fit", "--resume", "here", *slower]) == 1
    assert main(["fit", "--resume", "here"]) == 0
    assert calls("here/seed_2")[2:] == ["fit --resume here/seed_2 --model.lr 0.2"] * 2
    assert statuses("here") == ["finished"] * 3


def test_seeds_do_not_count_as_finished_once_a_continuation_has_begun(
    stand_in: None, killed: Callable[..., None]
) -> None:
    assert fit("--seeds", "2", "--run_dir", "here") == 0
    killed("--resume", "here", "--trainer.max_epochs", "9")
    assert statuses("here") == ["not started"] * 2
    killed("--resume", "here", "--model.lr", "0.2")
    assert main(["fit", "--resume", "here"]) == 0
    for seed in (0, 1):
        assert calls(f"here/seed_{seed}")[1:] == [
            f"fit --resume here/seed_{seed} --trainer.max_epochs 9 --model.lr 0.2"
        ]


def test_seeds_that_were_not_started_get_the_options_of_a_continuation(
    stand_in: None, killed: Callable[..., None]
) -> None:
    killed("--config", "ppo_cartpole", "--seeds", "2", "--run_dir", "here")
    killed("--resume", "here", "--trainer.max_epochs", "9")
    assert main(["fit", "--resume", "here"]) == 0
    wanted = "fit --config ppo_cartpole --seed_everything 1 --run_dir here/seed_1 --trainer.max_epochs 9"
    assert calls("here/seed_1") == [wanted]


def test_impossible_options_of_a_continuation_are_forgotten(stand_in: None) -> None:
    assert fit("--seeds", "2", "--run_dir", "here") == 0
    files = [Path("here", name) for name in ("seeds.json", "seed_results.json")]
    before = [path.read_text(encoding="utf-8") for path in files]
    assert main(["fit", "--resume", "here", "--model.broken", "1"]) == 1
    assert [path.read_text(encoding="utf-8") for path in files] == before


def test_a_continuation_has_no_other_seed(stand_in: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit("--seeds", "2", "--run_dir", "here") == 0
    assert main(["fit", "--resume", "here", "--seed_everything", "3"]) == 2
    assert "--resume continues the seeds of here: omit --seed_everything" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [
        "last_checkpoint.dirpath",
        "best_checkpoint.dirpath",
        "trainer.default_root_dir",
        "trainer.callbacks.dirpath",
    ],
)
def test_folders_of_checkpoints_that_seeds_would_share_are_refused(
    stand_in: None, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    callback = '[{"class_path": "maze_pl.callbacks.LastCheckpoint", "init_args": {"dirpath": "kept"}}]'
    words = ["--trainer.callbacks", callback] if "callbacks" in option else [f"--{option}", "kept"]
    assert fit("--seeds", "2", "--run_dir", "here", *words) == 2
    message = f"{option}=kept, where the seeds 0 and 1 would write the same files: omit it"
    assert message in capsys.readouterr().err and not Path("here").exists()
    assert fit("--seeds", "[4]", "--run_dir", "one", *words) == 0
    assert fit("--seeds", "2", "--run_dir", "here") == 0
    assert main(["fit", "--resume", "here", *words]) == 2
    assert message in capsys.readouterr().err


def test_seeds_may_have_folders_of_checkpoints_with_the_seed_in_them(stand_in: None) -> None:
    assert fit("--seeds", "2", "--run_dir", "here", "--last_checkpoint.dirpath", "kept_${seed_everything}") == 0


@pytest.mark.parametrize("run_dir", [["--run_dir", "here"], []])
def test_the_run_directory_in_options_is_that_of_each_seed(
    project: Path, stand_in: None, capsys: pytest.CaptureFixture[str], run_dir: list[str]
) -> None:
    content = "base: ppo_cartpole\nlast_checkpoint: {dirpath: '${run_dir}/last'}\n"
    (project / "mine.yaml").write_text(content, encoding="utf-8")
    words = ["--config", "mine.yaml", "--best_checkpoint.dirpath", "${run_dir}/best"]
    assert main(["fit", *words, "--seeds", "2", *run_dir]) == 0
    folder = Path("here") if run_dir else next(Path("outputs", "mine").iterdir())
    for seed in (0, 1):
        (call,) = calls(f"{folder}/seed_{seed}")
        given = f"--best_checkpoint.dirpath ${{run_dir}}/best --seed_everything {seed} --run_dir {folder}/seed_{seed}"
        assert call == f"fit --config mine.yaml {given}"
        options = prepare(call.split(" "))
        assert f"--best_checkpoint.dirpath={folder}/seed_{seed}/best" in options
        assert any(f"dirpath: {folder}/seed_{seed}/last" in option for option in options)
    shared = [*words, "--last_checkpoint.dirpath", "${run_dir}/../last"]
    assert main(["fit", *shared, "--seeds", "2", "--run_dir", "there"]) == 2
    assert "where the seeds 0 and 1 would write the same files" in capsys.readouterr().err


def test_the_run_directory_in_options_of_a_sweep_is_that_of_each_seed(stand_in: None) -> None:
    content: dict[str, Any] = {"config": "ppo_cartpole", "search": {"model.lr": [0.1]}, "sampler": "grid", "n_seeds": 2}
    plan = parse_sweep({**content, "options": {"best_checkpoint.dirpath": "${run_dir}/best"}})
    assert main(plan.command({"model.lr": 0.1}, Path("trial"))) == 0
    for seed in (0, 1):
        (call,) = calls(f"trial/seed_{seed}")
        assert f"--best_checkpoint.dirpath=trial/seed_{seed}/best" in prepare(call.split(" "))


def test_the_command_to_be_repeated_with_trust_is_the_given_one(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "run").mkdir()
    (project / "run" / "config.yaml").write_text("model: {class_path: mine.Model}\n", encoding="utf-8")
    assert main(["fit", "--warm-start", "run", "--seeds", "2", "--run_dir", "here"]) == 2
    assert "maze-pl fit --warm-start run --seeds 2 --run_dir here --trust\n" in capsys.readouterr().err


def test_all_seeds_start_from_the_same_configuration(
    project: Path,
    stand_in: None,
    killed: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = project / "mine.yaml"
    mine.write_text("base: ppo_cartpole\nmodel: {lr: 0.1}\n", encoding="utf-8")
    killed("--config", "mine.yaml", "--seeds", "2", "--run_dir", "here")
    mine.write_text("base: ppo_cartpole\nmodel: {lr: 0.2}\n", encoding="utf-8")
    assert main(["fit", "--resume", "here"]) == 2
    assert "`--config mine.yaml` has changed since the first seed used it: restore it" in capsys.readouterr().err
    other = project / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    assert main(["fit", "--resume", "../here"]) == 2
    assert "continue in the folder where the seeds were started" in capsys.readouterr().err
    monkeypatch.chdir(project)
    mine.write_text("model: {lr: 0.1}  # the same\nbase: ppo_cartpole\n", encoding="utf-8")
    assert main(["fit", "--resume", "here"]) == 0


def test_no_seed_starts_from_a_configuration_that_was_edited_in_the_meantime(
    project: Path, stand_in: None, capsys: pytest.CaptureFixture[str]
) -> None:
    content = "base: ppo_cartpole\nmodel: {lr: 0.1}\n"
    (project / "mine.yaml").write_text(content, encoding="utf-8")
    words = ["--config", "mine.yaml", "--model.edits", "1", "--seeds", "[3,4]", "--run_dir", "here"]
    assert main(["fit", *words]) == 1
    assert "no further seed is started: a configuration in `--config mine.yaml" in capsys.readouterr().out
    assert statuses("here") == ["finished", "not started"]
    (project / "mine.yaml").write_text(content, encoding="utf-8")
    assert main(["fit", "--resume", "here"]) == 0
    assert statuses("here") == ["finished"] * 2


def test_results_name_the_run_directories_of_a_folder_that_was_moved(stand_in: None) -> None:
    assert fit("--seeds", "[7,8]", "--run_dir", "here") == 1
    Path("here").rename("there")
    assert main(["fit", "--resume", "there"]) == 0
    assert [entry["run_dir"] for entry in results("there")["seeds"]] == ["there/seed_7", "there/seed_8"]
    assert results("there")["summary"]["eval return, last"]["mean"] == 75.0


def test_a_command_that_is_impossible_is_tried_once(stand_in: None, capfd: pytest.CaptureFixture[str]) -> None:
    assert fit("--seeds", "3", "--run_dir", "here", "--model.broken", "1") == 1
    assert capfd.readouterr().err.count("there is no such option") == 1
    assert [entry["status"] for entry in results("here")["seeds"]] == ["failed", "not started", "not started"]


def next_commands(output: str) -> list[str]:
    return output.partition("\nnext:\n")[2].splitlines()


def test_the_next_command_for_seeds_with_classes_of_a_project_has_trust(
    project: Path, stand_in: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "mine.py").write_text("", encoding="utf-8")
    (project / "mine.yaml").write_text("base: ppo_cartpole\ndata: {env: mine.Env}\n", encoding="utf-8")
    words = ["--config", "mine.yaml", "--seeds", "[7,8]"]
    assert main(["fit", *words, "--run_dir", "some runs"]) == 1
    assert next_commands(capsys.readouterr().out)[0] == "  maze-pl fit --resume 'some runs' --trust"
    assert fit("--seeds", "[7,8]", "--run_dir", "here") == 1
    assert next_commands(capsys.readouterr().out)[0] == "  maze-pl fit --resume here"


def test_tensorboard_is_named_only_where_seeds_have_logged_to_it(
    stand_in: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit("--seeds", "2", "--run_dir", "logged") == 0
    assert next_commands(capsys.readouterr().out) == ["  tensorboard --logdir logged"]
    assert fit("--seeds", "2", "--run_dir", "here", "--no_tensorboard") == 0
    output = capsys.readouterr().out
    assert "directory of all seeds: here\n" in output and "next:" not in output and "tensorboard" not in output


def test_after_a_refused_command_the_next_one_needs_a_change(
    stand_in: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit("--seeds", "2", "--run_dir", "here", "--model.broken", "1") == 1
    output = capsys.readouterr().out
    assert "seed 0 was refused, see the message above: without a change the next command fails, too; add an" in output
    assert next_commands(output)[0] == "  maze-pl fit --resume here --OPTION VALUE"
    assert fit("--seeds", "[7,8]", "--run_dir", "there") == 1  # seed 8 ends with an error of its code
    output = capsys.readouterr().out
    assert "refused" not in output and "OPTION" not in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "0"], "--seeds 0 is not a number of seeds such as 5, or a list such as [3,7,9]"),
        (["--seeds", "many"], "--seeds many is not a number of seeds"),
        (["--seeds", "[]"], "is not a number of seeds"),
        (["--seeds", "[1,2,1]"], "--seeds [1,2,1] has a seed twice"),
        (["--seeds", "[1,-2]"], "-2 is not a seed, a number from 0 to 4294967295"),
        (["--seeds", "[1,2]", "--seed_everything", "3"], "lists the seeds: omit --seed_everything"),
        (["--seeds", "2", "--seed_everything", "true"], "seed_everything=True, from which --seeds 2 counts"),
        (["--seeds.parallel", "2"], "--seeds.parallel is the number of seeds trained at a time: give --seeds, too"),
        (["--seeds", "2", "--seeds.parallel", "0"], "--seeds.parallel 0 is not a number of seeds to train at a time"),
        (["--seeds", "2", "--data.env", "env/nowhere"], "nowhere"),
    ],
)
def test_impossible_options_of_seeds_are_one_message_and_start_nothing(
    stand_in: None, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    if "env/nowhere" in options:
        options = ["--seeds", "2", "--config", "nowhere"]
    assert fit(*options, "--run_dir", "here") == 2
    assert message in capsys.readouterr().err
    assert not Path("here").exists()


def test_a_directory_of_seeds_is_not_a_run_directory(stand_in: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit("--seeds", "2", "--run_dir", "here") == 0
    assert main(["validate", "here"]) == 2
    assert (
        "here holds the runs of several seeds: name one of them (here/seed_0, here/seed_1)" in capsys.readouterr().err
    )
    assert main(["fit", "--resume", "here", "--seeds", "3"]) == 2
    assert "--resume continues the seeds of here: omit --seeds" in capsys.readouterr().err
    assert fit("--seeds", "2", "--run_dir", "here") == 2
    assert "the run directory here is not empty" in capsys.readouterr().err
    Path("here", "seeds.json").write_text("[]", encoding="utf-8")
    assert main(["fit", "--resume", "here"]) == 2
    assert "seeds.json is damaged" in capsys.readouterr().err


def test_a_plan_of_others_runs_no_code_of_theirs_without_trust(
    project: Path, stand_in: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "theirs.py").write_text("", encoding="utf-8")
    Path("here").mkdir()
    plan = {"seeds": [4], "options": ["--config", "ppo_cartpole", "--data.env", "theirs.Env", "--trust"]}
    Path("here", "seeds.json").write_text(json.dumps(plan), encoding="utf-8")
    assert main(["fit", "--resume", "here"]) == 2
    assert "theirs.Env" in (error := capsys.readouterr().err) and "use --trust" in error
    assert not Path("here", "seed_4").exists()
    assert main(["fit", "--resume", "here", "--trust"]) == 0
    assert calls("here/seed_4")[0].endswith("--data.env theirs.Env --seed_everything 4 --run_dir here/seed_4 --trust")
    plan = {"seeds": [4], "options": ["--config", "ppo_cartpole"], "changes": ["--data.env", "theirs.Env", "--trust"]}
    Path("here", "seeds.json").write_text(json.dumps(plan), encoding="utf-8")
    Path("here", "seed_results.json").unlink()
    assert main(["fit", "--resume", "here"]) == 2  # the seed was started, and would be continued with them
    assert "theirs.Env" in capsys.readouterr().err and len(calls("here/seed_4")) == 1


def test_options_that_only_print_do_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fit("--seeds", "[11,12]", "--print_config")
    assert "seed_everything: 11" in capsys.readouterr().out
    assert not Path("outputs").exists()


def test_a_configuration_cannot_have_seeds(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text("base: ppo_cartpole\nseeds: 3\n", encoding="utf-8")
    assert main(["fit", "--config", "mine.yaml"]) == 2
    assert "seeds=3 cannot be set in a configuration: give it on the command line" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------- real processes

SMALL = [
    *("--config", "ppo_cartpole", "--data.epoch_length", "2", "--data.n_envs", "2", "--data.n_rollout_steps", "50"),
    *("--data.evaluators", '{"eval": {"n_episodes": 2}}', "--early_stopping.patience", "0"),
]


def until(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.05)


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAZE_PL", "PL_"))}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "maze_pl", "fit", *options]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def processes_in(folder: Path) -> list[str]:
    """Processes whose working directory is a folder, this one excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_there = entry.name.isdigit() and os.readlink(entry / "cwd") == str(folder)
        except OSError:
            continue
        if is_there and int(entry.name) != os.getpid():
            found.append(entry.name)
    return found


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    content = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    return {name: value for name, value in content["state_dict"].items() if isinstance(value, torch.Tensor)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL]
)
def test_a_signal_stops_all_seeds_which_then_go_on_as_if_it_had_not(project: Path, number: signal.Signals) -> None:
    options = [*SMALL, "--seeds", "2", "--seeds.parallel", "2"]
    process = start(project, *options, "--trainer.max_epochs", "1000", "--run_dir", "here")
    until(lambda: all((project / "here" / f"seed_{seed}" / "metrics.csv").exists() for seed in (0, 1)))
    process.send_signal(number)
    status = process.wait(60)
    assert status == (-number if number == signal.SIGKILL else 128 + number)
    until(lambda: not processes_in(project), 60.0)
    assert (project / "here" / "seed_1" / "checkpoints" / "last.ckpt").exists()
    n_rows = max(len((project / f"here/seed_{seed}/metrics.csv").read_text().splitlines()) for seed in (0, 1)) - 1
    epochs = ["--trainer.max_epochs", str(n_rows + 2)]
    assert start(project, "--resume", "here", "--seeds.parallel", "2", *epochs).wait(300) == 0
    assert [entry["status"] for entry in results("here")["seeds"]] == ["finished"] * 2
    if number != signal.SIGINT:
        return
    assert start(project, *SMALL, *epochs, "--seed_everything", "1", "--run_dir", "alone").wait(300) == 0
    ours, theirs = weights(project / "here" / "seed_1"), weights(project / "alone")
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())

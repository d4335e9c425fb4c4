"""Directories of runs and rollouts: those with files, and those that another process uses."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.run_directory import claimed, has_failed, require_empty, run_directory

RECORDS = [
    *("config.yaml", "run.log", "command.txt", "provenance.json", "source_folders.txt", ".lock"),
    *("tensorboard/events.out.tfevents.1", "wandb/run", "event_logs/BaseEnvEvents.reward.csv"),
    *("trajectories/1.pkl", "renderings/1.gif"),
]
TRAINED = [*RECORDS, "metrics.csv"]
PLAYED = ["config.yaml", "command.txt", "episodes.csv"]
CONTINUE = "or continue its run with `maze-pl fit --resume {path}`, in Python with RunContext(run_dir='{path}')"
CASES: list[tuple[list[str], bool, str]] = [
    (TRAINED, True, f"choose another one, {CONTINUE}"),
    (["config.yaml", "checkpoints/last.ckpt"], True, CONTINUE),
    ([*RECORDS, "checkpoints/best.ckpt"], True, CONTINUE),
    ([*RECORDS, "networks/a.svg"], True, CONTINUE),
    (["seeds.json"], True, "or continue its run with `maze-pl fit --resume {path}`"),
    (["sweep.yaml"], True, "or continue its sweep with `maze-pl sweep --resume {path}`"),
    ([*RECORDS, "notes.txt"], True, f"choose another one, {CONTINUE}"),
    (RECORDS, False, "the folder {path} is not empty: choose one that does not exist or is empty"),
    (["command.txt"], True, "the run directory {path} is not empty: choose another one"),
    (PLAYED, True, "the run directory {path} is not empty: choose another one"),
    (PLAYED, False, "the folder {path} is not empty: choose one that does not exist or is empty"),
    (TRAINED, False, "the folder {path} is not empty: choose one that does not exist or is empty"),
]


@pytest.mark.parametrize(("files", "is_training", "message"), CASES)
def test_a_directory_with_files_is_refused_and_only_its_own_run_can_be_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], is_training: bool, message: str
) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", "")
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    with ExitStack() as undo, pytest.raises(ConfigurationError) as raised:
        run_directory(None, str(tmp_path), None, undo, is_training)
    assert str(raised.value).endswith(message.format(path=tmp_path))


@pytest.mark.parametrize(("file", "command"), [("run.log", "fit"), ("seeds.json", "fit"), ("sweep.yaml", "sweep")])
def test_the_commands_in_messages_hold_for_folders_with_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("config.yaml", file):
        Path("my runs").mkdir(exist_ok=True)
        Path("my runs", name).touch()
    Path("my runs", "metrics.csv").touch()
    with pytest.raises(ConfigurationError, match=f"`maze-pl {command} --resume 'my runs'`"):
        require_empty(Path("my runs"))


def test_a_new_run_may_use_the_directory_of_a_run_that_failed_before_its_first_epoch_ended(tmp_path: Path) -> None:
    for file in RECORDS:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / "checkpoints").mkdir()
    require_empty(tmp_path)
    assert has_failed(tmp_path)
    with pytest.raises(ConfigurationError, match="is not empty"):  # for several seeds or a sweep
        require_empty(tmp_path, is_one_run=False)


def test_a_run_that_has_ended_or_has_checkpoints_elsewhere_has_not_failed(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    elsewhere.mkdir()
    (run / "config.yaml").write_text(f"best_checkpoint: {{dirpath: {elsewhere}}}\n", encoding="utf-8")
    (run / "run.log").write_text("command: maze-pl fit\nrun directory: run\n", encoding="utf-8")
    assert has_failed(run)
    (elsewhere / "best.ckpt").touch()
    assert not has_failed(run)
    (elsewhere / "best.ckpt").unlink()
    with (run / "run.log").open("a", encoding="utf-8") as log:  # without a logger and checkpoints
        log.write("\nended: all epochs\nbest: none\nrun directory: run\n")
    assert not has_failed(run)
    (run / "run.log").write_text("", encoding="utf-8")
    (run / "config.yaml").write_text("a: [", encoding="utf-8")
    assert not has_failed(run)


def test_a_directory_with_a_lock_is_empty(tmp_path: Path) -> None:
    require_empty(tmp_path / "missing")
    (tmp_path / ".lock").touch()
    require_empty(tmp_path)


@pytest.mark.parametrize("keeps_lock_file", [True, False])
def test_a_directory_belongs_to_one_process_and_keeps_its_lock_if_it_is_used_again(
    tmp_path: Path, keeps_lock_file: bool
) -> None:
    with claimed(tmp_path, keeps_lock_file):
        (tmp_path / "file").touch()
        with pytest.raises(ConfigurationError, match=r"is in use: process \d+ writes to it"), claimed(tmp_path):
            pass
    assert (tmp_path / ".lock").exists() == keeps_lock_file


def test_incomplete_files_of_killed_processes_are_removed_but_no_folder_of_a_comparison(tmp_path: Path) -> None:
    (tmp_path / ".metrics.csv.1.part").touch()
    (tmp_path / ".comparison.1.part").mkdir()
    with claimed(tmp_path):
        assert sorted(path.name for path in tmp_path.glob(".*.part")) == [".comparison.1.part"]


def test_incomplete_files_in_subfolders_are_removed_if_their_processes_have_ended(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = [f"trajectories/.a.spaces.{ended.pid}-3.part", f"states/deeper/.a.b.{ended.pid}.part"]
    kept = [
        *(f"trajectories/.a.spaces.{os.getppid()}-3.part", f"trajectories/a.{ended.pid}.part", "states/.a.x.part"),
        *(f"states/.{ended.pid}.part", f"seed_3/trajectories/.a.{ended.pid}.part", "seed_3/.lock"),
    ]
    for name in (*left, *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with claimed(tmp_path):
        pass
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {*kept, ".lock"}

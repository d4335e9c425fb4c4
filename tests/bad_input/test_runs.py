"""Run directories that are in use or full, and where a trace is shown after all."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maze_pl.__main__ import main
from tests.bad_input.conftest import FIT, SMALL, disk_full_at, tree

pytestmark = pytest.mark.filterwarnings("ignore")

RESUME = ["fit", "--resume", "run", "--trainer.max_epochs", "2"]


@pytest.mark.slow
def test_a_directory_in_which_a_process_trains_is_refused_until_that_process_has_ended(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "maze_pl", *RESUME[:3], *SMALL, "--trainer.max_epochs", "100000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        lock = Path("run", ".lock")
        while str(process.pid) not in lock.read_text(encoding="utf-8") and process.poll() is None:
            time.sleep(0.05)
        assert main(RESUME) == 2
        message = capsys.readouterr().err.partition("maze-pl: error: ")[2]
        assert f"the run directory run is in use: process {process.pid} trains in it" in message
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    assert str(process.pid) in lock.read_text(encoding="utf-8")
    before = Path("run", "checkpoints", "last.ckpt").read_bytes()
    assert main(["fit", "--resume", "run", *SMALL, "--trainer.max_epochs", "-1", "--trainer.max_steps", "1"]) == 0
    assert len(before) > 0


@pytest.mark.parametrize("file_size", [*(pytest.param(n, marks=pytest.mark.slow) for n in (20_000, 60_000)), 150_000])
def test_a_full_disk_while_saving_leaves_the_former_checkpoint_valid(
    project: Path, capsys: pytest.CaptureFixture[str], file_size: int
) -> None:
    checkpoints = tree(Path("run", "checkpoints"))
    with disk_full_at(file_size):
        assert main(RESUME) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "cannot be written: File too large; its former version is kept" in error
    assert tree(Path("run", "checkpoints")) == checkpoints
    assert main(["validate", "run"]) == 0
    assert main(RESUME) == 0


@pytest.mark.parametrize("file_size", [300, 1000, 3000])
def test_a_disk_that_is_full_from_the_start_leaves_nothing_behind(
    project: Path, capsys: pytest.CaptureFixture[str], file_size: int
) -> None:
    before = tree(project)
    for command in (FIT, RESUME):
        with disk_full_at(file_size):
            assert main(command) == 2
        error = capsys.readouterr().err
        assert "Traceback" not in error
        assert "File too large" in error.partition("maze-pl: error: ")[2]
        assert tree(project) == before


def test_a_resumed_run_whose_environment_breaks_is_as_it_was(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(project)
    assert main([*RESUME, "--data.env", "broken_environments.CartPoleNotANumber"]) == 2
    assert "is not finite" in capsys.readouterr().err
    assert tree(project) == before


def test_debug_anywhere_on_the_command_line_adds_the_trace(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        ["--debug", *FIT, "--model.gamma", "7"],
        [*FIT, "--debug", "--model.gamma", "7"],
        ["fitt", "--debug"],
    ):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert "Traceback (most recent call last)" in error
        assert "maze-pl: error: " in error.splitlines()[-1]
    assert "--debug" not in Path("run", "command.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("vectorization", ["sequential", pytest.param("subprocess", marks=pytest.mark.slow)])
def test_a_mistake_in_code_of_the_user_keeps_its_trace_and_leaves_no_run(project: Path, vectorization: str) -> None:
    before = tree(project)
    with pytest.raises((KeyError, RuntimeError), match="position"):
        main([*FIT, "--data.env", "broken_environments.Bug", "--data.vectorization", vectorization])
    assert tree(project) == before


@pytest.mark.slow
def test_a_trace_ends_the_process_with_status_1(project: Path) -> None:
    command = [sys.executable, "-m", "maze_pl", *FIT, "--data.env", "broken_environments.Bug"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert "KeyError: 'position'" in result.stderr

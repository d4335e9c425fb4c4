"""Run directories that are in use or full, and where a trace is shown after all."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maze_pl.__main__ import main
from tests.bad_input.project import FIT, SMALL, disk_full_at, require_only_evidence, tree

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
        assert f"the run directory run is in use: process {process.pid} writes to it" in message
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    assert str(process.pid) in lock.read_text(encoding="utf-8")
    before = Path("run", "checkpoints", "last.ckpt").read_bytes()
    assert main(["fit", "--resume", "run", *SMALL, "--trainer.max_epochs", "-1", "--trainer.max_steps", "1"]) == 0
    assert len(before) > 0


@pytest.mark.slow
@pytest.mark.parametrize("file_size", [20_000, 60_000, 150_000])
def test_a_full_disk_while_saving_leaves_the_former_checkpoint_valid(
    project: Path, capsys: pytest.CaptureFixture[str], file_size: int
) -> None:
    checkpoints = tree(Path("run", "checkpoints"))
    with disk_full_at(file_size):
        assert main(RESUME) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "cannot be written: File too large; the previous version is kept" in error
    assert tree(Path("run", "checkpoints")) == checkpoints
    assert main(["validate", "run"]) == 0
    assert main(RESUME) == 0


@pytest.mark.parametrize("file_size", [300, 1000, 3000])
def test_a_new_run_on_a_disk_that_is_full_from_the_start_leaves_nothing_behind(
    project: Path, capsys: pytest.CaptureFixture[str], file_size: int
) -> None:
    before = tree(project)
    with disk_full_at(file_size):
        assert main(FIT) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "File too large" in error.partition("maze-pl: error: ")[2]
    assert tree(project) == before


@pytest.mark.parametrize("file_size", [300, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_run_that_is_resumed_on_a_full_disk_keeps_all_that_it_had(
    project: Path, capsys: pytest.CaptureFixture[str], file_size: int
) -> None:
    before = tree(project)
    with disk_full_at(file_size):
        assert main(RESUME) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "File too large" in error.partition("maze-pl: error: ")[2]
    after = tree(project)
    for name, content in before.items():
        if content is not None and name != "run/.lock":
            assert (after[name] or b"").startswith(content), name


@pytest.mark.slow
def test_a_resumed_run_whose_environment_breaks_goes_on_with_the_configuration_that_it_had(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(project)
    assert main([*RESUME, "--data.env", "broken_environments.CartPoleNotANumber"]) == 2
    assert "is not finite" in capsys.readouterr().err
    require_only_evidence(before, project)
    log = Path("run", "run.log").read_text(encoding="utf-8")
    assert "CartPoleNotANumber" in log
    assert "maze-pl: error: " in log
    assert main(RESUME) == 0
    assert "max_epochs: 2" in Path("run", "config.yaml").read_text(encoding="utf-8")


def test_a_run_that_fails_leaves_what_others_wrote_into_its_directory(project: Path) -> None:
    others = ["new/rollouts/episodes.csv", "new/notes.txt", "new/checkpoints/mine.txt"]
    (project / "others.py").write_text(
        "from pathlib import Path\nimport pytorch_lightning as pl\n"
        "class Others(pl.Callback):\n"
        "    def on_train_batch_end(self, *_):\n"
        f"        for path in map(Path, {others}):\n"
        "            path.parent.mkdir(exist_ok=True)\n"
        "            path.write_text('precious')\n"
        "        raise RuntimeError('a bug of the user')\n"
    )
    with pytest.raises(RuntimeError, match="a bug of the user"):
        main([*FIT, "--trainer.callbacks+", "others.Others"])
    assert {Path(path).read_text(encoding="utf-8") for path in others} == {"precious"}
    assert "RuntimeError: a bug of the user" in Path("new", "run.log").read_text(encoding="utf-8")


def test_what_a_killed_process_has_not_completed_is_removed_when_the_run_goes_on(project: Path) -> None:
    for name in (".config.yaml.123.part", "checkpoints/.last.ckpt.123.part"):
        Path("run", name).write_bytes(b"half")
    assert main(RESUME) == 0
    assert not list(Path("run").rglob("*.part"))


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["mine", "outputs/mine"])
def test_empty_directories_that_existed_before_stay_and_can_be_used_again(
    project: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    Path(folder).mkdir(parents=True)
    before = tree(project)
    for run_dir in (folder, f"{folder}/a/b"):
        assert main([*FIT[:-1], run_dir, "--model.batch_size", "7"]) == 2
        assert main([*FIT[:-1], run_dir, "--trainer.callbacks", "EarlyStopping"]) == 2
        assert tree(project) == before
    rollout = ["rollout", "--env", "broken_environments.CartPoleNotANumber", "--n_episodes", "1"]
    assert main([*rollout, "--runner", "sequential", "--output_dir", folder]) == 2
    assert tree(project) == before


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), [("Exits", 1), ("ExitsWithStatus", 7)])
def test_an_environment_that_calls_sys_exit_is_named_and_ends_the_command_with_an_error(
    project: Path, capsys: pytest.CaptureFixture[str], name: str, status: int
) -> None:
    assert main([*FIT, "--data.env", f"broken_environments.{name}"]) == status
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "broken_environments.py:" in error.partition("maze-pl: error: ")[2]
    assert "called sys.exit(" in error


@pytest.mark.slow
def test_a_recursion_in_an_environment_keeps_its_trace(project: Path) -> None:
    with pytest.raises(RecursionError):
        main([*FIT, "--data.env", "broken_environments.CallsItself"])


@pytest.mark.slow
def test_observations_with_numbers_as_keys_are_named_by_their_text(project: Path) -> None:
    flat = ["--model.networks", "model/flatten_concat"]
    assert main([*FIT, "--data.env", "broken_environments.KeysOfNumbers", *flat]) == 0


@pytest.mark.slow
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
def test_a_mistake_in_code_of_the_user_keeps_its_trace(project: Path, vectorization: str) -> None:
    before = tree(project)
    with pytest.raises((KeyError, RuntimeError), match="position"):
        main([*FIT, "--data.env", "broken_environments.Bug", "--data.vectorization", vectorization])
    require_only_evidence(before, project)
    assert "KeyError: 'position'" in Path("new", "run.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_trace_ends_the_process_with_status_1(project: Path) -> None:
    command = [sys.executable, "-m", "maze_pl", *FIT, "--data.env", "broken_environments.Bug"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert "KeyError: 'position'" in result.stderr

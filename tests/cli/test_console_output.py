"""Training with a console that is not UTF-8, or that is closed during training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [
    *(sys.executable, "-m", "maze_pl", "fit", "--config", "ppo_cartpole", "--run_dir", "run"),
    *("--trainer.max_epochs", "2", "--data.epoch_length", "1", "--data.n_envs", "2", "--data.n_rollout_steps", "20"),
    *("--data.evaluators", '{"eval": {"n_episodes": 1}}', "--model.batch_size", "20"),
]


def assert_trained(folder: Path) -> None:
    log = (folder / "run/run.log").read_text(encoding="utf-8")
    assert "epoch 1" in log
    assert "epoch 2" in log
    assert "μ" in log
    assert "Error" not in log
    assert (folder / "run/checkpoints/last.ckpt").is_file()


@pytest.mark.slow
def test_training_does_not_need_a_console_of_utf_8(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(COMMAND, capture_output=True, cwd=tmp_path, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert "epoch 2" in done.stdout.decode("ascii")
    assert_trained(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("has_errors", [False, True])
def test_training_goes_on_if_its_output_is_closed(tmp_path: Path, has_errors: bool) -> None:
    errors = subprocess.STDOUT if has_errors else subprocess.PIPE
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=errors, cwd=tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()  # as `| head -1` does
        said = b"" if process.stderr is None else process.stderr.read()
        assert process.wait(timeout=300) == 0
    assert b"Traceback" not in said
    assert b"BrokenPipe" not in said
    assert_trained(tmp_path)

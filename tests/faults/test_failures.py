"""Environments, workers and ranks that fail or hang: what is said, how the run ends, and that nothing is left."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.faults.runs import SUBPROCESS, TWO_RANKS, Run, Server, checkpoint

INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL


def faulty(how: str, after: int) -> list[str]:
    init = f'{{"how": "{how}", "after": {after}}}'
    return ["--data.env", f'{{"class_path": "tests.faults.environments.Faulty", "init_args": {init}}}']


NO_STATISTICS = ["--data.wrappers", "[]"]  # whose estimation makes steps in the main process


@pytest.mark.slow
def test_an_exception_in_a_worker_is_shown_with_the_users_frame(server: Server, tmp_path: Path) -> None:
    run = server.fit(tmp_path, *SUBPROCESS, *NO_STATISTICS, *faulty("raise", 200))
    assert run.end() == 1
    assert re.search(r"environments \d to \d failed", run.output)
    assert "in fail" in run.output and "ZeroDivisionError: a mistake of the user" in run.output
    assert checkpoint(tmp_path)["epoch"] == 0


@pytest.mark.slow
def test_a_killed_worker_ends_the_run_with_the_names_of_its_environments(server: Server, tmp_path: Path) -> None:
    run = server.fit(tmp_path, *SUBPROCESS)
    run.until((tmp_path / "run" / "checkpoints" / "last.ckpt").exists)
    os.kill(run.workers()[0], KILL)
    assert run.end() == 1
    assert "failed: its process died with exit code -9" in run.output


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], SUBPROCESS], ids=["sequential", "subprocess"])
def test_a_second_signal_ends_a_run_whose_environment_hangs(server: Server, tmp_path: Path, options: list[str]) -> None:
    run = server.fit(tmp_path, *options, *NO_STATISTICS, *faulty("hang", 200))
    run.until((tmp_path / "hangs").exists)
    os.killpg(run.pid, INT)
    os.killpg(run.pid, INT)  # which is no second signal: it comes at once
    time.sleep(1.5)
    assert run.pid in run.processes()
    os.killpg(run.pid, TERM)
    assert run.end() == -TERM
    assert checkpoint(tmp_path)["epoch"] == 0


@pytest.mark.slow
def test_workers_whose_environments_hang_end_with_the_main_process(server: Server, tmp_path: Path) -> None:
    run = server.fit(tmp_path, *SUBPROCESS, *NO_STATISTICS, *faulty("hang", 40))
    run.until((tmp_path / "hangs").exists)
    assert len(run.workers()) > 0
    os.kill(run.pid, KILL)
    assert run.end() == -KILL


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], SUBPROCESS], ids=["sequential", "subprocess"])
def test_an_exception_on_one_rank_ends_all(server: Server, tmp_path: Path, options: list[str]) -> None:
    run = server.fit(tmp_path, *TWO_RANKS, *options, *NO_STATISTICS, *faulty("raise", 200))
    assert run.end() != 0
    assert "ZeroDivisionError: a mistake of the user" in run.output


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["setup", "batch_start", "optimizer_step", "validation_start", "save"])
def test_an_exception_in_a_callback_ends_the_workers_too(server: Server, tmp_path: Path, hook: str) -> None:
    callback = f'{{"class_path": "tests.faults.moments.FailAt", "init_args": {{"hook": "{hook}"}}}}'
    run = server.fit(tmp_path, *SUBPROCESS, f"--trainer.callbacks=[{callback}]")
    assert run.end() == 1
    assert "ZeroDivisionError: a mistake in a callback" in run.output
    assert not (tmp_path / "run" / "checkpoints" / "last.ckpt").exists()


@pytest.mark.slow
def test_an_evaluation_ends_at_once(server: Server, tmp_path: Path) -> None:
    first = server.fit(tmp_path, "--trainer.max_epochs", "1")
    assert first.end() == 0
    evaluators = '{"eval": {"n_episodes": 100000}}'
    for number in (INT, TERM):
        run = Run(server, tmp_path, ["validate", "run", *SUBPROCESS, "--data.evaluators", evaluators])
        run.until(run.workers)
        time.sleep(0.5)
        os.killpg(run.pid, number)
        assert run.end() == 128 + number
        assert "Traceback" not in run.output, run.output


@pytest.mark.slow
def test_a_run_that_was_killed_in_its_first_epoch_starts_once_more(server: Server, tmp_path: Path) -> None:
    run = server.fit(tmp_path, "--trainer.max_epochs", "1", "--data.epoch_length", "1000")
    run.until((tmp_path / "run" / "config.yaml").exists)
    os.kill(run.pid, KILL)
    run.end()
    assert not (tmp_path / "run" / "checkpoints" / "last.ckpt").exists()
    again = server.resume(tmp_path, "--data.epoch_length", "3")
    assert again.end() == 0
    assert checkpoint(tmp_path)["maze_pl"]["env_steps"] == 3 * 4 * 32

"""Environments, workers and ranks that fail or hang: what is said, how the run ends, and that nothing is left."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.faults.runs import SPAWN, SUBPROCESS, TWO_RANKS, Run, Server, checkpoint

INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL


def faulty(how: str, after: int, rank: int | None = None) -> list[str]:
    init = json.dumps({"how": how, "after": after, "rank": rank})
    return ["--data.env", f'{{"class_path": "tests.faults.environments.Faulty", "init_args": {init}}}']


HERE = ["--data.engine", "InProcessEngine"]
NO_STATISTICS = ["--data.wrappers", "[]"]  # whose estimation makes steps in the main process


@pytest.mark.slow
def test_an_exception_in_a_worker_is_shown_with_the_users_frame(server: Server, tmp_path: Path) -> None:
    run = server.fit(tmp_path, *SUBPROCESS, *NO_STATISTICS, *faulty("raise", 200))
    assert run.end() == 1
    assert re.search(r"environments \d to \d failed", run.output)
    assert "in fail" in run.output and "ZeroDivisionError: a mistake of the user" in run.output
    assert checkpoint(tmp_path)["epoch"] == 0


WORKERS = ["--data.n_shards", "2", "--data.engine", "ProcessEngine"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [[], pytest.param(WORKERS, marks=pytest.mark.long)], ids=["main process", "workers"]
)
def test_a_killed_process_of_environments_is_replaced(server: Server, tmp_path: Path, options: list[str]) -> None:
    run = server.fit(tmp_path, *SUBPROCESS, *NO_STATISTICS, *options)
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    run.until(last.exists)
    os.kill(run.environment_processes()[0], KILL)
    run.until(lambda: "2 more" in run.output)
    last.unlink()
    run.until(last.exists)
    os.kill(run.pid, TERM)
    assert run.end() == 128 + TERM
    assert "failed: its process died with exit code -9" in run.output and "Traceback" not in run.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [[], pytest.param(WORKERS, marks=pytest.mark.long)], ids=["main process", "workers"]
)
def test_a_killed_process_that_may_not_be_replaced_ends_the_run_in_one_line(
    server: Server, tmp_path: Path, options: list[str]
) -> None:
    options = [*(options or HERE), "--data.engine.max_replacements", "0"]
    run = server.fit(tmp_path, *SUBPROCESS, *NO_STATISTICS, *options)
    run.until((tmp_path / "run" / "checkpoints" / "last.ckpt").exists)
    os.kill(run.environment_processes()[0], KILL)
    assert run.end() == 1
    assert run.output.count("failed: its process died with exit code -9; max_replacements=0 others") == 1
    assert "Traceback" not in run.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [HERE, pytest.param(WORKERS, marks=pytest.mark.long), pytest.param([*HERE, *SUBPROCESS], marks=pytest.mark.long)],
    ids=["in-process", "workers", "subprocess"],
)
def test_an_environment_that_hangs_again_and_again_is_named_and_ends_the_run(
    server: Server, tmp_path: Path, options: list[str]
) -> None:
    limit = ["--data.engine.step_timeout", "0.5", "--data.engine.max_replacements", "1"]
    run = server.fit(tmp_path, *options, *limit, *NO_STATISTICS, *faulty("hang", 40))
    assert run.end() == 1
    named = (
        r"environment \d \(CartPole-v1\) did not finish a step within step_timeout=0.5 s in episode \d+ with seed \d+"
    )
    assert len(re.findall(named, run.output)) == 2
    assert re.search(f"maze-pl: error: .*{named}, after action .*; max_replacements=1 others", run.output)
    assert re.search("environments.py.* in fail", run.output)  # where it hangs
    assert "Traceback" not in run.output


@pytest.mark.slow
def test_rollouts_of_an_environment_that_hangs_end_in_one_line(server: Server, tmp_path: Path) -> None:
    limit = ["--runner", "InProcessEngine", "--runner.step_timeout", "0.5", "--runner.max_replacements", "1"]
    command = ["rollout", "--env", "tests.faults.environments.Faulty", "--env.how", "hang", "--env.after", "10"]
    run = Run(server, tmp_path, [*command, *limit, "--n_episodes", "2"])
    assert run.end() == 1
    assert re.search(r"maze-pl: error: environment \d \(CartPole-v1\) did not finish a step", run.output)
    assert "Traceback" not in run.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [pytest.param([], marks=pytest.mark.long), SUBPROCESS], ids=["sequential", "subprocess"]
)
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
@pytest.mark.parametrize(
    "options", [[], pytest.param(SUBPROCESS, marks=pytest.mark.long)], ids=["sequential", "subprocess"]
)
def test_an_exception_on_one_rank_ends_all(server: Server, tmp_path: Path, options: list[str]) -> None:
    run = server.fit(tmp_path, *TWO_RANKS, *options, *NO_STATISTICS, *faulty("raise", 200))
    assert run.end() != 0
    assert "ZeroDivisionError: a mistake of the user" in run.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "rank", "told"),
    [
        (TWO_RANKS, 1, "rank 1 was killed by SIGKILL; all other ranks were stopped"),
        pytest.param(
            TWO_RANKS,
            0,
            "rank 0, which launched the other ranks of this machine, was killed; all other ranks were stopped",
            marks=pytest.mark.long,
        ),
        pytest.param(
            [*TWO_RANKS, *SPAWN],
            1,
            "rank 1 was killed by SIGKILL; all other ranks were stopped",
            marks=pytest.mark.long,
        ),
    ],
    ids=["launched", "main", "spawned"],
)
def test_a_killed_rank_ends_the_run_in_one_line_that_names_it(
    server: Server, tmp_path: Path, options: list[str], rank: int, told: str
) -> None:
    run = server.fit(tmp_path, *options)
    run.until((tmp_path / "run" / "checkpoints" / "last.ckpt").exists)
    pid = run.pid
    if rank == 1:
        pid = (run.spawned() if SPAWN[0] in options else run.ranks())[-1]
    os.kill(pid, KILL)
    assert run.end() == (1 if rank == 1 else -KILL)
    assert [line for line in run.output.splitlines() if "error:" in line] == [f"maze-pl: error: {told}"]
    assert "Traceback" not in run.output and "gloo/" not in run.output


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_rank_ends_the_run_also_while_the_others_exchange_nothing(server: Server, tmp_path: Path) -> None:
    run = server.fit(tmp_path, *TWO_RANKS, *NO_STATISTICS, *faulty("hang", 40))
    run.until((tmp_path / "hangs").exists)
    (pid,) = run.until(run.ranks)
    os.kill(pid, KILL)
    assert run.end() == 1
    assert run.output.count("maze-pl: error: rank 1 was killed by SIGKILL; all other ranks were stopped") == 1


@pytest.mark.slow
def test_a_killed_main_rank_is_named_also_while_the_others_exchange_nothing(server: Server, tmp_path: Path) -> None:
    run = server.fit(tmp_path, *TWO_RANKS, *NO_STATISTICS, *faulty("hang", 40))
    run.until((tmp_path / "hangs").exists)
    run.until(run.ranks)
    time.sleep(1.0)
    os.kill(run.pid, KILL)
    assert run.end() == -KILL
    told = "rank 0, which launched the other ranks of this machine, was killed; all other ranks were stopped"
    assert [line for line in run.output.splitlines() if "error:" in line] == [f"maze-pl: error: {told}"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("to", ["rank", "group"])
def test_a_signal_to_any_rank_gives_up_a_rollout_that_never_ends(server: Server, tmp_path: Path, to: str) -> None:
    hanging = None if to == "rank" else 1  # the first rank waits for the other one then
    run = server.fit(tmp_path, *TWO_RANKS, *NO_STATISTICS, *faulty("hang", 40, hanging))
    run.until((tmp_path / "hangs").exists)
    (rank,) = run.until(run.ranks)
    os.kill(rank, TERM) if to == "rank" else os.killpg(run.pid, TERM)
    assert run.end() == 128 + TERM
    assert run.output.count("maze-pl: stopped by SIGTERM in a rollout or an evaluation that took more than 20 s") == 1
    assert "(at environments.py:" in run.output
    assert "Traceback" not in run.output and "error:" not in run.output


@pytest.mark.slow
def test_an_exception_on_one_rank_alone_is_shown_and_the_rank_is_named(server: Server, tmp_path: Path) -> None:
    callback = '{"class_path": "tests.faults.moments.FailAt", "init_args": {"hook": "batch_start", "rank": 1}}'
    run = server.fit(tmp_path, *TWO_RANKS, f"--trainer.callbacks=[{callback}]")
    assert run.end() == 1
    assert run.output.count("ZeroDivisionError: a mistake in a callback") == 1
    assert (
        run.output.count("maze-pl: error: rank 1 ended with exit status 1, for the reason above; all other ranks") == 1
    )
    assert "gloo/" not in run.output


MORE_HOOKS = "setup", "batch_start", "validation_start", "save"


@pytest.mark.slow
@pytest.mark.parametrize(
    "hook",
    ["optimizer_step", *(pytest.param(hook, marks=pytest.mark.long) for hook in MORE_HOOKS)],
)
def test_an_exception_in_a_callback_ends_the_workers_too(server: Server, tmp_path: Path, hook: str) -> None:
    callback = f'{{"class_path": "tests.faults.moments.FailAt", "init_args": {{"hook": "{hook}"}}}}'
    run = server.fit(tmp_path, *SUBPROCESS, *NO_STATISTICS, f"--trainer.callbacks=[{callback}]")
    assert run.end() == 1
    assert "ZeroDivisionError: a mistake in a callback" in run.output
    assert not (tmp_path / "run" / "checkpoints" / "last.ckpt").exists()


@pytest.mark.slow
def test_an_evaluation_ends_at_once(server: Server, tmp_path: Path) -> None:
    first = server.fit(tmp_path, *NO_STATISTICS, "--trainer.max_epochs", "1")
    assert first.end() == 0
    evaluators = '{"eval": {"n_episodes": 100000}}'
    for number in (INT, TERM):
        run = Run(server, tmp_path, ["validate", "run", "--trust", *SUBPROCESS, "--data.evaluators", evaluators])
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

"""INT, TERM and KILL to real runs at random moments: how they end, what they leave, and that they can be resumed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from tests.faults.runs import SPAWN, SUBPROCESS, TWO_RANKS, Run, Server, checkpoint

INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL
# number of the case -> signal, options, who gets it
KINDS = [
    (INT, [], "main"),
    (TERM, SUBPROCESS, "main"),
    (INT, SUBPROCESS, "group"),
    (KILL, SUBPROCESS, "main"),
    (TERM, [], "group"),
    (KILL, [], "main"),
    (TERM, SUBPROCESS, "group"),
    (INT, SUBPROCESS, "main"),
]
RANK_KINDS = [
    (TERM, TWO_RANKS, "main"),
    (INT, TWO_RANKS, "group"),
    (TERM, TWO_RANKS, "rank"),
    (KILL, TWO_RANKS, "main"),
    (KILL, TWO_RANKS, "rank"),
    (TERM, [*TWO_RANKS, *SUBPROCESS], "group"),
    (TERM, [*TWO_RANKS, *SPAWN], "main"),
    (INT, [*TWO_RANKS, *SPAWN], "group"),
]
ONE_RANK = [(number, KINDS[number % len(KINDS)]) for number in range(36)]
RANKS = [(number, RANK_KINDS[(number - 36) % len(RANK_KINDS)]) for number in range(36, 50)]


def send(run: Run, number: signal.Signals, to: str, moments: random.Random) -> None:
    """Send a signal at a random moment: from when the process can take it, or from when the run directory is there."""
    run.until(run.takes_signals)
    pid = run.pid
    if to == "rank":
        (pid,) = run.until(run.ranks)
        run.until(lambda: run.takes_signals(pid))
    if moments.random() < 0.7:
        run.until((run.folder / "run" / "config.yaml").exists)
    time.sleep(moments.uniform(0.0, 1.5))
    os.killpg(run.pid, number) if to == "group" else os.kill(pid, number)


SLOW = (0, 1, 3, 6, 36, 38, 40, 43)
CASES = [pytest.param(*case, marks=[] if case[0] in SLOW else pytest.mark.long) for case in (*ONE_RANK, *RANKS)]
"""Each signal, receiver and way of starting processes once; further kinds and moments are left to the long tests."""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "kind"), CASES)
def test_a_signal_at_any_moment_ends_a_run_so_that_it_can_be_resumed(
    server: Server, tmp_path: Path, number: int, kind: tuple[signal.Signals, list[str], str]
) -> None:
    what, options, to = kind
    run = server.fit(tmp_path, *options)
    send(run, what, to, random.Random(number))
    status = run.end()
    output = run.output
    if what != KILL:
        assert status == 128 + what, output[-5000:]
        assert "Traceback" not in output and "Exception ignored" not in output, output[-5000:]
        stopped = f"stopped by {what.name} after "
        assert output.count(stopped) + output.count("nothing was trained") == 1, output[-5000:]
        assert (tmp_path / "run" / "checkpoints" / "last.ckpt").exists() == (stopped in output)
    else:
        assert status == -KILL if to == "main" else status != 0
    if (tmp_path / "run" / "checkpoints" / "last.ckpt").exists():
        epoch = checkpoint(tmp_path)["epoch"]
        left = [path.name for path in (tmp_path / "run").rglob("*.part")]
        assert what == KILL or left == []
    else:
        epoch = 0
    if (tmp_path / "run" / "config.yaml").exists() and number % 3 == 0:
        one_rank = ["--trainer.devices", "1"]
        again = server.resume(tmp_path, "--trainer.max_epochs", str(epoch + 2), *one_rank)
        assert again.end() == 0, again.output[-5000:]
        assert checkpoint(tmp_path)["epoch"] == epoch + 1


FORKED = ["--data.env", "tests.faults.environments.forked", "--data.wrappers", "[]"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [SUBPROCESS, FORKED], ids=["subprocess", "AsyncVectorEnv"])
def test_term_to_the_whole_group_loses_nothing(server: Server, tmp_path: Path, options: list[str]) -> None:
    run = server.fit(tmp_path, *options)
    run.until((tmp_path / "run" / "checkpoints" / "last.ckpt").exists)
    os.killpg(run.pid, TERM)
    assert run.end() == 128 + TERM
    assert "Traceback" not in run.output and "Exception ignored" not in run.output
    assert f"stopped by {TERM.name} after " in run.output


@pytest.mark.slow
def test_forked_environments_that_end_by_the_signal_end_the_run_with_its_status(server: Server, tmp_path: Path) -> None:
    run = server.fit(tmp_path, *FORKED)
    run.until((tmp_path / "run" / "checkpoints" / "last.ckpt").exists)
    for pid in run.processes():  # as job schedulers do
        os.kill(pid, TERM)
    assert run.end() == 128 + TERM
    # gymnasium may report that its vector, once deleted, cannot reach processes that have ended already
    ours = re.sub(
        r"Exception ignored in: <function AsyncVectorEnv\.__del__.*?EOFError: *\n", "", run.output, flags=re.S
    )
    assert "Traceback" not in ours and "Exception ignored" not in ours
    assert run.output.count(f"stopped by {TERM.name} ") == 1
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").exists()


EVALUATION = ["--data.evaluators", '{"eval": {"n_episodes": 50, "n_envs": 1}}']  # 400 steps at least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "after", "consequence"),
    [
        ([], 200, "progress since the last checkpoint is lost; to continue"),
        (SUBPROCESS, 200, "progress since the last checkpoint is lost; to continue"),
        (EVALUATION, 120, "there is no checkpoint yet"),
        (TWO_RANKS, 200, "progress since the last checkpoint is lost; to continue"),
    ],
    ids=["rollout", "subprocess", "evaluation", "ranks"],
)
def test_a_rollout_that_fails_after_a_signal_is_abandoned(
    server: Server, tmp_path: Path, options: list[str], after: int, consequence: str
) -> None:
    init = json.dumps({"how": "helper", "after": after})
    env = ["--data.env", f'{{"class_path": "tests.faults.environments.Faulty", "init_args": {init}}}']
    run = server.fit(tmp_path, *env, "--data.wrappers", "[]", *options)
    run.until((tmp_path / "hangs").exists)
    os.killpg(run.pid, TERM)
    assert run.end() == 128 + TERM
    assert "Traceback" not in run.output
    failed = f"stopped by {TERM.name} in a rollout or an evaluation that has failed since"
    assert run.output.count(failed) == 1 and run.output.count("stopped by") == 1
    assert "the helper has ended" in run.output and consequence in run.output

"""INT, TERM and KILL to real runs at random moments: how they end, what they leave, and that they can be resumed."""

from __future__ import annotations

import os
import random
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

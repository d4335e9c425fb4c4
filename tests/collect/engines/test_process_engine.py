"""Processes that are killed at any moment are replaced, their work is done all the same, and nothing is left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from maze_pl.collect.engines import ProcessEngine
from tests import shared_memory
from tests.collect.engines.players import Player, RandomActs, change, make_policy


@pytest.fixture
def engine() -> Iterator[ProcessEngine]:
    engine = ProcessEngine(n_workers=2)
    engine.start(Player, make_policy())
    yield engine
    engine.close()
    assert not multiprocessing.active_children()


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def is_sending(engine: ProcessEngine) -> bool:
    """Whether a part of a message has come from a worker."""
    return any(worker.connection.poll() for worker in engine._sent)


def kill(pid: int) -> None:
    """Kill a worker, and wait until it is dead."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path("/proc", str(pid)).exists())


def pids() -> list[int]:
    """The workers, which are all processes that this one has started."""
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def test_workers_start_with_the_first_jobs_that_need_them(engine: ProcessEngine) -> None:
    assert not pids()
    engine.submit(7, "count")
    engine.submit(7, "count")
    assert len(pids()) == 1
    engine.submit(3, "count")
    engine.submit(4, "count")
    assert len(pids()) == 2
    for _ in range(4):
        engine.get()


def test_what_an_environment_forks_can_be_ended_by_it(engine: ProcessEngine) -> None:
    assert engine.map([(0, "fork_and_terminate", ())]) == [-signal.SIGTERM]


def test_workers_use_one_thread_and_the_policy_as_in_evaluation(engine: ProcessEngine) -> None:
    assert engine.map([(0, "threads", ()), (1, "is_training", ())]) == [1, False]


def test_a_worker_that_is_killed_while_it_starts_is_replaced(
    engine: ProcessEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.submit(0, "count")
    (first,) = pids()
    os.kill(first, signal.SIGKILL)
    done = engine.get(timeout=60)
    assert (done.result, done.restarts) == ((0, 1, ()), 1)
    (message,) = caplog.messages
    assert message == (
        "a worker of ProcessEngine is lost: its process died with exit code -9; its players [0] restart, and 2 more "
        "workers can be replaced"
    )


def test_all_actors_of_a_worker_that_is_killed_while_it_waits_begin_anew(engine: ProcessEngine) -> None:
    engine.map([(player, "count", ()) for player in range(6)])
    lost, kept = engine.map([(0, "pid", ()), (1, "pid", ())])
    kill(lost)
    for player in range(6):
        engine.submit(player, "count")
    done = {one.player: one for one in (engine.get(timeout=60) for _ in range(6))}
    assert [(done[n].result[1], done[n].restarts) for n in range(6)] == [(1, 1), (2, 0)] * 3
    assert engine.map([(1, "pid", ())]) == [kept]
    assert len(set(engine.map([(player, "pid", ()) for player in (0, 2, 4)]))) == 1  # the new one was free


def test_jobs_that_were_not_finished_are_done_in_order_by_the_new_worker(engine: ProcessEngine) -> None:
    engine.submit(0, "count", "a")
    engine.submit(0, "kill_first", 1)
    engine.submit(2, "count", "b")
    engine.submit(0, "count", "c")
    done = [engine.get(timeout=60) for _ in range(4)]
    zero = [(one.result, one.restarts) for one in done if one.player == 0]
    assert zero[1:] == [(1, 1), ((0, 1, ("c",)), 1)]
    assert zero[0] == ((0, 1, ("a",)), 0)
    assert [one.result for one in done if one.player == 2] == [(2, 1, ("b",))]


def test_a_worker_that_is_killed_while_it_sends_a_large_result_is_replaced(engine: ProcessEngine) -> None:
    big = torch.arange(2_000_000)
    (pid,) = engine.map([(0, "pid", ())])
    engine.submit(0, "count", big)
    until(lambda: is_sending(engine))
    kill(pid)
    done = engine.get(timeout=60)
    assert done.restarts == 1
    assert torch.equal(done.result[2][0], big)


def test_workers_that_are_killed_more_often_than_they_are_replaced_end_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = ProcessEngine(n_workers=2, max_replacements=1)
    engine.start(Player, RandomActs())
    engine.submit(1, "count")
    engine.get()
    engine.submit(0, "kill_first", 2)
    with pytest.raises(
        RuntimeError, match=r"ProcessEngine is lost: .* exit code -9; max_replacements=1 others were re"
    ):
        engine.get(timeout=60)
    assert len(caplog.messages) == 1
    assert not multiprocessing.active_children()
    with pytest.raises(RuntimeError, match="not started"):
        engine.submit(1, "count")


def test_a_worker_that_leaves_by_itself_is_replaced_too(
    engine: ProcessEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.submit(0, "leave")
    with pytest.raises(RuntimeError, match="exit code 3; max_replacements=3 others"):
        engine.get(timeout=60)
    assert ["exit code 3" in message for message in caplog.messages] == [True] * 3


def test_an_exit_that_an_environment_asks_for_is_an_error(engine: ProcessEngine) -> None:
    engine.submit(0, "ask_for_exit")
    with pytest.raises(RuntimeError, match=r"(?s)player 0 failed: .*SystemExit: 4"):
        engine.get(timeout=60)


def test_the_error_of_an_actor_is_told_even_if_another_worker_is_dead(engine: ProcessEngine) -> None:
    pid = engine.map([(0, "pid", ()), (1, "pid", ())])[1]
    engine.submit(0, "wrong")
    until(lambda: is_sending(engine))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="a mistake of the user"):
        for _ in range(3):
            engine.get(timeout=60)


def test_the_time_to_wait_is_not_begun_anew_by_workers_that_die(engine: ProcessEngine) -> None:
    engine.max_replacements = 10**6
    engine.submit(0, "sleep", 1000.0)
    killer = threading.Thread(target=_kill_again_and_again, args=(stop := threading.Event(),))
    killer.start()
    try:
        with pytest.raises(TimeoutError, match="no job was finished"):
            engine.get(timeout=0.5)
    finally:
        stop.set()
        killer.join()
        for pid in pids():
            kill(pid)
    assert engine._restarts[0] > 1


def _kill_again_and_again(stop: threading.Event) -> None:
    while not stop.wait(0.05):
        for pid in pids():
            os.kill(pid, signal.SIGKILL)


def test_submitting_does_not_wait_for_a_worker_that_is_stuck(engine: ProcessEngine, tmp_path: Path) -> None:
    engine.map([(0, "count", ())])
    all_submitted = tmp_path / "all_submitted"
    engine.submit(0, "wait_for", str(all_submitted))
    for _ in range(5):
        engine.submit(0, "count", bytes(3_000_000))
    all_submitted.touch()
    assert engine.get(timeout=120).result, "the worker waited in vain"
    assert [engine.get(timeout=60).result[1] for _ in range(5)] == [2, 3, 4, 5, 6]


class Unreadable:
    """Does something else than to be made anew where it arrives.

    Args:
        what: A function and its arguments.
    """

    def __init__(self, *what: Any) -> None:
        self.what = what

    def __reduce__(self) -> Any:
        return self.what[0], self.what[1:]


def test_what_cannot_be_sent_or_read_is_an_error(engine: ProcessEngine) -> None:
    with pytest.raises(TypeError, match="pickle"):
        engine.submit(0, "count", threading.Lock())
    engine.submit(0, "count", Unreadable(int, "no number"))
    with pytest.raises(RuntimeError, match=r"(?s)player 0 failed: .*ValueError: invalid literal"):
        engine.get(timeout=60)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Unreadable(int, "no number"), r"(?s)player 0 failed: .*ValueError: invalid literal"),
        (Unreadable(os._exit, 1), r"player 0 failed: its process died with exit code 1 before it was ready.*__main__"),
    ],
)
def test_a_policy_that_cannot_be_made_in_a_worker_is_an_error(policy: Unreadable, message: str) -> None:
    engine = ProcessEngine(n_workers=1)
    engine.start(Player, policy)
    engine.submit(0, "count")
    with pytest.raises(RuntimeError, match=message):
        engine.get(timeout=60)


@pytest.mark.slow
def test_workers_see_only_whole_weights_while_others_are_published(engine: ProcessEngine) -> None:
    policy = nn.ParameterDict({name: nn.Parameter(torch.zeros(300_000)) for name in "ab"})
    engine.start(Player, policy)
    for version in range(1, 40):
        with torch.no_grad():
            for parameter in policy.values():
                parameter.fill_(version)
        engine.publish(policy.state_dict(), version)
        engine.submit(version % 2, "weights")
        if version > 10:
            done = engine.get()
            numbers = torch.cat(list(done.result.values())).unique().tolist()
            assert numbers == [done.version]
            assert done.version >= version - 10


class Interrupted:
    """What somebody interrupts while it is sent."""

    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


def test_weights_that_were_left_half_written_are_not_read(engine: ProcessEngine) -> None:
    engine.publish(make_policy().state_dict(), 1)
    assert engine.map([(0, "count", ())]) == [(0, 1, ())]
    with pytest.raises(KeyboardInterrupt):
        engine.publish({"a": torch.ones(3), "b": Interrupted()}, 2)  # type: ignore[dict-item]
    engine.submit(0, "count")
    engine.submit(1, "count")
    assert [engine.get().version for _ in range(2)] == [1, 1]


def test_nothing_is_left_behind(engine: ProcessEngine) -> None:
    def what_there_is() -> tuple[int, list[str], list[Any]]:
        gc.collect()
        used = shared_memory.used_by("self")
        names = sorted(name for name in shared_memory.names() if name.encode() in used)
        return len(os.listdir("/proc/self/fd")), names, multiprocessing.active_children()

    policy = make_policy()
    engine.map([(0, "count", ())])  # what the server and the heap of shared memory keep is there from now on
    engine.close()
    before, memory = what_there_is(), shared_memory.names()
    for round in range(4):
        engine.start(Player, policy)
        change(policy)
        engine.publish(policy.state_dict(), 1)
        engine.map([(player, "count", (torch.ones(100_000),)) for player in range(3)])
        if round == 1:
            kill(pids()[0])
        if round == 2:
            engine.submit(0, "kill_first", 1)
            engine.submit(1, "count", torch.ones(1_000_000))
            engine.get(timeout=60)
        if round == 3:
            engine.submit(0, "wrong")
            with pytest.raises(RuntimeError):
                engine.get(timeout=60)
        engine.close()
        assert what_there_is() == before
        until(lambda: not shared_memory.left(memory))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["error", "kill"])
def test_workers_end_with_the_main_process_however_it_ends(tmp_path: Path, how: str) -> None:
    script = tmp_path / "script.py"
    end = {"error": "1 / 0", "kill": "os.kill(os.getpid(), 9)"}[how]
    script.write_text(
        "import os\n"
        "from maze_pl.collect.engines import ProcessEngine\n"
        "from tests.collect.engines.players import Player\n"
        "def main():\n"
        "    engine = ProcessEngine(n_workers=2)\n"
        "    engine.start(Player, None)\n"
        "    print(*engine.map([(0, 'pid', ()), (1, 'pid', ())]), flush=True)\n"
        "    engine.submit(0, 'sleep', 1000.0)\n"
        f"    {end}\n"
        "if __name__ == '__main__':\n"
        "    main()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    before = shared_memory.names()
    result = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == {"error": 1, "kill": -9}[how], result.stderr
    found = [int(pid) for pid in result.stdout.split()]
    assert len(found) == 2
    until(lambda: not any(Path("/proc", str(pid)).exists() for pid in found))
    assert "leaked" not in result.stderr and "Exception ignored" not in result.stderr
    until(lambda: not shared_memory.left(before))


@pytest.mark.parametrize("name", ["n_workers", "max_replacements"])
def test_numbers_that_make_no_sense_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=-1 of ProcessEngine must be at least 0"):
        ProcessEngine(**{name: -1})
    for value in (1.5, "2", True):
        with pytest.raises(TypeError, match=rf"{name}={value!r} of ProcessEngine must be an integer"):
            ProcessEngine(**{name: value})  # type: ignore[arg-type]


def test_no_number_means_a_worker_for_each_core() -> None:
    assert ProcessEngine().n_workers == len(os.sched_getaffinity(0))

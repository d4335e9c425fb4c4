from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from maze_pl.system.time_limit import CallTimeoutError, place_of, time_limit


def hang() -> None:
    while True:
        time.sleep(0.01)


def test_a_call_that_does_not_return_is_interrupted_where_it_hangs() -> None:
    former = signal.getsignal(signal.SIGALRM)
    with (
        pytest.raises(
            CallTimeoutError, match=r"step has not returned within 0.05 s; it is at test_time_.*:\d+ in hang$"
        ),
        time_limit("step", 0.05),
    ):
        hang()
    assert signal.getsignal(signal.SIGALRM) is former
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_script_that_starts_everything_is_not_the_place_where_it_hangs() -> None:
    names = {"__name__": "__main__", "current": sys._getframe}
    exec(compile("def step():\n    return current()\nframes = [step(), current()]", "/bin/maze-pl", "exec"), names)
    inner, script = names["frames"]
    assert place_of(inner) == "maze-pl:2 in step"
    assert place_of(script).startswith("test_time_limit.py:")  # which calls it


def test_a_call_that_returns_in_time_leaves_no_alarm() -> None:
    with time_limit("step", 100.0):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0.0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_alarm_of_another_is_left_alone() -> None:
    former = signal.getsignal(signal.SIGALRM)
    try:
        with time_limit("step", 100.0):
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            signal.setitimer(signal.ITIMER_REAL, 50.0)
        assert 0.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 50.0
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, former)


def test_outside_of_the_main_thread_there_is_no_limit() -> None:
    ended = []

    def call() -> None:
        with time_limit("step", 0.01):
            time.sleep(0.03)
        ended.append(True)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert ended == [True]


@pytest.mark.slow
def test_a_call_that_never_returns_to_python_ends_the_process_with_its_stack() -> None:
    code = (
        "import ctypes\n"
        "from maze_pl.system import time_limit\n"
        "time_limit._SECONDS_TO_INTERRUPT = 0.5\n"
        "def stuck():\n"
        "    while True:\n"
        "        ctypes.PyDLL(None).sleep(1000)\n"
        "with time_limit.time_limit('step', 0.5):\n"
        "    ctypes.PyDLL(None).siginterrupt(14, 0)\n"
        "    stuck()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "in stuck" in result.stderr

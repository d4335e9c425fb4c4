"""What INT and TERM do before training, while it runs, and to processes that are being started."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from maze_pl.system.signals import MAIN_PROCESS_VARIABLE, StoppedBySignal, StopSignals, abandoned_after_signal

NUMBERS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_ends_what_has_nothing_to_keep_with_the_status_of_a_shell(
    number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(one) for one in NUMBERS]
    with pytest.raises(StoppedBySignal) as stopped, StopSignals():
        signal.raise_signal(number)
    assert stopped.value.code == 128 + number
    assert [signal.getsignal(one) for one in NUMBERS] == before
    error = capfd.readouterr().err
    assert error.startswith(f"maze-pl: stopped by {signal.Signals(number).name}")
    assert error.endswith("; nothing was trained: start the command again\n")


def test_a_command_that_does_not_train_says_only_that_it_was_stopped(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoppedBySignal), StopSignals(trains=False):
        signal.raise_signal(signal.SIGTERM)
    assert re.fullmatch(r"maze-pl: stopped by SIGTERM( at .*)?\n", capfd.readouterr().err)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_deferred_signal_is_noted_however_often_it_comes_at_once(number: int) -> None:
    with StopSignals(deferred=True) as signals:
        for _ in range(3):
            signal.raise_signal(number)
        assert signals.received == number


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_process_that_an_environment_forks_ends_by_term_and_not_by_int() -> None:
    with StopSignals(deferred=True):
        here, there = multiprocessing.Pipe()
        forked = multiprocessing.get_context("fork").Process(target=lambda: (there.send(None), time.sleep(60)))
        forked.start()
        here.recv()
    assert forked.pid is not None
    os.kill(forked.pid, signal.SIGINT)
    forked.join(0.2)
    assert forked.is_alive()
    forked.terminate()
    forked.join(30)
    assert forked.exitcode == -signal.SIGTERM


def test_signals_that_are_held_come_when_they_are_taken_and_not_before() -> None:
    with StopSignals(deferred=True) as signals:
        signals.hold()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # other threads of these tests hold nothing
        assert signals.received == 0
        code = "import signal; print(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert child.stdout == "True\n"  # a process that is started meanwhile holds them too
        signals.take()
        assert signals.received == signal.SIGTERM
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_copy_does_not_take_the_signals() -> None:
    with StopSignals(deferred=True) as signals:
        copy = pickle.loads(pickle.dumps(signals))
        signal.raise_signal(signal.SIGTERM)
        assert (signals.received, copy.received) == (signal.SIGTERM, 0)


SECOND = """
import os, signal, sys, time
from maze_pl.system.signals import StopSignals
with StopSignals(deferred=True):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1.1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_second_signal_ends_the_process_at_once() -> None:
    assert subprocess.run([sys.executable, "-c", SECOND], capture_output=True).returncode == -signal.SIGTERM


RANK = """
import os, subprocess, sys, time
from maze_pl.system.signals import follow_main_process
if follow_main_process():
    print(os.getpid(), flush=True)
    time.sleep(60)
subprocess.Popen([sys.executable, *sys.orig_argv[1:]], env={**os.environ, "LOCAL_RANK": "1"})
time.sleep(60)
"""


@pytest.mark.slow
def test_a_rank_that_was_launched_ends_with_the_process_that_launched_it() -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("LOCAL_RANK", MAIN_PROCESS_VARIABLE)
    }
    with subprocess.Popen([sys.executable, "-c", RANK], env=environment, stdout=subprocess.PIPE, text=True) as main:
        assert main.stdout is not None
        rank = int(main.stdout.readline())
        os.kill(rank, 0)
        main.kill()
        assert main.stdout.read() == ""  # which ends with the last process that has it open
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(rank, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("the rank still lives")


FAILURES = [
    (EOFError(), "EOFError"),
    (ValueError("of a user\nin lines"), "ValueError: of a user"),
    (
        RuntimeError("environment 0 failed: Traceback (most recent call last):\n  File\nOSError: gone\n"),
        "OSError: gone",
    ),
]


@pytest.mark.parametrize(("failure", "said"), FAILURES, ids=lambda value: type(value).__name__)
def test_an_error_after_a_deferred_signal_becomes_the_end_by_that_signal(failure: Exception, said: str) -> None:
    with StopSignals(deferred=True) as signals:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(StoppedBySignal) as stopped, abandoned_after_signal():
            raise failure
        assert stopped.value.code == 128 + signal.SIGTERM
        assert signals.has_interrupted and signals.failure == said


def test_an_error_just_before_the_signal_that_caused_it_becomes_the_end_by_that_signal() -> None:
    with StopSignals(deferred=True):
        later = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGTERM))
        with pytest.raises(StoppedBySignal), abandoned_after_signal():
            later.start()
            raise EOFError
        later.join()


def test_errors_without_a_signal_stay_as_they_are() -> None:
    for context in (contextlib.nullcontext(), StopSignals(deferred=True)):
        with pytest.raises(EOFError), context, abandoned_after_signal():
            raise EOFError

"""Worker processes: the environment variables that they have, and the time that they get to end."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maze_pl.system import worker_process
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from maze_pl.system.worker_process import WorkerProcess, dumps, end_workers, prepare_workers
from tests.system.drawing import Drawing
from tests.system.served import Served, explain

Start = Callable[..., WorkerProcess]


class Owner:
    """Whoever has the workers."""


@pytest.fixture
def workers() -> Iterator[list[WorkerProcess]]:
    """Workers that are ended after the test."""
    owner, started = Owner(), list[WorkerProcess]()
    prepare_workers(owner, started, [])
    yield started
    end_workers(started, 10.0)
    assert not multiprocessing.active_children()


@pytest.fixture
def start(workers: list[WorkerProcess]) -> Start:
    """Starts a worker that serves a `Served`, and waits until it is ready."""

    def start(*arguments: Any, long_jobs: bool = True, seed: int = 0, served: type = Served) -> WorkerProcess:
        make = dumps(partial(served, *arguments))
        workers.append(WorkerProcess(make, (), explain, "maze_pl-served", long_jobs, seed))
        assert workers[-1].receive() == ("ready", None)
        return workers[-1]

    return start


def answer(worker: WorkerProcess, method: str) -> Any:
    worker.send(method)
    return worker.receive()


@pytest.mark.parametrize("long_jobs", [True, False])
def test_workers_have_the_environment_variables_of_the_moment_at_which_they_start(
    start: Start, long_jobs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAZE_PL_TEST_PRICE", "1")
    monkeypatch.setenv("MAZE_PL_TEST_SHOP", "corner")
    assert answer(start(long_jobs=long_jobs), "variables") == ("result", dict(os.environ))
    monkeypatch.setenv("MAZE_PL_TEST_PRICE", "10")
    monkeypatch.delenv("MAZE_PL_TEST_SHOP")
    monkeypatch.setenv("MAZE_PL_TEST_NAME", "\udcff")  # bytes that are not UTF-8
    assert answer(start(long_jobs=long_jobs), "variables") == ("result", dict(os.environ))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(RUN_DIR_VARIABLE, "run")
    expected = {**os.environ, RUN_DIR_VARIABLE: str(tmp_path / "run")}
    assert answer(start(long_jobs=long_jobs), "variables") == ("result", expected)


BLAS_THREADS = """
import os
from maze_pl.system.worker_process import WorkerProcess, dumps, end_workers, prepare_workers
from tests.system.served import Served, explain
class Owner: pass
owner, workers, variables = Owner(), [], dict(os.environ)
prepare_workers(owner, workers, ["numpy"])
worker = WorkerProcess(dumps(Served), (), explain, "maze_pl-served", True, 0)
workers.append(worker)
assert worker.receive() == ("ready", None)
worker.send("blas_threads")
print(worker.receive()[1], dict(os.environ) == variables)
end_workers(workers, 10.0)
"""


@pytest.mark.parametrize(("chosen", "expected"), [(None, 1), ("2", 2)])
def test_numpy_uses_one_thread_in_workers_unless_the_environment_says_otherwise(
    chosen: str | None, expected: int
) -> None:
    if Served().blas_threads() is None:
        pytest.skip("NumPy has not come with OpenBLAS")
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment["OMP_NUM_THREADS"] = "2"  # chosen for updates
    environment |= {} if chosen is None else {"OPENBLAS_NUM_THREADS": chosen}
    command = [sys.executable, "-c", BLAS_THREADS]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == [str(min(expected, os.cpu_count() or 1)), "True"]


@pytest.mark.parametrize("long_jobs", [True, False])
def test_global_generators_are_seeded_before_the_object_is_made(start: Start, long_jobs: bool) -> None:
    for seed in (5, 2**31 - 1, 5):
        python, arrays = random.Random(seed), np.random.RandomState(seed)
        expected = [(python.random(), float(arrays.rand())) for _ in range(2)]
        assert answer(start(long_jobs=long_jobs, seed=seed, served=Drawing), "numbers") == ("result", expected)


def test_what_is_idle_has_time_to_close(
    start: Start,
    workers: list[WorkerProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(worker_process, "_SECONDS_TO_END", 0.01)
    for name in "ab":
        assert answer(start(0.3, tmp_path / name), "variables")[0] == "result"
    end_workers(workers)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert workers == [] and caplog.messages == []


@pytest.mark.parametrize("why", ["it is busy", "it failed", "another one is busy", "it takes too long"])
def test_what_does_not_end_in_time_is_killed_with_a_warning(
    why: str,
    start: Start,
    workers: list[WorkerProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    limit = "_SECONDS_TO_CLOSE" if why == "it takes too long" else "_SECONDS_TO_END"
    monkeypatch.setattr(worker_process, limit, 0.01)
    worker = start(1000.0, tmp_path / "closed")
    if why == "it is busy":
        worker.send("sleep")
    elif why == "it failed":
        assert answer(worker, "fail") == ("failed", "ArithmeticError('a mistake of the user')")
    elif why == "another one is busy":
        start().send("sleep")
    warnings = [
        f"maze_pl-served (process {one.process.pid}) did not end within 0.01 s and is killed; "
        "its environments may not have been closed"
        for one in workers
    ]
    end_workers(workers)
    assert not multiprocessing.active_children() and not (tmp_path / "closed").exists()
    assert caplog.messages == warnings

"""Worker processes that serve an object: start, messages and end.

They end whenever this process ends, in any way. Nothing is left behind: messages go through
sockets, and shared memory is unnamed before its first use.
"""

import contextlib
import io
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]

from maze_pl.system.atomic_files import RUN_DIR_VARIABLE, output_folder
from maze_pl.system.forked import end_if_forked
from maze_pl.system.global_generators import seed_global_generators

CONTEXT: Final = multiprocessing.get_context("forkserver")
"""Its `RawArray`s are unnamed shared memory, which is freed with the last process that uses it."""

_LOGGER: Final = logging.getLogger(__name__)
_BLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"  # read when NumPy is imported, which the fork server does
_PASSED_OVER: Final = (signal.SIGINT, signal.SIGTERM)
_SECONDS_TO_END: Final = 2.0  # after errors and signals
_SECONDS_TO_CLOSE: Final = 60.0  # for simulators that take long to shut down
_NO_GUARD: Final = (
    " before it was ready. Worker processes import the script that starts them: the likely cause is code that does not "
    'stand below `if __name__ == "__main__":`; otherwise see the output above'
)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles tensors as arrays: torch would send files, or all memory they are views of."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor or value.layout is not torch.strided:
            return super().reducer_override(value)
        dense = value.detach().cpu()
        dense = dense if dense.is_contiguous() else dense.clone()
        content = dense.as_strided((dense.numel(),), (1,)).view(torch.uint8).numpy()
        return _as_tensor, (content, value.dtype, tuple(dense.shape), dense.stride())


def _as_tensor(content: Any, dtype: Any, shape: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    import torch

    tensor = torch.from_numpy(content).view(dtype).as_strided(shape, stride)
    # Matrix products may depend on the usual alignment. Empty tensors would share an address with
    # others, and such tensors cannot be saved.
    return tensor if tensor.numel() and tensor.data_ptr() % 64 == 0 else tensor.clone()


def dumps(value: Any) -> bytes:
    """Pickle a value, including lambdas; tensors arrive on the CPU, and views without their base."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def _messages(connection: Connection) -> Iterator[Any]:
    """Yield messages as functions that unpickle them, and None when the other side has hung up."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            yield partial(pickle.loads, connection.recv_bytes())
    yield None


def prepare_workers(owner: object, workers: "Workers", preloaded: Iterable[str]) -> None:
    """Start the fork server, with INT and TERM blocked in it and in workers until they are ready.

    OpenBLAS, which most builds of NumPy multiply matrices with, has one thread in workers, unless
    the environment sets `OPENBLAS_NUM_THREADS`: otherwise each worker would use all cores.
    `OMP_NUM_THREADS` does not count, as with torch in workers: it is chosen for updates, or set for
    several ranks or seeds.

    Args:
        owner: When it is garbage-collected, or this process exits, the workers are ended.
        workers: Collection that the workers will be added to.
        preloaded: Modules to import once for all workers; without effect if the fork server already
            runs.
    """
    # Also at exit: multiprocessing would wait for the workers forever.
    Finalize(owner, end_workers, (workers, _SECONDS_TO_END), exitpriority=10)
    CONTEXT.set_forkserver_preload(list(preloaded))
    resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_OVER)
    is_set = _BLAS_THREADS in os.environ
    try:
        os.environ.setdefault(_BLAS_THREADS, "1")
        forkserver.ensure_running()
    finally:
        if not is_set:
            del os.environ[_BLAS_THREADS]
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _environment() -> dict[str, str]:
    """Return the present environment variables, with the absolute path of the run directory."""
    environment = dict(os.environ)
    if RUN_DIR_VARIABLE in environment:
        environment[RUN_DIR_VARIABLE] = str(output_folder("").absolute())
    return environment


def _work(
    connection: Connection,
    explain: Any,
    environment: dict[str, str],
    long_jobs: bool,
    seed: int,
    *shared: Any,
) -> None:
    """Make an object and call its methods until the other side hangs up.

    INT and TERM, which are sent to whole process groups, have no effect here: the parent ends this
    process when it is ready. They are handled and not ignored, since processes that an environment
    starts would inherit that and must end by these signals; processes that it forks still end by
    TERM.
    """
    process = os.getpid()
    for number in _PASSED_OVER:
        signal.signal(number, lambda number, _: end_if_forked(process, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_OVER)
    Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    served: Any = None
    pickled = dumps if long_jobs else pickle.dumps
    try:
        os.environ.clear()  # of the variables of the time at which the fork server was started
        os.environ.update(environment)
        make = connection.recv_bytes()
        read = _messages(connection).__next__  # returns None when the other side has hung up
        if long_jobs:  # a thread drains messages, so that the sender never blocks
            queue: SimpleQueue[Any] = SimpleQueue()
            Thread(target=deque, args=(map(queue.put, _messages(connection)), 0), daemon=True).start()
            read = queue.get
        maker = pickle.loads(make)
        # What it is made of is imported now. NumPy was imported by the fork server, and its state copied.
        seed_global_generators(seed)
        served = maker(*shared)
        connection.send_bytes(pickled(("ready", None)))
        for message in iter(read, None):
            method, arguments = message()
            # Not in a separate thread: the next call may change the arrays that are being sent.
            connection.send_bytes(pickled(("result", getattr(served, method)(*arguments))))
    except BaseException as error:
        with contextlib.suppress(OSError):  # the other side has hung up
            connection.send_bytes(pickled(("failed", explain(error))))
    finally:
        if served is not None:
            served.close()


def _end_with(parent: Any) -> None:
    """End this process when its parent has ended, even if an environment hangs."""
    wait([parent.sentinel])
    time.sleep(_SECONDS_TO_END)  # it ends by itself in this time, unless it is stuck
    os._exit(1)


class WorkerProcess:
    """A process that makes an object and calls its methods; `prepare_workers` must have been called.

    It has the environment variables that this process has when it starts it, and seeds its global
    generators before it makes the object.

    Args:
        make: Result of `dumps` for a callable that returns the object, which must have a method
            `close`.
        shared: Arguments of the callable: blocks of shared memory.
        explain: Module-level function that converts an exception to an exception or a text to send
            back.
        name: Name of the process.
        long_jobs: Whether calls are few and take long. Messages may then hold lambdas and tensors,
            and `send` never waits for previous calls. Otherwise the overhead of a call is minimal.
        seed: Seed of its global generators; see `seed_global_generators`.

    Attributes:
        process: The process.
        connection: Connection to the process.
        ends: Objects to wait for: when any of them is ready, `receive` does not block.
    """

    def __init__(self, make: bytes, shared: Iterable[Any], explain: Any, name: str, long_jobs: bool, seed: int) -> None:
        self._is_ready, self._dumps = False, dumps if long_jobs else pickle.dumps
        self._n_unanswered = 1  # the answer to `make` included
        self.connection, theirs = CONTEXT.Pipe()
        arguments = (theirs, explain, _environment(), long_jobs, seed, *shared)
        self.process = CONTEXT.Process(target=_work, args=arguments, name=name)
        self.process.start()
        self.ends: list[Any] = [self.connection, self.process.sentinel]
        self._messages = _messages(self.connection)
        theirs.close()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dead, as `receive` will report
            self.connection.send_bytes(make)

    @property
    def is_idle(self) -> bool:
        """True if it has answered everything, without an error."""
        return self._n_unanswered == 0

    def send(self, method: str, *arguments: Any) -> None:
        """Request a method call."""
        message = self._dumps((method, arguments))
        self._n_unanswered += 1
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(message)

    def receive(self, patience: Callable[[], float] | None = None) -> Any:
        """Wait for the next answer.

        Args:
            patience: Called repeatedly until there is an answer; returns the seconds to wait, and
                may raise to stop waiting. None waits without limit.

        Returns:
            Kind and content of the answer. `ready` comes once; then `result` with return values of
            methods, in order. `failed` has the result of `explain` for an exception, or describes
            how the process ended by itself before it was ready; `died` describes how it ended
            otherwise. Nothing follows these two.
        """
        ready = wait(self.ends, None if patience is None else patience())
        while not ready:
            ready = wait(self.ends, None if patience is None else patience())
        message = next(self._messages) if self.connection in ready else None
        if message is None:
            self.process.join(timeout=1)
            code = self.process.exitcode
            end = "its process hung up" if code is None else f"its process died with exit code {code}"
            return ("died", end) if self._is_ready or (code or 0) < 0 else ("failed", end + _NO_GUARD)
        self._is_ready = True
        kind, content = message()
        self._n_unanswered -= kind in ("ready", "result")
        return kind, content


Workers = list[WorkerProcess] | dict[WorkerProcess, Any]


def end_workers(workers: Workers, seconds: float | None = None) -> None:
    """End processes, gracefully first, then by killing them with a warning; clear the collection.

    Args:
        workers: The processes.
        seconds: Time that all of them have to close what they serve. None is a minute if all are
            idle, and 2 s if there was an error, or a call is abandoned.
    """
    if seconds is None:
        are_idle = all(worker.is_idle for worker in workers)
        seconds = _SECONDS_TO_CLOSE if are_idle else _SECONDS_TO_END
    for worker in workers:
        worker.connection.close()
    deadline = time.monotonic() + seconds
    for process in [worker.process for worker in workers]:
        process.join(timeout=max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            name = f"{process.name} (process {process.pid})"
            fault = f"{name} did not end within {seconds:g} s and is killed"
            _LOGGER.warning(f"{fault}; its environments may not have been closed")
            process.kill()
            process.join()
    workers.clear()

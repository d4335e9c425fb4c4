"""Processes that serve an object: how they start, what is exchanged with them, and how they end.

However this process ends, they end as well. Nothing is ever left behind: messages go through sockets, and shared memory
has no name by the time that anybody uses it.
"""

import contextlib
import io
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]

from maze_pl.core.forked import end_if_forked
from maze_pl.core.output_folder import RUN_DIR_VARIABLE, output_folder

CONTEXT: Final = multiprocessing.get_context("forkserver")
"""Its `RawArray`s are shared memory that has no name and ends with the last process that uses it."""

_PASSED_OVER: Final = (signal.SIGINT, signal.SIGTERM)
_SECONDS_TO_END: Final = 2.0
_NO_GUARD: Final = (
    " before it was ready. The likely cause: processes import the script that starts them, so what it does must stand "
    'below `if __name__ == "__main__":`; otherwise see what the process wrote above'
)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Takes tensors for arrays: torch would hand them over in files, or with all the memory that they are views of."""

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
    # Aligned as usual, since a product may depend on it; empty ones would lie where others do, which cannot be saved.
    return tensor if tensor.numel() and tensor.data_ptr() % 64 == 0 else tensor.clone()


def dumps(value: Any) -> bytes:
    """As `pickle.dumps`, but lambdas can be pickled, and tensors arrive on the CPU, without what they are views of."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def _messages(connection: Connection) -> Iterator[Any]:
    """Messages as they come, each to be called so that it is unpickled, and None when the other side has hung up."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            yield partial(pickle.loads, connection.recv_bytes())
    yield None


def prepare_workers(owner: object, workers: "Workers", preloaded: Iterable[str]) -> None:
    """Start the process that forks workers, so that INT and TERM do not reach it, nor what it forks too early.

    Args:
        owner: When it is gone, or this process exits, the workers are ended.
        workers: Those that there will be.
        preloaded: Modules that are imported for all of them; without effect if the process runs already.
    """
    # At exit, too: multiprocessing would wait for the workers for ever.
    Finalize(owner, end_workers, (workers,), exitpriority=10)
    CONTEXT.set_forkserver_preload(list(preloaded))
    resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_OVER)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _work(connection: Connection, explain: Any, run_dir: dict[str, str], long_jobs: bool, *shared: Any) -> None:
    """Make an object and call its methods until the other side hangs up.

    INT and TERM, which whole groups of processes get, are passed over: the parent will end this one when it is ready.
    They are not ignored, not even TERM by what an environment forks, since processes that it starts must end by them.
    """
    process = os.getpid()
    for number in _PASSED_OVER:
        signal.signal(number, lambda number, _: end_if_forked(process, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_OVER)
    Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    served, pickled = None, dumps if long_jobs else pickle.dumps
    try:
        os.environ.update(run_dir)  # the process that forks this one keeps the variables that it was started with
        make, read = connection.recv_bytes(), _messages(connection).__next__
        if long_jobs:  # takes what is sent out of the way of what sends it
            queue: SimpleQueue[Any] = SimpleQueue()
            Thread(target=deque, args=(map(queue.put, _messages(connection)), 0), daemon=True).start()
            read = queue.get
        served = pickle.loads(make)(*shared)
        connection.send_bytes(pickled(("ready", None)))
        for message in iter(read, None):
            method, arguments = message()
            # Not in a thread of its own: the next call may change the arrays that are being sent.
            connection.send_bytes(pickled(("result", getattr(served, method)(*arguments))))
    except BaseException as error:
        with contextlib.suppress(OSError):  # the other side has hung up
            connection.send_bytes(pickled(("failed", explain(error))))
    finally:
        if served is not None:
            served.close()


def _end_with(parent: Any) -> None:
    """End this process when its parent has ended, even if an environment does not return."""
    wait([parent.sentinel])
    time.sleep(_SECONDS_TO_END)  # in which it ends by itself, if it is not stuck
    os._exit(1)


class WorkerProcess:
    """A process that makes an object and calls its methods; `prepare_workers` must have been called.

    Args:
        make: What `dumps` made of a callable that returns the object, which must have a method `close`.
        shared: What the callable gets: blocks of shared memory.
        explain: Function of a module that makes of an exception what arrives here, an exception or a text.
        name: Name of the process.
        long_jobs: Whether it is asked for few things that take long: messages may hold lambdas and tensors then, and
            `send` never waits until the object has done what it was asked before. Otherwise a call costs the least.

    Attributes:
        process: The process.
        connection: Leads to it.
        ends: What to wait for: either of these tells that `receive` will not wait.
    """

    def __init__(self, make: bytes, shared: Iterable[Any], explain: Any, name: str, long_jobs: bool) -> None:
        self._is_ready, self._dumps = False, dumps if long_jobs else pickle.dumps
        self.connection, theirs = CONTEXT.Pipe()
        run_dir = {RUN_DIR_VARIABLE: str(output_folder("").absolute())} if RUN_DIR_VARIABLE in os.environ else {}
        self.process = CONTEXT.Process(target=_work, args=(theirs, explain, run_dir, long_jobs, *shared), name=name)
        self.process.start()
        self.ends: list[Any] = [self.connection, self.process.sentinel]
        self._messages = _messages(self.connection)
        theirs.close()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dead, as `receive` will tell
            self.connection.send_bytes(make)

    def send(self, method: str, *arguments: Any) -> None:
        """Ask for a method to be called."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(self._dumps((method, arguments)))

    def receive(self) -> Any:
        """Wait for the next answer.

        Returns:
            What it is, and its content: `ready`, once; then `result` for what a method returned, in order; `failed` for
            what `explain` made of an exception, or for how the process ended by itself before it was ready; `died` for
            how it ended otherwise. Nothing follows the last two.
        """
        message = next(self._messages) if self.connection in wait(self.ends) else None
        if message is None:
            self.process.join(timeout=1)
            code = self.process.exitcode
            end = "its process hung up" if code is None else f"its process died with exit code {code}"
            return ("died", end) if self._is_ready or (code or 0) < 0 else ("failed", end + _NO_GUARD)
        self._is_ready = True
        return message()


Workers = list[WorkerProcess] | dict[WorkerProcess, Any]


def end_workers(workers: Workers) -> None:
    """End processes, politely first, then not, and forget them."""
    for worker in workers:
        worker.connection.close()
    deadline = time.monotonic() + _SECONDS_TO_END
    for process in [worker.process for worker in workers]:
        process.join(timeout=max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
    workers.clear()

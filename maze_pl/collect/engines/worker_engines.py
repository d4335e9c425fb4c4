"""Actors in processes of this machine, or on the machines of a Ray cluster, which may come and go meanwhile.

Ray is imported when it is used.
"""

import contextlib
import os
import pickle
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from importlib import import_module, util
from multiprocessing.connection import wait
from typing import Any, BinaryIO, Final, cast

from torch import Tensor

from maze_pl.collect.engines.engine import Job, MakeActor, Outcome, WorkerEngine, WorkerHost, not_started
from maze_pl.core.output_folder import RUN_DIR_VARIABLE, output_folder
from maze_pl.core.worker_process import WorkerProcess, dumps, end_workers, prepare_workers
from maze_pl.envs.contract import portable_error

_PRELOADED: Final = ("maze_pl.collect.environment_actor", "maze_pl.agents", "maze_pl.perception")
_SECONDS_TO_ANSWER: Final = 10
_SECONDS_TO_END: Final = 2.0
_ASK: Final = (sys.executable, "-m", "ray.scripts.scripts", "health-check", "--skip-version-check", "--address")
# A node that did not answer for a second is dead; as Ray does it by itself, that takes up to 20.
_HEALTH: Final = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}


class _Worker(WorkerHost):
    """What a worker process serves: actors, whose policy has the latest weights when a job begins.

    Args:
        make_actor: As for `Host`.
        policy: As for `Host`.
        path: Of the file with the version of the weights, and the weights.
    """

    def __init__(self, make_actor: MakeActor, policy: Any, path: str) -> None:
        super().__init__(make_actor, policy)
        self._path = path

    def perform(self, job: Job) -> Any:
        """What the job returns, and the version of the weights."""
        with open(self._path, "rb") as file:
            version = pickle.load(file)
            if version != self.version:
                self.update(pickle.load(file), version)
        return super().perform(job), self.version


class ProcessEngine(WorkerEngine):
    """Actors work in other processes of this machine, which take the weights from memory that they share.

    That is a file in memory, which has no name, and which the next weights replace as a whole: a worker that opens it
    finds the former ones or these, whoever is interrupted or killed. Each worker uses one thread of torch.

    Args:
        n_workers: Number of processes, at most; 0 means one for each core.
        max_replacements: How often a process that died is replaced, over the whole run.
    """

    def __init__(self, n_workers: int = 0, max_replacements: int = 3) -> None:
        super().__init__(n_workers, max_replacements)
        self._n_workers = n_workers or len(os.sched_getaffinity(0))
        self._new, self._memory = not_started, cast(Any, None)

    def start(self, make_actor: MakeActor, policy: Any) -> None:
        """Get ready to work; see `Engine.start`."""
        self.close()
        prepare_workers(self, self._sent, _PRELOADED)
        self._memory = _file_in_memory(pickle.dumps(0))
        make = dumps(partial(_Worker, make_actor, policy, f"/proc/{os.getpid()}/fd/{self._memory.fileno()}"))
        self._new = partial(WorkerProcess, make, (), portable_error, "maze_pl-worker", long_jobs=True)

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Write the weights once, for all workers; see `Engine.publish`."""
        if self._memory is None:
            not_started()
        with _file_in_memory(pickle.dumps(version) + dumps(dict(weights))) as file:
            os.dup2(file.fileno(), self._memory.fileno(), inheritable=False)

    def _launch(self) -> Any:
        return self._new()

    def _send(self, worker: WorkerProcess, job: Job) -> None:
        worker.send("perform", job)

    def _receive(self, timeout: float | None) -> Outcome | None:
        ends: dict[Any, WorkerProcess] = {end: worker for worker in self._sent for end in worker.ends}
        worker = next((ends[end] for end in wait(list(ends), timeout)), None)
        if worker is None:
            raise TimeoutError(f"no job was finished in {timeout} s")
        self._sent[worker] = self._sent.pop(worker)  # next time the others are heard first
        kind, result = worker.receive()
        if kind == "died":
            end_workers([worker])
            return Outcome(worker, died=result)
        if kind == "failed":
            return Outcome(worker, result if isinstance(result, Exception) else RuntimeError(result))
        return Outcome(worker, *result) if kind == "result" else None

    def close(self) -> None:
        """End the processes; see `Engine.close`."""
        end_workers(self._sent)
        if self._memory is not None:
            self._memory.close()
        self._new, self._memory = not_started, None
        super().close()


def _file_in_memory(content: bytes) -> BinaryIO:
    file = open(os.memfd_create("maze_pl-weights"), "wb")  # noqa: SIM115, it may be open for as long as the engine
    file.write(content)
    file.flush()
    return file


def _ray() -> Any:
    if util.find_spec("ray") is None:
        raise ImportError('RayEngine needs Ray: pip install "maze-pl[ray]"')
    return import_module("ray")


class _Served(WorkerHost):
    """Holds the actors of a worker, and keeps its policy up to date."""

    def answer(self, job: bytes, weights: list[Any], version: int) -> bytes:
        """Do a job with these weights, the promise of which is in a list so that Ray does not fetch old ones again."""
        try:
            if version != self.version:
                self.update(pickle.loads(_ray().get(weights[0])), version)
            return dumps((self.perform(pickle.loads(job)), version))
        except Exception as error:
            portable = portable_error(error)
            return dumps((RuntimeError(portable) if isinstance(portable, str) else portable, version))

    def release(self, actor: int) -> bytes:
        """Close an actor that goes on elsewhere; its state, pickled since arrays that come from Ray are read-only."""
        released = self.actors.pop(actor, None)
        state = released.state_dict() if hasattr(released, "state_dict") else None
        if released is not None:
            released.close()
        return dumps(state)


def _worker() -> Any:
    """The class of processes of the cluster. It goes there by value, so that it can tell if maze_pl is not there."""

    class Worker:
        def __init__(self, serve: bytes, folders: list[str], run_dir: str) -> None:
            sys.path += [folder for folder in folders if folder not in sys.path]
            os.environ[RUN_DIR_VARIABLE] = run_dir
            self.serve, self.served = serve, None

        def call(self, method: str, *arguments: Any) -> Any:
            try:
                self.served = self.served or pickle.loads(self.serve)()
            except Exception as error:
                message = f"all nodes of the Ray cluster need the Python packages that this machine has: {error!r}"
                return pickle.dumps((ValueError(message), 0))
            return getattr(self.served, method)(*arguments)

    return Worker


class RayEngine(WorkerEngine):
    """Actors work on a Ray cluster, each worker in a process of its own.

    With `n_workers=0` there are as many workers as the cluster has room for. On a node that joins, new ones start and
    take over actors between two jobs, with their state; when a node dies, its actors begin anew on the others, which
    does not count as a replacement.

    Args:
        address: Where the cluster is, `host:port`, or `auto` for the one that this machine belongs to; if None, Ray is
            started on this machine, and ended by `close`.
        n_workers: Number of workers, at most; 0 for as many as the cluster has room for at the time.
        max_replacements: How often a worker that died is replaced, over the whole run.
    """

    def __init__(self, address: str | None = None, n_workers: int = 0, max_replacements: int = 3) -> None:
        if address not in (None, "auto") and ("/" in str(address) or not str(address).rpartition(":")[2].isdigit()):
            raise ValueError(f"address={address!r} must be `auto` or `host:port`, such as 10.0.0.1:6379")
        super().__init__(n_workers, max_replacements)
        self.address, self._room, self._looked = address, 0, 0.0
        self._new, self._put = not_started, not_started
        self._weights: tuple[list[Any], int] = [], 0
        self._promises: dict[Any, deque[Any]] = {}  # worker -> those of its jobs' results, in order
        self._undo = contextlib.ExitStack()

    @property
    def n_workers(self) -> int:
        """How many jobs are worked on at the same time, at most."""
        return self._n_workers or max(1, self._count_room())

    def _count_room(self) -> int:
        """How many workers fit on the nodes that there are, counted once a second."""
        if time.monotonic() > self._looked + 1 and _ray().is_initialized():
            cpus = [node["Resources"].get("CPU", 0) for node in _ray().nodes() if node["Alive"]]
            self._room, self._looked = sum(map(int, cpus)), time.monotonic()
        return self._room

    def start(self, make_actor: MakeActor, policy: Any) -> None:
        """Start Ray, or join the cluster; see `Engine.start`.

        Raises:
            ConnectionError: There is no cluster, or none of this version of Ray and Python.
            ValueError: There are fewer CPUs than the workers need.
        """
        self.close()
        if not _ray().is_initialized():
            self._join()
        if (room := self._count_room()) < max(1, self._n_workers):
            self.close()
            needs = f"n_workers={self._n_workers} with a CPU each"
            raise ValueError(f"{needs}: the Ray cluster has room for {room}; give 0 for as many as fit")
        self._put, remote = _ray().put, _ray().remote(num_cpus=1, max_restarts=0)(_worker()).remote
        serve = self._put(dumps(partial(_Served, make_actor, policy)))
        self._new = partial(remote, serve, sys.path, str(output_folder("").absolute()))

    def _join(self) -> None:
        where, former, options = self.address or "local", signal.getsignal(signal.SIGTERM), dict[str, Any]()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # whole groups get it: Ray has to stay
        try:
            if self.address is None:
                os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # or Ray keeps one in the home folder
                folder = tempfile.TemporaryDirectory(prefix="maze_pl-ray-", ignore_cleanup_errors=True)
                options = {"_temp_dir": self._undo.enter_context(folder), "_system_config": _HEALTH}
            else:  # Ray itself tries for a quarter of an hour, without looking up
                from pytorch_lightning.utilities import rank_zero_info

                rank_zero_info(f"joining the Ray cluster at {self.address}, if it answers in {_SECONDS_TO_ANSWER} s")
                subprocess.run([*_ASK, self.address], timeout=_SECONDS_TO_ANSWER, check=True, capture_output=True)
            self._undo.callback(_ray().shutdown)
            _ray().init(where, include_dashboard=False, logging_level="ERROR", **options)
        except Exception as error:
            self.close()
            said = getattr(error, "stderr", None)
            reason = said.decode().splitlines()[-1].rpartition("] ")[2] if said else error.__cause__ or error
            raise ConnectionError(f"cannot use the Ray cluster at {where}: {reason}") from error
        finally:
            if signal.getsignal(signal.SIGTERM) is not former:
                signal.signal(signal.SIGTERM, former)  # Ray would exit
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def close(self) -> None:
        """End all workers, leave the cluster, and end Ray if it was started here; see `Engine.close`."""
        super().close()
        if self._promises and _ray().is_initialized():
            closing = [worker.call.remote("close") for worker in self._promises]
            _ray().wait(closing, num_returns=len(closing), timeout=_SECONDS_TO_END)
        self._promises, self._weights, self._looked = {}, ([], 0), 0.0
        self._new, self._put = not_started, not_started
        self._undo.close()

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Put the weights into the cluster's store, from where each node takes them once; see `Engine.publish`."""
        self._weights = [self._put(dumps(dict(weights)))], version

    def submit(self, actor: int, method: str, *arguments: Any) -> None:
        """Send a job to the worker that holds the actor, or to a freer one that takes it over; see `Engine.submit`."""
        home, homes = self._homes.get(actor), list(self._homes.values())
        if home is None or homes.count(home) < 2 or any(job.actor == actor for job in self._sent[home]):
            return super().submit(actor, method, *arguments)
        freer, state = self._home(), None
        if homes.count(freer) < homes.count(home) - 1:
            with contextlib.suppress(_ray().exceptions.RayActorError):  # it is dead, as the next result tells
                state = pickle.loads(_ray().get(home.call.remote("release", actor)))
                self._homes[actor] = freer
        self._dispatch(Job(actor, self._restarts.get(actor, 0), method, arguments, state))

    def _launch(self) -> Any:
        if len(self._sent) >= self._count_room() > 0:
            return None
        worker = self._new()
        self._promises[worker] = deque()
        return worker

    def _send(self, worker: Any, job: Job) -> None:
        self._promises[worker].append(worker.call.remote("answer", dumps(job), *self._weights))

    def _receive(self, timeout: float | None) -> Outcome:
        first = {promises[0]: worker for worker, promises in self._promises.items() if promises}
        ready, _ = _ray().wait(list(first), timeout=timeout)
        if not ready:
            raise TimeoutError(f"no job was finished in {timeout} s")
        worker = first[ready[0]]
        try:
            result, version = pickle.loads(_ray().get(ready[0]))
        except _ray().exceptions.RayError as error:
            del self._promises[worker]  # with the last that knows it, which ends it if it only cannot be reached
            self._looked, text = 0.0, str(error).partition("\nThe actor never ran")[0]  # as it follows the reason
            how = text.splitlines()[-1].strip().partition(" Some common causes")[0]
            return Outcome(worker, died=how, counts="node was terminated" not in text and "node has died" not in text)
        self._promises[worker].popleft()
        return Outcome(worker, result, version)

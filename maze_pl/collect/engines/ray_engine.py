"""The engine that runs players on a Ray cluster."""

import contextlib
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from torch import Tensor

from maze_pl.collect.engines.engine import LOGGER, Job, MakePlayer, not_started
from maze_pl.collect.engines.worker_engine import Outcome, WorkerEngine, WorkerHost
from maze_pl.core.provenance import PROVENANCE_VARIABLE
from maze_pl.envs.contract import portable_error
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE, output_folder
from maze_pl.system.global_generators import seed_global_generators
from maze_pl.system.lost_process import LostProcessError
from maze_pl.system.ray_cluster import check_address, join_cluster, ray_module
from maze_pl.system.worker_process import dumps

_SECONDS_TO_END: Final = 2.0  # after errors and signals
_SECONDS_TO_CLOSE: Final = 60.0  # for simulators that take long to shut down


class _Served(WorkerHost):
    """Holds the players of a worker, and keeps its policy up to date.

    Args:
        make_player: As for `Host`.
        policy: As for `Host`.
        seed: Seed of the global generators of the worker.
    """

    def __init__(self, make_player: MakePlayer, policy: Any, seed: int) -> None:
        seed_global_generators(seed)
        super().__init__(make_player, policy)

    def answer(self, job: bytes, weights: list[Any], version: int) -> bytes:
        """Run a job; the weights' reference is in a list so that Ray does not fetch old ones."""
        try:
            if version != self.version:
                self.update(pickle.loads(ray_module().get(weights[0])), version)
            return dumps((self.perform(pickle.loads(job)), version))
        except Exception as error:
            if isinstance(error, LostProcessError):
                self.close()  # before this worker is killed
            portable = portable_error(error)
            result = RuntimeError(portable) if isinstance(portable, str) else portable
            return dumps((result, version))

    def release(self, player: int) -> bytes:
        """Close a player that moves; return its state, pickled as Ray's arrays are read-only."""
        released = self.players.pop(player, None)
        method = next((name for name in ("moving_state", "state_dict") if hasattr(released, name)), None)
        state = None if method is None else getattr(released, method)()
        if released is not None:
            released.close()
        return dumps(state)


def _worker() -> Any:
    """Class of worker processes, sent by value so that it can report a node without maze_pl."""

    class Worker:
        def __init__(self, serve: bytes, folders: list[str], variables: Any, seed: int) -> None:
            sys.path += [folder for folder in folders if folder not in sys.path]
            for name, value in variables.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            self.serve = serve
            self.seed = seed
            self.served: Any = None

        def call(self, method: str, *arguments: Any) -> Any:
            try:
                self.served = self.served or pickle.loads(self.serve)(self.seed)
            except Exception as error:
                needed = "all nodes of the Ray cluster need the Python packages that this machine has"
                return pickle.dumps((ValueError(f"{needed}: {error!r}"), 0))
            return getattr(self.served, method)(*arguments)

    return Worker


class RayEngine(WorkerEngine):
    """Runs players on a Ray cluster, with one process per worker.

    With `n_workers=0` there are as many workers as the cluster has room for. When a node joins, new
    workers start on it and take over players between two jobs, with their state. When a node dies,
    its players restart on the other nodes, which does not count as a replacement.

    Args:
        address: Address of the cluster as `host:port`, or `auto` for the cluster of this machine;
            if None, Ray is started on this machine, and stopped by `close`.
        n_workers: Maximum number of workers; 0 for as many as the cluster has room for at any time.
        max_replacements: Number of dead workers to replace, over the whole run.
        step_timeout: Seconds that an environment may take for a step, and for a reset; see
            `Engine`.
    """

    def __init__(
        self,
        address: str | None = None,
        n_workers: int = 0,
        max_replacements: int = 3,
        step_timeout: float | None = None,
    ) -> None:
        check_address(address)
        super().__init__(n_workers, max_replacements, step_timeout)
        self.address = address
        self._room = 0  # workers that fit on the nodes
        self._counted_at = 0.0  # time at which the room was last counted
        self._new = not_started  # starts a worker
        self._put = not_started  # puts an object into Ray's store
        self._weights: tuple[list[Any], int] = ([], 0)
        self._promises: dict[Any, deque[Any]] = {}  # worker -> references to its results, in order
        self._has_failed = False  # True if a job raised an error
        self._undo = contextlib.ExitStack()

    @property
    def n_workers(self) -> int:
        """Maximum number of concurrent jobs."""
        return self._n_workers or max(1, self._count_room())

    def _count_room(self) -> int:
        """Count the workers that fit on the nodes of the cluster, at most once a second."""
        if time.monotonic() > self._counted_at + 1 and ray_module().is_initialized():
            cpus = [node["Resources"].get("CPU", 0) for node in ray_module().nodes() if node["Alive"]]
            self._room = sum(map(int, cpus))
            self._counted_at = time.monotonic()
        return self._room

    def start(self, make_player: MakePlayer, policy: Any) -> None:
        """Start Ray, or join the cluster; see `Engine.start`.

        Raises:
            ConnectionError: There is no cluster, or it has another version of Ray or Python.
            ValueError: There are fewer CPUs than the workers need.
        """
        self.close()
        if not ray_module().is_initialized():
            try:
                join_cluster(self.address, self._undo)
            except ConnectionError:
                self.close()
                raise
        room = self._count_room()
        if room < max(1, self._n_workers):
            self.close()
            needs = f"n_workers={self._n_workers} with a CPU each"
            found = f"the Ray cluster has room for {room}"
            raise ValueError(f"{needs}: {found}; give 0 for as many as fit")
        self._put = ray_module().put
        serve = self._put(dumps(partial(_Served, make_player, policy)))
        worker_class = ray_module().remote(num_cpus=1, max_restarts=0)(_worker())
        # Ray's processes may be older than this run, and on other machines.
        variables = {
            RUN_DIR_VARIABLE: str(output_folder("").absolute()),
            PROVENANCE_VARIABLE: os.environ.get(PROVENANCE_VARIABLE),
        }
        self._new = partial(worker_class.remote, serve, sys.path, variables)

    def close(self) -> None:
        """End all workers and leave the cluster; stop Ray if started here. See `Engine.close`."""
        if self._promises and ray_module().is_initialized():
            self._close_players()
        super().close()
        self._promises = {}
        self._has_failed = False
        self._weights = ([], 0)
        self._counted_at = 0.0
        self._new = not_started
        self._put = not_started
        self._undo.close()

    def _close_players(self) -> None:
        """Let all workers close their players: within a minute, or 2 s if a job failed or is abandoned."""
        is_orderly = not self._has_failed and not any(self._promises.values())
        seconds = _SECONDS_TO_CLOSE if is_orderly else _SECONDS_TO_END
        closing = {worker.call.remote("close"): worker for worker in self._promises}
        _, late = ray_module().wait(list(closing), num_returns=len(closing), timeout=seconds)
        for reference in late:
            players = [player for player, home in self._homes.items() if home == closing[reference]]
            fault = f"the worker of players {players} did not end within {seconds:g} s"
            LOGGER.warning(f"{fault}; its environments may not have been closed")

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Put weights into Ray's object store; nodes fetch them once. See `Engine.publish`."""
        reference = self._put(dumps(dict(weights)))
        self._weights = ([reference], version)

    def submit(self, player: int, method: str, *arguments: Any) -> None:
        """Send a job to the player's worker, or first move the player to a less loaded one."""
        home: Any = self._homes.get(player)
        homes = list(self._homes.values())
        is_alone = home is None or homes.count(home) < 2
        if is_alone or any(job.player == player for job in self._sent[home]):
            return super().submit(player, method, *arguments)
        freer = self._home()
        state = None
        if homes.count(freer) < homes.count(home) - 1:
            # a worker that is dead is noticed with its next result
            with contextlib.suppress(ray_module().exceptions.RayActorError):
                state = pickle.loads(ray_module().get(home.call.remote("release", player)))
                self._homes[player] = freer
        self._dispatch(Job(player, self._restarts.get(player, 0), method, arguments, state))

    def launch(self) -> Any:
        """Start a worker if the nodes have room for one; otherwise return None."""
        if len(self._sent) >= self._count_room() > 0:
            return None
        worker = self._new(self.next_seed())
        self._promises[worker] = deque()
        return worker

    def send(self, worker: Any, job: Job) -> None:
        """Send a job with the latest weights to a worker."""
        self._promises[worker].append(worker.call.remote("answer", dumps(job), *self._weights))

    def receive(self, timeout: float | None) -> Outcome:
        """Wait for the next result of any worker; see `WorkerEngine.receive`."""
        first = {promises[0]: worker for worker, promises in self._promises.items() if promises}
        ready, _ = ray_module().wait(list(first), timeout=timeout)
        if not ready:
            raise TimeoutError(f"no job was finished in {timeout} s")
        worker = first[ready[0]]
        try:
            result, version = pickle.loads(ray_module().get(ready[0]))
        except ray_module().exceptions.RayError as error:
            # drops the last handle, which ends a worker that is only unreachable
            del self._promises[worker]
            self._counted_at = 0.0
            text = str(error).partition("\nThe actor never ran")[0]  # follows the cause
            how = text.splitlines()[-1].strip().partition(" Some common causes")[0]
            node_died = "node was terminated" in text or "node has died" in text
            return Outcome(worker, died=how, counts=not node_died)
        if isinstance(result, LostProcessError):
            del self._promises[worker]
            ray_module().kill(worker)
            return Outcome(worker, died=str(result))
        self._promises[worker].popleft()
        self._has_failed = self._has_failed or isinstance(result, Exception)
        return Outcome(worker, result, version)

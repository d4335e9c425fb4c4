"""Environments in processes of their own, for simulations that are worth more than the hand-over."""

import contextlib
import itertools
import math
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from threading import Thread
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.output_folder import RUN_DIR_VARIABLE, output_folder
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError, is_refusal
from maze_pl.envs.vector.sequential_vector_env import SequentialVectorEnv
from maze_pl.envs.vector.vector_env import Array, EnvFactory, History, Staging, StepExtras, VectorEnv

_CONTEXT: Final = "forkserver"
_PASSED_OVER: Final = (signal.SIGINT, signal.SIGTERM)
_SECONDS_TO_END: Final = 2.0
_NO_GUARD: Final = (
    " before its environments were made. The likely cause: processes import the script that starts them, so what it "
    'does must stand below `if __name__ == "__main__":`; otherwise see what the process wrote above'
)


def _as_array(memory: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return np.frombuffer(memory, dtype=dtype, count=math.prod(shape)).reshape(shape)


def _work(connection: Connection, pickled: bytes, blocks: list[Any], n_envs: int, start: int, stop: int) -> None:
    """Serve the environments `start` to `stop` until the other side hangs up."""
    _leave_signals_to_parent()
    parent = multiprocessing.parent_process()
    assert parent is not None
    Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    vector = None
    try:
        factories, spec, options, run_dir = cloudpickle.loads(pickled)
        if run_dir is not None:  # the process that forks this one keeps the variables that it was started with
            os.environ[RUN_DIR_VARIABLE] = run_dir
        memory = iter(blocks)
        staging = Staging(spec, n_envs, lambda shape, dtype: _as_array(next(memory), shape, dtype))
        vector = SequentialVectorEnv(factories, spec=spec, staging=staging.slice(start, stop), **options)
        connection.send((True, None))
        while True:
            method, arguments = connection.recv()
            connection.send((True, getattr(vector, method)(*arguments)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except BaseException as error:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # another process has failed before
            connection.send((False, EnvContractError(str(error)) if is_refusal(error) else traceback.format_exc()))
    finally:
        if vector is not None:
            vector.close()
        connection.close()


def _leave_signals_to_parent() -> None:
    """Pass over INT and TERM, which whole groups of processes get: the parent will end this one when it is ready.

    They are not ignored outright, since processes that an environment starts would then ignore them too.
    """
    for number in _PASSED_OVER:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_OVER)


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, even if an environment does not return."""
    wait([parent])
    time.sleep(_SECONDS_TO_END)  # in which it ends by itself, if it is not stuck
    os._exit(1)


def _start_server() -> None:
    """Start the process that forks the others so that INT and TERM do not reach it, nor what it forks too early."""
    resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_OVER)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _end_processes(connections: list[Connection], processes: list[Any]) -> None:
    """End processes: politely first, then not."""
    for connection in connections:
        connection.close()
    deadline = time.monotonic() + _SECONDS_TO_END
    for process in processes:
        process.join(timeout=max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


class SubprocVectorEnv(VectorEnv):
    """Steps its environments in several processes; observations and actions lie in shared memory.

    The results are those of `SequentialVectorEnv`, number for number.

    Args:
        env_factories: One callable without arguments for each environment; may be a lambda.
        first_env_index: Index of the first environment among those of all ranks.
        spec: What agents see and do; read from an environment made for the purpose if None.
        n_workers: Number of processes; 0 means one for each core, at most one for each environment.
        options: `seed`, `autoreset` and `seed_by_env` of `SequentialVectorEnv`.
    """

    def __init__(
        self,
        env_factories: Sequence[EnvFactory],
        *,
        first_env_index: int = 0,
        spec: Spec | None = None,
        n_workers: int = 0,
        **options: Any,
    ) -> None:
        if spec is None:
            probe = SequentialVectorEnv(env_factories[:1])
            spec = probe.spec
            probe.close()
        n_envs = len(env_factories)
        n_workers = min(n_envs, n_workers or len(os.sched_getaffinity(0)))
        context = multiprocessing.get_context(_CONTEXT)
        blocks: list[Any] = []

        def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
            blocks.append(context.RawArray("b", max(1, math.prod(shape) * dtype.itemsize)))
            return _as_array(blocks[-1], shape, dtype)

        super().__init__(spec, [{}] * n_envs, 0, first_env_index, Staging(spec, n_envs, allocate))
        bounds = np.linspace(0, n_envs, n_workers + 1).round().astype(int).tolist()
        self._slices = list(itertools.pairwise(bounds))
        self._connections: list[Connection] = []
        self._processes: list[Any] = []
        self._is_ready = False
        # At exit, too: multiprocessing would ask the processes by TERM, and wait for them for ever.
        self._end = Finalize(self, _end_processes, (self._connections, self._processes), exitpriority=10)
        context.set_forkserver_preload([__name__])
        _start_server()
        run_dir = os.environ.get(RUN_DIR_VARIABLE) and str(output_folder("").absolute())
        for start, stop in self._slices:
            options["first_env_index"] = first_env_index + start
            pickled = cloudpickle.dumps((list(env_factories[start:stop]), spec, options, run_dir))
            ours, theirs = context.Pipe()
            arguments = (theirs, pickled, blocks, n_envs, start, stop)
            process = context.Process(target=_work, args=arguments, daemon=True, name=f"maze_pl-envs-{start}-{stop}")
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)
        for worker in range(n_workers):
            self._receive(worker)
        self._is_ready = True

    def _receive(self, worker: int) -> Any:
        connection, process = self._connections[worker], self._processes[worker]
        try:
            if connection not in wait([connection, process.sentinel]):
                raise EOFError
            succeeded, result = connection.recv()
        except (EOFError, ConnectionResetError):
            process.join(timeout=1)
            end = "hung up" if process.exitcode is None else f"died with exit code {process.exitcode}"
            succeeded, result = False, f"its process {end}{'' if self._is_ready else _NO_GUARD}"
        if succeeded:
            return result
        self.close()
        if isinstance(result, EnvContractError):
            raise EnvContractError(str(result)) from result
        start, stop = self._slices[worker]
        raise RuntimeError(f"environments {start} to {stop - 1} failed: {result}")

    def _call(self, method: str, arguments: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call a method in several workers at once.

        Args:
            method: Its name.
            arguments: Worker -> what its method gets.

        Returns:
            Worker -> what its method returned.
        """
        for worker, given in arguments.items():
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dead, as is noticed below
                self._connections[worker].send((method, given))
        return {worker: self._receive(worker) for worker in arguments}

    def _everywhere(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method in all workers at once, with the same arguments."""
        return list(self._call(method, dict.fromkeys(range(len(self._slices)), arguments)).values())

    def _everyones(self, method: str) -> list[Any]:
        """What a method returns for each environment."""
        return list(itertools.chain.from_iterable(self._everywhere(method)))

    def _chosen(self, envs: Sequence[int] | None) -> dict[int, tuple[list[int] | None, list[int]]]:
        """Worker -> its own numbers of the chosen environments, and their places in `envs`."""
        if envs is None:
            return {worker: (None, list(range(*bounds))) for worker, bounds in enumerate(self._slices)}
        chosen: dict[int, tuple[list[int] | None, list[int]]] = {}
        for worker, (start, stop) in enumerate(self._slices):
            places = [place for place, n in enumerate(envs) if start <= n < stop]
            if places:
                chosen[worker] = [envs[place] - start for place in places], places
        return chosen

    def reset(self, envs: Sequence[int] | None = None, episodes: Sequence[int] | None = None) -> None:
        """Start new episodes; see `VectorEnv.reset`."""
        chosen = self._chosen(envs).items()
        self._call("reset", {worker: (own, episodes and [episodes[i] for i in at]) for worker, (own, at) in chosen})

    def step(self, envs: Sequence[int] | None = None) -> StepExtras:
        """Perform the staged actions; see `VectorEnv.step`."""
        arguments = {worker: (local,) for worker, (local, _) in self._chosen(envs).items()}
        extras = StepExtras([], [])
        for worker, part in self._call("step", arguments).items():
            start = self._slices[worker][0]
            extras.finals += [(start + n, key, agent, observation) for n, key, agent, observation in part.finals]
            extras.actor_rewards += [(start + n, rewards) for n, rewards in part.actor_rewards]
        return extras

    def drain_summaries(self) -> list[EpisodeSummary]:
        """Summaries of ended episodes; see `VectorEnv.drain_summaries`."""
        return self._everyones("drain_summaries")

    def episodes(self) -> list[int]:
        """Index of the episode that each environment is in."""
        return self._everyones("episodes")

    def shared_states(self) -> list[dict[str, Any]]:
        """What each environment's wrappers have learned; see `VectorEnv.shared_states`."""
        return self._everyones("shared_states")

    def merge_shared_states(self, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Merge what copies have learned; see `VectorEnv.merge_shared_states`."""
        return dict(self._call("merge_shared_states", {0: (list(states),)})[0])

    def load_shared_states(self, state: dict[str, Any], freeze: bool = False) -> None:
        """Distribute what was learned; see `VectorEnv.load_shared_states`."""
        self._everywhere("load_shared_states", state, freeze)

    def wrapper_states(self) -> list[dict[str, Any]]:
        """Whole state of each environment's wrappers; see `VectorEnv.wrapper_states`."""
        return self._everyones("wrapper_states")

    def replay(self, histories: Sequence[History], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Play episodes again up to where they were; see `VectorEnv.replay`."""
        parts = [(list(histories[start:stop]), list(wrapper_states[start:stop])) for start, stop in self._slices]
        self._call("replay", dict(enumerate(parts)))

    def close(self) -> None:
        """End the processes; safe to call twice."""
        self._end()

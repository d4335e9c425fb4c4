"""Environments in processes of their own, for simulations that are worth more than the hand-over."""

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from functools import partial, partialmethod
from typing import Any

import numpy as np

from maze_pl.core.spec import Spec
from maze_pl.core.worker_process import CONTEXT, WorkerProcess, dumps, end_workers, prepare_workers
from maze_pl.envs.contract import EnvContractError, portable_error
from maze_pl.envs.structured_env import Array
from maze_pl.envs.vector.sequential_vector_env import SequentialVectorEnv
from maze_pl.envs.vector.vector_env import MakeEnv, Staging, StepExtras, VectorEnv


def _as_array(memory: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)


def _part(factories: Any, spec: Spec, n_envs: int, start: int, options: dict[str, Any], *blocks: Any) -> VectorEnv:
    """Some of the environments, from number `start` on, in a process of their own."""
    memory = iter(blocks)
    staging = Staging(spec, n_envs, lambda shape, dtype: _as_array(next(memory), shape, dtype))
    return SequentialVectorEnv(factories, spec=spec, staging=staging.slice(start, start + len(factories)), **options)


class SubprocVectorEnv(VectorEnv):
    """Steps its environments in several processes; observations and actions lie in shared memory.

    The results are those of `SequentialVectorEnv`, number for number.

    Args:
        env_factories: One callable without arguments for each environment; may be a lambda.
        spec: What agents see and do; read from an environment made for the purpose if None.
        n_workers: Number of processes; 0 means one for each core, at most one for each environment.
        options: `seed`, `first_env_index`, `autoreset` and `seed_by_env` of `SequentialVectorEnv`.
    """

    def __init__(
        self, env_factories: Sequence[MakeEnv], *, spec: Spec | None = None, n_workers: int = 0, **options: Any
    ) -> None:
        if spec is None:
            probe = SequentialVectorEnv(env_factories[:1])
            spec = probe.spec
            probe.close()
        n_envs, first_env_index = len(env_factories), options.get("first_env_index", 0)
        n_workers = min(n_envs, n_workers or len(os.sched_getaffinity(0)))
        blocks: list[Any] = []

        def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
            blocks.append(CONTEXT.RawArray("b", max(1, math.prod(shape) * dtype.itemsize)))
            return _as_array(blocks[-1], shape, dtype)

        super().__init__(spec, [{}] * n_envs, 0, first_env_index, Staging(spec, n_envs, allocate))
        self._slices = list(itertools.pairwise(round(n_envs * n / n_workers) for n in range(n_workers + 1)))
        self._workers: list[WorkerProcess] = []
        prepare_workers(self, self._workers, [__name__])
        for start, stop in self._slices:
            own = {**options, "first_env_index": first_env_index + start}
            make = dumps(partial(_part, env_factories[start:stop], spec, n_envs, start, own))
            self._workers.append(WorkerProcess(make, blocks, portable_error, f"maze_pl-envs-{start}-{stop}", False))
        self._all = range(n_workers)
        for number in self._all:
            self._receive(number)

    def _receive(self, worker: int) -> Any:
        kind, result = self._workers[worker].receive()
        if kind in ("ready", "result"):
            return result
        self.close()
        if isinstance(result, EnvContractError):
            raise result
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
            self._workers[worker].send(method, *given)
        return {worker: self._receive(worker) for worker in arguments}

    def _everyones(self, method: str) -> list[Any]:
        """What a method returns for each environment."""
        return [one for part in self._call(method, dict.fromkeys(self._all, ())).values() for one in part]

    def _chosen(self, envs: Sequence[int] | None) -> dict[int, tuple[list[int] | None, list[int]]]:
        """Worker -> its own numbers of the chosen environments, and their places in `envs`."""
        if envs is None:
            return {worker: (None, list(range(*bounds))) for worker, bounds in enumerate(self._slices)}
        chosen: dict[int, tuple[list[int] | None, list[int]]] = {}
        for worker, (start, stop) in enumerate(self._slices):
            if places := [place for place, n in enumerate(envs) if start <= n < stop]:
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

    def load_shared_states(self, state: dict[str, Any], freeze: bool = False) -> None:
        """Distribute what was learned; see `VectorEnv.load_shared_states`."""
        self._call("load_shared_states", dict.fromkeys(self._all, (state, freeze)))

    def replay(self, histories: Sequence[dict[str, Any]], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Play episodes again up to where they were; see `VectorEnv.replay`."""
        parts = [(list(histories[start:stop]), list(wrapper_states[start:stop])) for start, stop in self._slices]
        self._call("replay", dict(enumerate(parts)))

    def close(self) -> None:
        """End the processes; safe to call twice."""
        end_workers(self._workers)


# As `VectorEnv` describes them.
for _method in ("drain_summaries", "episodes", "histories", "shared_states", "wrapper_states"):
    setattr(SubprocVectorEnv, _method, partialmethod(SubprocVectorEnv._everyones, _method))

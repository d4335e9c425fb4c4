"""Vector environment in worker processes, for simulations that cost more than communication."""

import faulthandler
import itertools
import math
import os
import pickle
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from maze_pl.core.checks import check_seconds
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError, name_of, portable_error
from maze_pl.envs.structured_env import Array
from maze_pl.envs.vector.episode_seeding import EpisodeSeeding
from maze_pl.envs.vector.replayed_vector_env import ReplayedVectorEnv
from maze_pl.envs.vector.sequential_vector_env import SequentialVectorEnv
from maze_pl.envs.vector.step_clock import StepClock
from maze_pl.envs.vector.vector_env import AttributedRewards, MakeEnv, Numbers, Staging, StepExtras, VectorEnv, listed
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.system.global_generators import global_seed
from maze_pl.system.lost_process import LostProcessError
from maze_pl.system.time_limit import seconds_to_make, time_limit_to_make
from maze_pl.system.worker_process import (
    CONTEXT,
    WorkerProcess,
    dumps,
    end_workers,
    prepare_workers,
)


def _as_array(memory: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)


T = TypeVar("T")
_SHOW_STACK: Final = signal.SIGUSR1
_SECONDS_TO_SHOW: Final = 0.2
_LOOKS_PER_LIMIT: Final = 8  # while no step or reset is running
_MOST_OF_AN_ACTION: Final = 200


class _Part(SequentialVectorEnv):
    """Share of the environments that lives in one worker process."""

    def packed_of_each(self, function: bytes, envs: Sequence[int] | None) -> bytes:
        """Return the results of `of_each`, pickled so that they may be of any class."""
        return dumps(self.of_each(pickle.loads(function), envs))


def _part(
    factories: Any,
    spec: Spec,
    n_envs: int,
    start: int,
    place: int | None,
    options: dict[str, Any],
    *blocks: Any,
) -> VectorEnv:
    """Make the environments of one worker.

    Args:
        factories: Makes each of them.
        spec: Observation and action spaces of the agents.
        n_envs: Number of environments of all workers.
        start: Number of the first one of this worker.
        place: Position of their clock; None if there is no time limit.
        options: Further arguments of `SequentialVectorEnv`.
        blocks: Shared memory of the staging, and of the clocks if there is a time limit.
    """
    memory = iter(blocks)
    staging = Staging(spec, n_envs, lambda shape, dtype: _as_array(next(memory), shape, dtype))
    own = {**options, "spec": spec, "staging": staging.slice(start, start + len(factories))}
    if place is not None:
        clocks = np.frombuffer(next(memory), np.float64).reshape(-1, StepClock.N_FIELDS)
        own["clock"] = StepClock(clocks[place])
        faulthandler.register(_SHOW_STACK, file=2, all_threads=False)  # works without the GIL
    return _Part(factories, **own)


class SubprocVectorEnv(ReplayedVectorEnv):
    """Steps its environments in several processes; observations and actions lie in shared memory.

    The results are identical to those of `SequentialVectorEnv`. If a process dies, or an
    environment takes longer than `step_timeout` for a step or a reset, or too long to be made, all
    processes are ended and a `LostProcessError` is raised; engines then make new environments.

    Args:
        env_factories: One callable without arguments for each environment; may be a lambda.
        spec: Observation and action spaces of the agents; read from a temporary environment if
            None.
        n_workers: Number of processes; 0 means one for each core, at most one for each environment.
        step_timeout: Seconds that an environment may take for a step or a reset; no limit if None.
            Making an environment may take as long, but at least 60 s.
        options: `seed`, `first_env_index`, `autoreset`, `seed_by_env`, `n_same_starts`, `episode_seeds` and
            `check` of `SequentialVectorEnv`.
    """

    def __init__(
        self,
        env_factories: Sequence[MakeEnv],
        *,
        spec: Spec | None = None,
        n_workers: int = 0,
        step_timeout: float | None = None,
        **options: Any,
    ) -> None:
        check_seconds("step_timeout", step_timeout, f" of {type(self).__name__}")
        if spec is None:
            with time_limit_to_make(step_timeout):
                probe = SequentialVectorEnv(env_factories[:1])
            spec = probe.spec
            probe.close()
        n_envs, first_env_index = len(env_factories), options.get("first_env_index", 0)
        n_workers = min(n_envs, n_workers or len(os.sched_getaffinity(0)))
        blocks: list[Any] = []

        def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
            blocks.append(CONTEXT.RawArray("b", max(1, math.prod(shape) * dtype.itemsize)))
            return _as_array(blocks[-1], shape, dtype)

        names = [field.name for field in fields(EpisodeSeeding)]
        self._seeding = EpisodeSeeding(**{name: options[name] for name in names if name in options})
        super().__init__(spec, n_envs, self._seeding.seed, first_env_index, Staging(spec, n_envs, allocate))
        self._slices = list(itertools.pairwise(round(n_envs * n / n_workers) for n in range(n_workers + 1)))
        self._workers: list[WorkerProcess] = []
        self.step_timeout = step_timeout
        if step_timeout is not None:
            clocks = allocate((n_workers, StepClock.N_FIELDS), np.dtype(np.float64))
            clocks[:, 0] = math.inf
            self._clocks = [StepClock(fields) for fields in clocks]
        prepare_workers(self, self._workers, [__name__])
        for number in range(n_workers):
            self._start(number, env_factories, blocks, options)
        self._all = range(n_workers)
        for number in self._all:
            self._receive(number)
        self._names = self.of_each(name_of) if step_timeout is not None else []

    def _start(
        self, worker: int, env_factories: Sequence[MakeEnv], blocks: list[Any], options: Mapping[str, Any]
    ) -> None:
        """Start the process of a worker, which makes its environments.

        Args:
            worker: Number of the worker.
            env_factories: Makes the environments of all workers.
            blocks: Shared memory; see `_part`.
            options: Further arguments of `SequentialVectorEnv`.
        """
        start, stop = self._slices[worker]
        own = {**options, "first_env_index": self.first_env_index + start}
        clock: int | None = None
        if self.step_timeout is not None:
            clock = worker
            self._clocks[clock].begin(0, StepClock.MAKING)  # includes what the worker imports
        make = dumps(partial(_part, env_factories[start:stop], self.spec, self.n_envs, start, clock, own))
        name = f"maze_pl-envs-{start}-{stop}"
        seed = derive_seed(*global_seed(), "environments", self.seed, self.first_env_index + start)
        self._workers.append(WorkerProcess(make, blocks, portable_error, name, False, seed))

    def _receive(self, worker: int) -> Any:
        """Return the answer of a worker.

        Raises:
            EnvContractError: An environment broke its contract.
            LostProcessError: The process has died, or an environment has taken too long.
            RuntimeError: An environment failed otherwise. All processes are ended after any of these.
        """
        patience = None if self.step_timeout is None else partial(self._patience, worker, self.step_timeout)
        kind, result = self._workers[worker].receive(patience)
        if kind in ("ready", "result"):
            return result
        self.close()
        if isinstance(result, EnvContractError):
            raise result
        start, stop = (self.first_env_index + bound for bound in self._slices[worker])
        fault = f"environments {start} to {stop - 1} failed: {result}"
        raise LostProcessError(fault) if kind == "died" else RuntimeError(fault)

    def _patience(self, worker: int, limit: float) -> float:
        """Return how many more seconds to wait for an answer.

        Raises:
            LostProcessError: An environment has taken too long; all processes were ended.
        """
        began, env, episode, is_reset = self._clocks[worker].read()
        if began == math.inf:
            return limit / _LOOKS_PER_LIMIT
        if episode == StepClock.MAKING:
            limit = seconds_to_make(limit)
        left = began + limit - time.monotonic()
        if left > 0:
            return left
        process = self._workers[worker].process
        if process.pid is not None:
            os.kill(process.pid, _SHOW_STACK)
            time.sleep(_SECONDS_TO_SHOW)
        process.kill()
        self.close()
        raise LostProcessError(self._told(self._slices[worker][0] + env, episode, is_reset))

    def _told(self, n: int, episode: int, is_reset: bool) -> str:
        """Return the message on an environment that took too long."""
        index = self.first_env_index + n
        if episode == StepClock.MAKING:
            limit = seconds_to_make(self.step_timeout or 0.0)
            return f"environment {index} was not made within {limit:g} s; its process was ended"
        what = f"{'a reset' if is_reset else 'a step'} within step_timeout={self.step_timeout} s"
        if episode == StepClock.NO_EPISODE:
            where = "while its wrappers estimated their statistics"
        else:
            where = f"in episode {episode} with seed {self._seeding.seed_of(index, episode)}"
            if not is_reset:
                key = self.spec.step_keys[self.staging.next_key[n]]
                action = {head: values[n].tolist() for head, values in self.staging.action[key].items()}
                where += f", after action {str(action)[:_MOST_OF_AN_ACTION]} of sub-step {key!r}"
        return f"environment {index} ({self._names[n]}) did not finish {what} {where}; its process was ended"

    def _call(self, method: str, arguments: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call a method in several workers at once.

        Args:
            method: Name of the method.
            arguments: Worker -> arguments of the method.

        Returns:
            Worker -> result of the method.
        """
        for worker, of_worker in arguments.items():
            self._workers[worker].send(method, *of_worker)
        return {worker: self._receive(worker) for worker in arguments}

    def _everyones(self, method: str) -> list[Any]:
        """Return the results of a method for all environments."""
        results: list[Any] = []
        for part in self._call(method, dict.fromkeys(self._all, ())).values():
            results += part
        return results

    def _chosen(self, envs: Numbers | None) -> dict[int, tuple[list[int] | None, list[int]]]:
        """Return worker -> its chosen environments' local numbers and positions in `envs`."""
        if envs is None:
            return {worker: (None, list(range(*bounds))) for worker, bounds in enumerate(self._slices)}
        envs = listed(envs)
        chosen: dict[int, tuple[list[int] | None, list[int]]] = {}
        for worker, (start, stop) in enumerate(self._slices):
            if places := [place for place, n in enumerate(envs) if start <= n < stop]:
                chosen[worker] = [envs[place] - start for place in places], places
        return chosen

    def reset(self, envs: Numbers | None = None, episodes: Numbers | None = None) -> None:
        """Start new episodes; see `VectorEnv.reset`."""
        arguments: dict[int, tuple[Any, ...]] = {}
        starting = None if episodes is None else listed(episodes)
        for worker, (local, places) in self._chosen(envs).items():
            of_worker = None if starting is None else [starting[place] for place in places]
            arguments[worker] = (local, of_worker)
        self._call("reset", arguments)

    def step(self, envs: Numbers | None = None) -> StepExtras:
        """Perform the staged actions; see `VectorEnv.step`."""
        arguments = {worker: (local,) for worker, (local, _) in self._chosen(envs).items()}
        extras = StepExtras([])
        attributed: dict[int, Array] = {}
        for worker, part in self._call("step", arguments).items():
            start = self._slices[worker][0]
            for group in part.finals:
                group.envs += start
                extras.finals.append(group)
            if part.actor_rewards is not None:
                attributed.update(part.actor_rewards.by_env(start))
            extras.done_actors.update({start + n: actors for n, actors in part.done_actors.items()})
        extras.actor_rewards = AttributedRewards.joined(attributed) if attributed else None
        return extras

    def drain_summaries(self) -> list[EpisodeSummary]:
        """Return summaries of episodes that ended; see `VectorEnv.drain_summaries`."""
        return self._everyones("drain_summaries")

    def shared_states(self) -> list[dict[str, Any]]:
        """Return the wrappers' statistics; see `VectorEnv.shared_states`."""
        return self._everyones("shared_states")

    def wrapper_states(self) -> list[dict[str, Any]]:
        """Return the wrappers' full states; see `ReplayedVectorEnv.wrapper_states`."""
        return self._everyones("wrapper_states")

    def episodes(self) -> list[int]:
        """Return the index of each environment's current episode."""
        return self._everyones("episodes")

    def episode_rewards(self) -> list[float]:
        """Return the sums of the running episodes' rewards; see `ReplayedVectorEnv.episode_rewards`."""
        return self._everyones("episode_rewards")

    def histories(self) -> list[dict[str, Any]]:
        """Return the acts of the running episodes; see `ReplayedVectorEnv.histories`."""
        return self._everyones("histories")

    def of_each(self, function: Callable[[LogStatsWrapper], T], envs: Sequence[int] | None = None) -> list[T]:
        """Call a function with environments; see `LocalVectorEnv.of_each`."""
        chosen, packed = self._chosen(envs), dumps(function)
        answers = self._call("packed_of_each", {worker: (packed, local) for worker, (local, _) in chosen.items()})
        results: dict[int, T] = {}
        for worker, answer in answers.items():
            results.update(zip(chosen[worker][1], pickle.loads(answer), strict=True))
        return [results[place] for place in sorted(results)]

    def estimate(self, n_samples: int, seed: int, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Let wrappers estimate their statistics; see `LocalVectorEnv.estimate`."""
        statistics: dict[str, Any] = self._call("estimate", {0: (n_samples, seed, known)})[0]
        return statistics

    def load_shared_states(self, state: dict[str, Any], freeze: bool = False) -> None:
        """Load statistics into all wrappers; see `VectorEnv.load_shared_states`."""
        self._call("load_shared_states", dict.fromkeys(self._all, (state, freeze)))

    def write_pending(self) -> list[str]:
        """Write all records and logs; see `VectorEnv.write_pending`."""
        return list(dict.fromkeys(self._everyones("write_pending")))

    def reset_wrappers(self) -> None:
        """Bring all wrappers back to their first state; see `VectorEnv.reset_wrappers`."""
        self._call("reset_wrappers", dict.fromkeys(self._all, ()))

    def replay(self, histories: Sequence[dict[str, Any]], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Replay episodes; see `ReplayedVectorEnv.replay`."""
        parts = [(list(histories[start:stop]), list(wrapper_states[start:stop])) for start, stop in self._slices]
        self._call("replay", dict(enumerate(parts)))

    def close(self) -> None:
        """End the processes; safe to call twice."""
        end_workers(self._workers)

"""Data module of asynchronous actors: they collect continuously, and a queue limits the age of rollouts."""

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch

from maze_pl.collect.engines import InProcessEngine
from maze_pl.collect.engines.engine import Done, Engine
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.checks import check_count
from maze_pl.datamodules.completed_statistics import require_rebasing
from maze_pl.datamodules.environment_maker import Env
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator
from maze_pl.datamodules.rollouts import RolloutDataModule


class ActorDataModule(RolloutDataModule):
    """Asynchronous actors, each with environments, which collect while the algorithm learns.

    A batch joins rollouts of several actors. On engines with workers, enough rollouts are under way
    or waiting to keep each actor busy while the queue is full. Actors are asked in turn, and their
    rollouts are learned from in that order, however long each of them takes. So the lag of a
    rollout (the number of updates between the weights that it began with and the update that learns
    from it) is at most `queue_out_of_sync_factor + num_actors / actors_batch_size`. The queue waits
    for a slow actor.

    In this process nothing is collected ahead of time: the lag is 0, runs with the same seed are
    identical, and resumed ones continue exactly. With workers, rollouts under way are finished
    before a checkpoint is written or an evaluation played; a resumed run continues with the
    environments as they are after these rollouts, and does not learn from them.

    Rollouts have the log-probabilities of their acts under the policy that acted, and measure
    `lag`, `lag_max` and `queue_fill`: the mean and the largest lag in a batch, and the fill level
    of the queue when the batch was requested.

    Args:
        env: Builds one environment; a plain gymnasium environment is adapted.
        wrappers: Callables that wrap the environment, the first one innermost.
        num_actors: Actors on each rank; 0 means one per core, but not more than the queue can serve.
        actors_batch_size: Rollouts per batch.
        queue_out_of_sync_factor: Size of the queue, in batches.
        n_envs_per_actor: Environments of each actor, which share one call of the policy. With an array
            environment, one actor with many environments is much faster than many actors.
        n_shards: Must be 0, as each actor is a shard; `runner/local` and `runner/ray` set it.
        n_rollout_steps: Env steps of each environment in a rollout, without those that a wrapper skips.
        vectorization: `sequential` steps the environments in the process in which the policy acts,
            `subprocess` in separate processes; `native` uses the vector entry point of a gymnasium environment.
        epoch_length: Batches per epoch; evaluation follows each epoch.
        on_nondeterminism: Reaction, on resuming, to an episode that does not reach the same state
            when it is replayed, or that an error has ended: `restart` with a new one and a message,
            or `refuse`.
        evaluators: Evaluators by name; None means one named `eval`, an empty dict means none.
        seed: Seed of the run; None takes the seed of `seed_everything`.
        action_masks: Action head -> observation that is 1 where an action is allowed, else 0; adds
            to the masks that the environment declares itself.
        max_agents: Maximum number of agents at the same time, for sub-steps whose number of agents varies.
        n_normalization_samples: Observations from which wrappers estimate their statistics.
        engine: Steps the environments and runs the policy; None means in this process, where nothing
            is collected ahead of time.
        check: Validation of environment returns in each step, `fast` or `full`; see
            `SequentialVectorEnv`.

    Raises:
        ValueError: A number is out of range, or there are more actors than the queue has room for.
        TypeError: When training on workers begins: a wrapper that merges statistics does not define
            `rebase_shared_state`.
    """

    batch_type: ClassVar[type] = Rollout

    def __init__(
        self,
        env: Callable[[], Env],
        wrappers: list[Callable[[Any], Env]] | None = None,
        num_actors: int = 8,
        actors_batch_size: int = 8,
        queue_out_of_sync_factor: int = 1,
        n_envs_per_actor: int = 1,
        n_shards: int = 0,
        n_rollout_steps: int = 100,
        vectorization: Literal["sequential", "subprocess", "native"] = "sequential",
        epoch_length: int = 25,
        on_nondeterminism: Literal["restart", "refuse"] = "restart",
        evaluators: dict[str, RolloutEvaluator] | None = None,
        seed: int | None = None,
        action_masks: dict[str, str] | None = None,
        max_agents: dict[StepKey, int] | None = None,
        n_normalization_samples: int = 1000,
        engine: Engine | None = None,
        check: Literal["fast", "full"] = "fast",
    ) -> None:
        check_count("num_actors", num_actors, 0)
        check_count("actors_batch_size", actors_batch_size, 1)
        check_count("queue_out_of_sync_factor", queue_out_of_sync_factor, 1)
        queue_size = queue_out_of_sync_factor * actors_batch_size
        num_actors = num_actors or min(len(os.sched_getaffinity(0)), queue_size)
        check_count("n_envs_per_actor", n_envs_per_actor, 1)
        if n_shards != 0:
            raise ValueError(f"n_shards={n_shards} must be 0: each of the num_actors={num_actors} actors is a shard")
        super().__init__(
            env,
            wrappers,
            n_envs=num_actors * n_envs_per_actor,
            n_shards=num_actors,
            n_rollout_steps=n_rollout_steps,
            vectorization=vectorization,
            epoch_length=epoch_length,
            on_nondeterminism=on_nondeterminism,
            evaluators=evaluators,
            seed=seed,
            action_masks=action_masks,
            max_agents=max_agents,
            n_normalization_samples=n_normalization_samples,
            engine=engine,
            check=check,
        )
        self.num_actors, self.actors_batch_size = num_actors, actors_batch_size
        self.n_envs_per_actor = n_envs_per_actor
        self.queue_size = queue_size
        if num_actors > queue_size:
            fault = f"num_actors={num_actors} are more actors than the queue can serve, with room for {queue_size}"
            raise ValueError(f"{fault} rollouts: use fewer, or a larger queue_out_of_sync_factor or actors_batch_size")
        self._next_actor = 0
        self._asked: deque[int] = deque()  # actors whose rollouts are not yet learned from, in order
        self._waiting: dict[int, deque[Done]] = defaultdict(deque)  # actor -> finished rollouts

    @property
    def env_steps_per_rollout(self) -> int:
        """Environment steps of a batch of rollouts on each rank."""
        return self.actors_batch_size * self.n_envs_per_actor * self.n_rollout_steps

    def setup(self, stage: str) -> None:
        """Prepare as `RolloutDataModule` does; refuse wrappers that workers cannot have."""
        super().setup(stage)
        if stage == "fit" and not isinstance(self.engine, InProcessEngine):
            place = f"{type(self).__name__} on a {type(self.engine).__name__}"
            require_rebasing(self._environments.description.wrappers, place)

    def _collect(self, policy: Any = None) -> Rollout:
        """Return a batch of rollouts; workers collect more in the meantime."""
        began = time.perf_counter()
        if not self._has_begun and self._restored is None:
            self._next_actor = 0
        wrapper_statistics, given = self._prepared()
        if policy is not None:
            given = policy
        n_asked = self.actors_batch_size
        if not isinstance(self.engine, InProcessEngine):
            self._receive_finished()
            # Actors that wait hold finished rollouts beyond the queue.
            n_asked = self.queue_size + self.num_actors
        fill = min(1.0, self._n_waiting / self.queue_size)
        while len(self._asked) < n_asked:
            arguments = wrapper_statistics, given, True  # with log-probabilities
            self.engine.submit(self._next_actor, "collect", *arguments)
            self._asked.append(self._next_actor)
            self._next_actor = (self._next_actor + 1) % self.num_actors
        actors = [self._asked.popleft() for _ in range(self.actors_batch_size)]
        batch = [self._take(actor) for actor in actors]
        rollout = self._joined([one.result for one in batch], began)
        if actors != list(range(self.num_actors)):
            rollout.env_index = self._env_index(actors)
        lags = [self._players.version - one.version for one in batch]
        rollout.measures = {"lag": sum(lags) / len(lags), "lag_max": max(lags), "queue_fill": fill}
        return rollout

    def _env_index(self, actors: list[int]) -> torch.Tensor:
        """Return the numbers of the environments of some actors, [N] int64, on the host."""
        return torch.cat([torch.tensor(self._shards[actor]) for actor in actors])

    def _joined(self, parts: list[Any], began: float) -> Rollout:
        """Concatenate what actors have collected, and add their statistics to the current ones.

        Actors began with earlier statistics, which the current ones include: only the increment
        counts.
        """
        current = self._statistics.states or {}
        rebased = []
        for rollout, states in parts:
            rebased.append((rollout, [self._rebased(state, current) for state in states]))
        return super()._joined(rebased, began)

    def _rebased(self, states: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
        """Return wrapper statistics of an environment as if it had begun with the current ones."""
        wrappers = self._environments.description.wrappers
        rebased = {}
        for name, statistics in current.items():
            rebased[name] = wrappers[name].rebase_shared_state(states[name], statistics)
        return rebased

    @property
    def _merges_on_device(self) -> bool:
        """False, as statistics are rebased on what was merged since an actor began."""
        return False

    def _take(self, actor: int) -> Done:
        """Return the next rollout of an actor, waiting for it if necessary."""
        while not self._waiting[actor]:
            self._receive()
        return self._waiting[actor].popleft()

    def _receive_finished(self) -> None:
        """Receive the rollouts that are finished, without waiting for others."""
        is_received = True
        while is_received:
            is_received = self._receive(timeout=0.0)

    def _receive(self, timeout: float | None = None) -> bool:
        """Wait for a rollout of any actor; False if none is finished within a number of seconds."""
        with self._closed_on_failure():
            try:
                done = self.engine.get(timeout)
            except TimeoutError:
                if timeout is None:
                    raise
                return False
        if isinstance(self.engine, InProcessEngine) and self.actors_batch_size > self.num_actors:
            rollout, states = done.result
            done.result = rollout.clone(), states  # before the same actor collects the next one
        self._waiting[done.player].append(done)
        return True

    @property
    def _n_waiting(self) -> int:
        """Number of finished rollouts that are not yet learned from."""
        return sum(map(len, self._waiting.values()))

    def _ask(self, jobs: list[tuple[int, str, tuple[Any, ...]]]) -> list[Any]:
        """Return the actors' answers, once their rollouts under way are finished and kept."""
        self._players.require_current(self.engine)
        while self._n_waiting < len(self._asked):
            self._receive()
        return super()._ask(jobs)

    def _states(self) -> list[Any] | None:
        """State of each actor; a run that resumes does not learn from what was collected ahead, and episodes go on."""
        states = super()._states()
        for actor in set(self._asked):
            state = states[actor] if states else None
            if state and "starting" in state:
                state["starting"] = torch.ones_like(state["starting"])
        return states

    def _close(self) -> None:
        super()._close()
        self._asked.clear()
        self._waiting.clear()

    def state_dict(self) -> dict[str, Any]:
        """State as of `RolloutDataModule`, and the number of the next actor."""
        return super().state_dict() | {"next_actor": self._next_actor}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the next batch where `state_dict` was taken."""
        super().load_state_dict(state_dict)
        self._next_actor = state_dict["next_actor"] % self.num_actors

"""The data module of IMPALA: actors collect all the time; a bounded queue keeps what they bring from getting old."""

import contextlib
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from maze_pl.collect.engines import InProcessEngine
from maze_pl.collect.engines.engine import Done
from maze_pl.core.rollout import Rollout
from maze_pl.datamodules.environments import Env
from maze_pl.datamodules.rollout import RolloutDataModule
from maze_pl.datamodules.rollout_evaluator import require_count


class ActorDataModule(RolloutDataModule):
    """Actors with an environment each, which collect while the algorithm learns; a batch is what some of them brought.

    On engines with workers, so many rollouts are under way or waiting that each actor can be at one while the queue is
    full. Actors are asked in turn, and what they bring is learned from in that order, however long each of them takes.
    So the lag of a rollout, which is the number of updates between the weights that it began with and the update that
    learns from it, is at most `queue_out_of_sync_factor + num_actors / actors_batch_size`. A slow actor is waited for.

    In this process nothing is collected ahead of time: the lag is 0, runs with the same seed are the same, and resumed
    ones go on exactly. With workers, what they have begun is finished before a checkpoint is written or an evaluation
    played; a run that is resumed goes on with the environments after that, and does not learn from it.

    Rollouts have the log-probabilities of their acts under the policy that acted, and measure `lag`, `lag_max` and
    `queue_fill`: the mean and the largest lag in a batch, and how full the queue was when it was asked for.

    Args:
        env: Builds one environment; a bare gymnasium environment is adapted.
        wrappers: Wrap it, the first one innermost.
        num_actors: Actors of each rank.
        actors_batch_size: Rollouts in a batch.
        queue_out_of_sync_factor: Size of the queue, in batches.
        n_shards: 0, as each actor is a shard of its own; `runner/local` and `runner/ray` say so.
        options: Those of `RolloutDataModule`, without `n_envs`.

    Raises:
        ValueError: A number is out of range, or there are more actors than the queue has room for.
    """

    def __init__(
        self,
        env: Callable[[], Env],
        wrappers: list[Callable[[Env], Env]] | None = None,
        num_actors: int = 8,
        actors_batch_size: int = 8,
        queue_out_of_sync_factor: int = 1,
        n_shards: int = 0,
        **options: Any,
    ) -> None:
        for name in ("num_actors", "actors_batch_size", "queue_out_of_sync_factor"):
            require_count(name, locals()[name], 1)
        super().__init__(env, wrappers, n_envs=num_actors, n_shards=n_shards, **options)
        self.num_actors, self.actors_batch_size = num_actors, actors_batch_size
        self.queue_size = queue_out_of_sync_factor * actors_batch_size
        if self.n_shards != num_actors:
            raise ValueError(f"n_shards={n_shards} must be 0: each of the num_actors={num_actors} actors is a shard")
        if num_actors > self.queue_size:
            fault = f"num_actors={num_actors} are more actors than the queue can serve, with room for {self.queue_size}"
            raise ValueError(f"{fault} rollouts: use fewer, or a larger queue_out_of_sync_factor or actors_batch_size")
        self._next_actor = 0
        self._asked: deque[int] = deque()  # actors whose rollouts were not learned from yet, in order
        self._waiting: dict[int, deque[Done]] = defaultdict(deque)  # by actor, what is finished

    def _collect(self, policy: Any = None) -> Rollout:
        """A batch of rollouts; where there are workers, more are collected meanwhile."""
        began, is_here = time.perf_counter(), isinstance(self.engine, InProcessEngine)
        if not self._has_begun and self._restored is None:
            self._next_actor = 0
        shared, given = self._prepared()
        with contextlib.suppress(TimeoutError):  # take in what is finished
            while not is_here:
                self._receive(timeout=0.0)
        # more than the queue holds are finished if the actors wait, too
        n_asked, fill = self.queue_size + self.num_actors, min(1.0, self._n_waiting / self.queue_size)
        while len(self._asked) < (self.actors_batch_size if is_here else n_asked):
            self.engine.submit(self._next_actor, "collect", shared, given if policy is None else policy, True)
            self._asked.append(self._next_actor)
            self._next_actor = (self._next_actor + 1) % self.num_actors
        batch = [self._take(self._asked.popleft()) for _ in range(self.actors_batch_size)]
        rollout = self._joined([one.result for one in batch], began)
        lags = [self._version - one.version for one in batch]
        rollout.measures = {"lag": sum(lags) / len(lags), "lag_max": max(lags), "queue_fill": fill}
        return rollout

    def _joined(self, parts: list[Any], began: float) -> Rollout:
        """What actors have collected; what their wrappers have seen is added to what is known now.

        They began with what was known then, which is a part of that: only what came after it counts.
        """
        known = {name: {"base": own["base"]} for name, own in (self._shared or {}).items() if "base" in own}
        told = [[{n: own | known.get(n, {}) for n, own in one.items()} for one in states] for _, states in parts]
        return super()._joined([(part, states) for (part, _), states in zip(parts, told, strict=True)], began)

    def _take(self, actor: int) -> Done:
        """The next rollout of an actor."""
        while not self._waiting[actor]:
            self._receive()
        return self._waiting[actor].popleft()

    def _receive(self, timeout: float | None = None) -> None:
        """Wait for a rollout of any actor."""
        done = self.engine.get(timeout)
        if isinstance(self.engine, InProcessEngine) and self.actors_batch_size > self.num_actors:
            done.result = done.result[0].clone(), done.result[1]  # before the same actor collects the next one
        self._waiting[done.actor].append(done)

    @property
    def _n_waiting(self) -> int:
        """How many rollouts are finished and were not learned from."""
        return sum(map(len, self._waiting.values()))

    def _ask(self, jobs: list[tuple[int, str, tuple[Any, ...]]]) -> list[Any]:
        """What actors answer, after they have finished what they are at; that is kept."""
        while self._n_waiting < len(self._asked):
            self._receive()
        return super()._ask(jobs)

    def _close(self) -> None:
        super()._close()
        self._asked.clear()
        self._waiting.clear()

    def state_dict(self) -> dict[str, Any]:
        """State of the environments and wrappers, see `RolloutDataModule`, and whose turn it is."""
        return super().state_dict() | {"next_actor": self._next_actor}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the next batch where `state_dict` was taken."""
        super().load_state_dict(state_dict)
        self._next_actor = state_dict["next_actor"] % self.num_actors

"""The data module of on-policy algorithms: its batches are rollouts of the policy that is being trained."""

import itertools
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from pytorch_lightning.utilities import rank_zero_info

from maze_pl.collect.environment_actor import EnvironmentActor
from maze_pl.core.ranks import gather_objects
from maze_pl.core.rollout import Rollout
from maze_pl.datamodules.environments import Env, EnvironmentDataModule, Source
from maze_pl.datamodules.rollout_evaluator import require_count


class RolloutDataModule(EnvironmentDataModule):
    """Owns the environments: collects rollouts for training and plays episodes for evaluation.

    Args:
        env: Builds one environment; a bare gymnasium environment is adapted.
        wrappers: Wrap it, the first one innermost.
        n_envs: Environments of each rank that play at the same time; 0 means one for each core.
        n_rollout_steps: Environment steps of each environment in a rollout.
        vectorization: Whether environments live in the process in which the policy acts (`sequential`), or in processes
            of their own (`subprocess`).
        epoch_length: Rollouts of an epoch, which is followed by evaluation.
        evaluators: Evaluators by name; a single one named `eval` if None, and none at all if empty.
        seed: Seed of the run; that of `seed_everything` if None.
        action_masks: Action head -> observation whose nonzero entries are allowed, beyond what the environment
            declares itself.
        max_agents: For sub-steps whose number of agents changes, how many may be alive at once.
        n_normalization_samples: Observations from which wrappers estimate their statistics.
        on_nondeterminism: What happens on resuming to an episode that does not come out where it was when it is
            played again: `restart` it with a message, or `refuse`.
        n_shards: Into how many groups the environments are dealt that collect independently of each other, each with
            random numbers of its own; 0 means one for each environment. It decides which numbers come out, and how
            many workers of an engine can be of use. One is the fastest where everything is in this process.
        engine: Where environments are stepped and the policy acts: in this process if None. It decides nothing about
            the numbers that come out.

    Raises:
        ValueError: A number is out of range, or options contradict each other.
    """

    def __init__(
        self,
        env: Callable[[], Env],
        wrappers: list[Callable[[Env], Env]] | None = None,
        n_envs: int = 0,
        n_rollout_steps: int = 100,
        vectorization: Literal["sequential", "subprocess"] = "sequential",
        epoch_length: int = 25,
        on_nondeterminism: Literal["restart", "refuse"] = "restart",
        n_shards: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(env, wrappers, **options)
        for name, count, least in (("n_envs", n_envs, 0), ("n_shards", n_shards, 0), ("epoch_length", epoch_length, 1)):
            require_count(name, count, least)
        require_count("n_rollout_steps", n_rollout_steps, 1)
        if vectorization not in ("sequential", "subprocess"):
            raise ValueError(f"vectorization={vectorization!r} must be 'sequential' or 'subprocess'")
        if on_nondeterminism not in ("restart", "refuse"):
            raise ValueError(f"on_nondeterminism={on_nondeterminism!r} must be 'restart' or 'refuse'")
        self.n_envs = n_envs or len(os.sched_getaffinity(0))
        self.n_shards = n_shards or self.n_envs
        if self.n_shards > self.n_envs:
            raise ValueError(f"n_shards={n_shards} must be at most n_envs={self.n_envs}, as each has an environment")
        self.n_rollout_steps, self.vectorization, self.epoch_length = n_rollout_steps, vectorization, epoch_length
        self.on_nondeterminism = on_nondeterminism
        self._ended: list[Any] | None = None  # state of the environments when the last fit ended
        self._restored: dict[str, Any] | None = None

    # ------------------------------------------------------------------------------------------------- hooks

    def setup(self, stage: str) -> None:
        """Forget the checkpoint of a former run; that of this one is restored after this hook."""
        super().setup(stage)
        self._restored, self._ended = None, None if stage == "fit" else self._ended

    def train_dataloader(self) -> Source[Any]:
        """Rollouts, collected when asked for."""
        return Source(self._collect, self.epoch_length)

    def teardown(self, stage: str) -> None:
        """End the environments; their state is kept for checkpoints that are written later."""
        self._ended = self._states()
        super().teardown(stage)

    # ------------------------------------------------------------------------------------------------ training

    def _make_actor(self) -> Callable[..., EnvironmentActor]:
        first, make = self._rank * self.n_envs, partial(self._vector, seed=self.seed)
        training = [make(len(envs), first_env_index=first + envs.start) for envs in self._shards]
        states = [state for rank in (self._restored or {}).get("ranks", []) for state in rank if state]
        begun = [episode for state in states for episode in state.get("episodes", [])]
        options = {"training": training, "first_episode": max(begun, default=-1) + 1}  # none that was played before
        return partial(super()._make_actor(), n_rollout_steps=self.n_rollout_steps, **options)

    @property
    def _shards(self) -> list[range]:
        """Numbers of the environments of each shard."""
        bounds = [round(self.n_envs * shard / self.n_shards) for shard in range(self.n_shards + 1)]
        return [range(*pair) for pair in itertools.pairwise(bounds)]

    def _collect(self, policy: Any = None) -> Rollout:
        """Collect a rollout with a policy, with that of the module in training if None."""
        began = time.perf_counter()
        shared, given = self._prepared()
        parts = self._ask(
            [(shard, "collect", (shared, given if policy is None else policy)) for shard in range(self.n_shards)]
        )
        return self._joined(parts, began)

    def _prepared(self) -> tuple[dict[str, Any], Any]:
        """What actors are told before they collect: what wrappers have learned, and the policy if they need it."""
        self._refuse_foreign_checkpoint()
        shared, given = self._learned(), self._engage(self._policy())
        restored, self._restored, self._has_begun = self._restored, None, True
        if restored is not None:
            self._restore(restored)
        return shared, given

    def _joined(self, parts: list[Any], began: float) -> Rollout:
        """What actors have collected, of whose wrappers this data module learns."""
        rollout, shared = Rollout.concatenated([part for part, _ in parts]), self._shared
        if shared:  # bring together what the wrappers of all environments on all ranks have learned
            ranks, kinds = gather_objects([state for _, states in parts for state in states]), self._wrappers
            states = [state for rank in ranks for state in rank]
            self._shared = {name: kinds[name].merge_shared_states([one[name] for one in states]) for name in shared}
        rollout.seconds = time.perf_counter() - began
        return rollout

    def _restore(self, restored: dict[str, Any]) -> None:
        """Bring the environments to where a checkpoint left them."""
        if restored["layout"] != self._layout:
            then, now = "{} ranks with {} environments in {} shards each", "{} ranks with {} in {}"
            said = f"environments start new episodes: the checkpoint was written by {then}, this run has {now}"
            return rank_zero_info(said.format(*restored["layout"], *self._layout))
        jobs = [(n, "load_state_dict", (state,)) for n, state in enumerate(restored["ranks"][self._rank]) if state]
        answers = zip(jobs, self._ask(jobs), strict=True)
        strayed = [self._shards[shard][n] for (shard, *_), numbers in answers for n in numbers]
        if strayed:
            reason = "are not deterministic: played again, their episodes did not come out where they had been"
            message = f"environments {strayed} of rank {self._rank} {reason}"
            if self.on_nondeterminism == "refuse":
                raise ValueError(message + "; on_nondeterminism=restart starts new episodes instead")
            rank_zero_info(message + "; they start new episodes")

    # -------------------------------------------------------------------------------------------------- state

    @property
    def _layout(self) -> list[int]:
        return [self._world_size, self.n_envs, self.n_shards]

    def _states(self) -> list[Any] | None:
        """State of each shard, now or when the last fit ended."""
        if not self._has_begun:
            return self._ended
        return self._ask([(shard, "state_dict", ()) for shard in range(self.n_shards)])

    def state_dict(self) -> dict[str, Any]:
        """State of the environments of all ranks and of what wrappers have learned; every rank must call it."""
        if not self._has_begun and self._restored is not None:
            return self._restored  # nothing has happened since
        own, states = super().state_dict(), self._states()
        return own if states is None else own | {"ranks": gather_objects(states), "layout": self._layout}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the next rollout where `state_dict` was taken."""
        super().load_state_dict(state_dict)
        self._restored = state_dict if "ranks" in state_dict else None

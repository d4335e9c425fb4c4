"""Data module of on-policy algorithms: its batches are rollouts of the policy in training."""

import itertools
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final, Literal

from pytorch_lightning.utilities import rank_zero_info

from maze_pl.collect.engines.engine import Engine
from maze_pl.collect.engines.in_process_engine import InProcessEngine
from maze_pl.collect.replay.placement import can_be_written
from maze_pl.collect.rollout_worker import RolloutWorker
from maze_pl.collect.tensors.host_policy import why_on_host
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.checks import check_count, check_room_for_environments
from maze_pl.core.run_starts import is_first_fit
from maze_pl.datamodules.environment_maker import Env
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator
from maze_pl.datamodules.shard_states import cost_of_long_episodes, first_new_episode
from maze_pl.datamodules.source import Source
from maze_pl.envs.no_tensor_form_error import NoTensorFormError
from maze_pl.envs.tensor_forms import merging_wrappers
from maze_pl.events.event_log_ends import EVENT_LOG_ENDS
from maze_pl.system.ranks import gather_objects

_LOGGER: Final = logging.getLogger(__name__)
_N_STARTS: Final = "n_starts"
"""Key in the state of a data module: how often a resumed run had to start new episodes."""
_EPISODES_OF_A_START: Final = 2**48
_LAYOUT: Final = ("ranks", "n_envs", "n_shards")


class RolloutDataModule(EnvironmentDataModule):
    """Owns the environments: collects rollouts for training and plays episodes for evaluation.

    Args:
        env: Builds one environment; a plain gymnasium environment is adapted.
        wrappers: Callables that wrap the environment, the first one innermost.
        n_envs: Parallel environments of each rank; 0 means one per core.
        n_rollout_steps: Env steps of each environment in a rollout, without those that a wrapper skips.
        vectorization: `sequential` steps the environments in the process in which the policy acts,
            `subprocess` in separate processes; `native` uses the vector entry point of a gymnasium environment.
        epoch_length: Rollouts per epoch; evaluation follows each epoch.
        evaluators: Evaluators by name; None means one named `eval`, an empty dict means none.
        seed: Seed of the run; None takes the seed of `seed_everything`.
        action_masks: Action head -> observation that is 1 where an action is allowed, else 0; adds
            to the masks that the environment declares itself.
        max_agents: Maximum number of agents at the same time, for sub-steps whose number of agents varies.
        n_normalization_samples: Observations from which wrappers estimate their statistics.
        on_nondeterminism: Reaction, on resuming, to an episode that does not reach the same state
            when it is replayed, or that an error has ended: `restart` with a new one and a message,
            or `refuse`.
        check: Validation of environment returns in each step: `fast`, or `full`, which is slower
            and also finds values outside of their spaces.
        n_shards: Number of groups of environments that collect independently, each with its own
            random numbers; 0 means one per environment. It affects results, and limits how many
            workers of an engine are useful. One is the fastest if everything is in this process.
        engine: Steps the environments and runs the policy; None means in this process. Results do not depend on it.
        n_same_starts: Number of consecutive environments that play each start, for a baseline that
            compares them. With several, each rollout begins with new episodes, and episodes that
            have not ended when it is full are dropped: choose `n_rollout_steps` to hold whole ones.

    Raises:
        ValueError: A number is out of range, or options contradict each other.
    """

    batch_type: ClassVar[type] = Rollout

    def __init__(
        self,
        env: Callable[[], Env],
        wrappers: list[Callable[[Any], Env]] | None = None,
        n_envs: int = 0,
        n_rollout_steps: int = 100,
        vectorization: Literal["sequential", "subprocess", "native"] = "sequential",
        epoch_length: int = 25,
        on_nondeterminism: Literal["restart", "refuse"] = "restart",
        n_shards: int = 1,
        evaluators: dict[str, RolloutEvaluator] | None = None,
        seed: int | None = None,
        action_masks: dict[str, str] | None = None,
        max_agents: dict[StepKey, int] | None = None,
        n_normalization_samples: int = 1000,
        engine: Engine | None = None,
        check: Literal["fast", "full"] = "fast",
        n_same_starts: int = 1,
    ) -> None:
        super().__init__(
            env,
            wrappers,
            evaluators=evaluators,
            seed=seed,
            action_masks=action_masks,
            max_agents=max_agents,
            n_normalization_samples=n_normalization_samples,
            engine=engine,
            check=check,
        )
        check_count("n_envs", n_envs, 0)
        check_count("n_shards", n_shards, 0)
        check_count("epoch_length", epoch_length, 1)
        check_count("n_rollout_steps", n_rollout_steps, 1)
        if vectorization not in ("sequential", "subprocess", "native"):
            raise ValueError(f"vectorization={vectorization!r} must be 'sequential', 'subprocess' or 'native'")
        if on_nondeterminism not in ("restart", "refuse"):
            raise ValueError(f"on_nondeterminism={on_nondeterminism!r} must be 'restart' or 'refuse'")
        self.n_envs = n_envs or len(os.sched_getaffinity(0))
        check_room_for_environments("n_envs", self.n_envs)
        self.n_shards = n_shards or self.n_envs
        if self.n_shards > self.n_envs:
            raise ValueError(f"n_shards={n_shards} must be at most n_envs={self.n_envs}, as each has an environment")
        check_count("n_same_starts", n_same_starts, 1)
        self.n_same_starts = n_same_starts
        sizes = [len(shard) for shard in self._shards]
        if any(size % n_same_starts for size in sizes):
            groups = f"groups of {n_same_starts} environments with the same start"
            came = f"n_envs={self.n_envs}" if self.n_shards == 1 else f"shards of {sorted(set(sizes))} environments"
            raise ValueError(f"{came} cannot be divided into {groups} (n_same_starts): use multiples of it")
        self.n_rollout_steps = n_rollout_steps
        self.vectorization = vectorization
        if vectorization == "native":
            self._environments.use_native_form()
        else:
            self._environments.vectorization = vectorization
        self.epoch_length = epoch_length
        self.on_nondeterminism = on_nondeterminism
        self._has_told = False
        self._is_on_device = False  # whether the environments of training are in tensors on the policy's device
        self._merging: list[str] = []  # names of the wrappers that merge their statistics there
        self._ended: list[Any] | None = None  # state of the environments when the last fit ended
        self._restored: dict[str, Any] | None = None
        self._n_starts = 0  # times that a resumed run had to start new episodes

    @property
    def env_steps_per_rollout(self) -> int:
        """Environment steps of a rollout on each rank."""
        return self.n_envs * self.n_rollout_steps

    # ------------------------------------------------------------------------------------------------- hooks

    def setup(self, stage: str) -> None:
        """Forget the checkpoint of the previous run; this run's is restored after this hook."""
        super().setup(stage)
        self._restored = None
        if stage == "fit":
            self._ended = None
            self._n_starts = 0

    def train_dataloader(self) -> Source[Any]:
        """Rollouts, collected on demand."""
        return Source(self._collect, self.epoch_length)

    def teardown(self, stage: str) -> None:
        """Close the environments; their state is kept for checkpoints that are written later."""
        self._ended = self._states()
        if self._has_begun:
            self._write_pending()  # which tells where the event logs are
        super().teardown(stage)

    # ------------------------------------------------------------------------------------------------ training

    def _make_player(self) -> Callable[..., RolloutWorker]:
        first = self._rank * self.n_envs
        options: dict[str, Any] = {"seed": self.seed, "n_same_starts": self.n_same_starts}
        tensor_vector = self._tensor_vector()
        self._is_on_device = tensor_vector is not None
        make: Callable[..., Any] = partial(tensor_vector or self._environments.vector, **options)
        training = [make(len(envs), first_env_index=first + envs.start) for envs in self._shards]
        if self._starts_again:
            self._n_starts += 1
        return partial(
            super()._make_player(),
            n_rollout_steps=self.n_rollout_steps,
            training=training,
            first_episode=self._first_episode_of_players(),
            n_same_starts=self.n_same_starts,
        )

    def _first_episode_of_players(self) -> int:
        """Return an index of episodes that the run has not played before; 0 in a new one."""
        after_saved = 0 if self._restored is None else first_new_episode(self._restored["ranks"])
        return max(self._n_starts * _EPISODES_OF_A_START, after_saved)

    @property
    def _starts_again(self) -> bool:
        """True if a resumed run has not collected, and has no episodes that it can continue."""
        if self._has_begun or not self._statistics.are_of_checkpoint:
            return False
        if self._restored is not None:
            return bool(self._restored["layout"] != self._layout)
        return self.trainer is not None and not is_first_fit(self.trainer)

    def _tensor_vector(self) -> Callable[..., Callable[[], TensorVector]] | None:
        """Return how to make factories of environments on the device of the policy; None for environments on the host.

        Wrappers without a tensor form, full checks, recurrent policies, other engines than that in
        this process, and numbers that torch cannot write by index need the host.

        Raises:
            ValueError: An option has no meaning for environments in tensors.
        """
        make_env = self._environments.tensor_factory()
        try:
            env = make_env() if self._environments.description.is_array else None
        except NoTensorFormError as error:
            rank_zero_info(f"the environments are stepped on the host, not in tensors of the device: {error}")
            return None
        if env is None:
            return None
        env.close()
        if self.vectorization == "subprocess":
            raise ValueError("vectorization=subprocess has no use for an environment in tensors: leave it out")
        policy = self._policy()
        reason = self._why_on_host(policy)
        if reason is not None:
            rank_zero_info(f"{type(env.unwrapped).__name__} is stepped on the host: {reason}")
            return None
        merges = self._merges_on_device
        self._merging = merging_wrappers(env)

        def make(n_envs: int, *, seed: int, n_same_starts: int, first_env_index: int) -> Callable[[], TensorVector]:
            def make_vector() -> TensorVector:
                own = make_env()
                assert own is not None
                return TensorVector(own, n_envs, self.spec, policy.device, seed, first_env_index, n_same_starts, merges)

            return make_vector

        return make

    @property
    def _merges_on_device(self) -> bool:
        """True if environments on a device may merge the statistics of wrappers there: all are in one shard."""
        return self.n_shards == 1 and self._world_size == 1

    def _why_on_host(self, policy: Any) -> str | None:
        """Return why environments in tensors are stepped on the host; None if they need not be."""
        if not isinstance(self.engine, InProcessEngine):
            return f"a {type(self.engine).__name__} needs them there"
        if self.check == "full":
            return "check=full compares their observations with the spaces there"
        if (reason := why_on_host(policy)) is not None:
            return reason
        if not all(can_be_written(step) for step in self.spec.steps.values()):
            return "torch cannot write their numbers of type uint16, uint32 or uint64 by index"
        return None

    @property
    def _shards(self) -> list[range]:
        """Environment indices of each shard."""
        bounds = [round(self.n_envs * shard / self.n_shards) for shard in range(self.n_shards + 1)]
        return [range(*pair) for pair in itertools.pairwise(bounds)]

    def _collect(self, policy: Any = None) -> Rollout:
        """Collect a rollout with copies of a policy for each shard; None means the one in training."""
        began = time.perf_counter()
        wrapper_statistics, given = self._prepared()
        method, acting = ("collect", given) if policy is None else ("collect_with_copy", policy)
        arguments = wrapper_statistics, acting
        parts = self._ask([(shard, method, arguments) for shard in range(self.n_shards)])
        return self._joined(parts, began)

    def _prepared(self) -> tuple[dict[str, Any], Any]:
        """Return the wrapper statistics, and the policy if the players need it, before a rollout."""
        self._refuse_foreign_checkpoint()
        starts_again = self._starts_again
        if starts_again:
            self._tell_of_new_episodes()
        wrapper_statistics = self._statistics.gathered_states or self.wrapper_statistics()
        given = self._engage(self._policy())
        if self._restored is not None and not starts_again:
            self._restore(self._restored)
        self._restored = None
        self._has_begun = True
        return wrapper_statistics, given

    def _joined(self, parts: list[Any], began: float) -> Rollout:
        """Concatenate what players have collected, and merge the statistics of their wrappers."""
        rollout = Rollout.concatenated([part for part, _ in parts])
        states = [state for _, states in parts for state in states]
        wrappers = self._environments.description.wrappers
        if states and self._is_on_device and self._merges_on_device:
            self._statistics.keep_on_device(states[0], wrappers, self._merging)
        elif states:  # merge the statistics of all environments on all ranks
            self._statistics.merge(itertools.chain.from_iterable(gather_objects(states)), wrappers)
        rollout.seconds = time.perf_counter() - began
        return rollout

    def _tell_of_new_episodes(self) -> None:
        """Say why the episodes of the checkpoint cannot be continued.

        Raises:
            ValueError: An error had ended them, which is to be refused.
        """
        new = "environments start new episodes"
        if self._restored is None:
            reason = "the checkpoint does not hold the running ones, which an error had ended"
            if self.on_nondeterminism == "refuse":
                raise ValueError(f"{reason}; on_nondeterminism=restart starts new episodes instead")
            rank_zero_info(f"{new}: {reason}")
            return
        changes = []
        for name, then, now in zip(_LAYOUT, self._restored["layout"], self._layout, strict=True):
            if then != now:
                changes.append(f"{name}={then} instead of {now}")
        rank_zero_info(f"{new}: the checkpoint was written with {' and '.join(changes)}")

    def _restore(self, restored: dict[str, Any]) -> None:
        """Restore the environments from a checkpoint."""
        states = restored["ranks"][self._rank]
        if not self._is_on_device and any("tensors" in state for state in states if state):
            fault = "the checkpoint holds the state of environments in tensors, which this run steps on the host"
            remedy = "resume with the options that it was written with, or use its weights alone with --warm-start"
            raise ValueError(f"{fault}; {remedy}")
        saved = [shard for shard, state in enumerate(states) if state]
        answers = self._ask([(shard, "load_state_dict", (states[shard],)) for shard in saved])
        strayed = []
        for shard, numbers in zip(saved, answers, strict=True):
            strayed += [self._shards[shard][number] for number in numbers]
        if strayed:
            self._tell_of_strayed(strayed)

    def _tell_of_strayed(self, strayed: list[int]) -> None:
        """Say that environments could not be continued.

        Args:
            strayed: Their indices on this rank.

        Raises:
            ValueError: That is to be refused.
        """
        cause = "are not deterministic, have other options, or depend on state that the checkpoint lacks"
        reason = f"{cause}: when replayed, their episodes did not give the saved observations and rewards"
        if self._environments.description.is_array:
            reason = "cannot be continued within an episode, as gymnasium's vector environments save no state"
        message = f"environments {strayed} of rank {self._rank} {reason}"
        if self.on_nondeterminism == "refuse":
            raise ValueError(message + "; on_nondeterminism=restart starts new episodes instead")
        rank_zero_info(message + "; they start new episodes")

    # -------------------------------------------------------------------------------------------------- state

    @property
    def _layout(self) -> list[int]:
        """Number of ranks, and of the environments and the shards of each."""
        return [self._world_size, self.n_envs, self.n_shards]

    def _states(self) -> list[Any] | None:
        """State of each shard, now or when the last fit ended."""
        if not self._has_begun:
            return self._ended
        states = self._ask([(shard, "state_dict", ()) for shard in range(self.n_shards)])
        cost = cost_of_long_episodes(states)
        if cost is not None and not self._has_told:
            self._has_told = True
            _LOGGER.warning(cost)
        return states

    def state_dict(self) -> dict[str, Any]:
        """State of all ranks' environments, and wrapper statistics; every rank must call it.

        After an exception it holds the state of this rank's environments alone. On several ranks, a
        resumed run then starts new episodes.
        """
        if not self._has_begun and self._restored is not None:
            return self._restored | {EVENT_LOG_ENDS: self._event_log_ends()}  # nothing was collected since
        state = super().state_dict() | {_N_STARTS: self._n_starts}
        states = self._states()
        if states is None:
            return state
        ranks = self._gathered(states)
        return state | {"ranks": ranks, "layout": [len(ranks), *self._layout[1:]]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the next rollout where `state_dict` was taken."""
        super().load_state_dict(state_dict)
        self._restored = state_dict if "ranks" in state_dict else None
        self._n_starts = state_dict.get(_N_STARTS, 0)  # earlier versions saved none

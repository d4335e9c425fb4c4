"""Data module of off-policy algorithms: minibatches from a ring buffer of transitions."""

import time
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from pytorch_lightning.utilities import rank_zero_info
from tqdm import tqdm

from maze_pl.collect.engines.engine import Engine
from maze_pl.collect.replay.buffer import ReplayBuffer
from maze_pl.collect.replay.placement import BufferDevice, device_of_buffer
from maze_pl.collect.replay.storage import ReplayStorage
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import ReplayBatch
from maze_pl.core.checkpoint_content import REPLAY_BUFFERS
from maze_pl.core.checks import check_count, check_fraction
from maze_pl.core.episode_batch import joined_summaries
from maze_pl.core.policy import Policy
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import without_integer_types
from maze_pl.datamodules.buffer_files import (
    BuffersBesideCheckpoints,
    checkpoint_folders,
    find_buffer,
    read_buffer,
    remove_unnamed_buffers,
    write_buffer,
)
from maze_pl.datamodules.demonstrations import demonstrated_acts
from maze_pl.datamodules.environment_maker import Env
from maze_pl.datamodules.initial_policy import make_initial_policy
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator
from maze_pl.datamodules.rollouts import RolloutDataModule
from maze_pl.datamodules.source import Source
from maze_pl.datasets.in_memory_dataset import InMemoryDataset
from maze_pl.envs.building import make_frozen
from maze_pl.envs.wrappers.sample_episodes import PROGRESS_AFTER
from maze_pl.schedules import Coefficient, described, require_length, run_progress, value_at
from maze_pl.system.ranks import gather_objects


class ReplayDataModule(RolloutDataModule):
    """Collects transitions into a replay buffer and samples minibatches from it.

    Each rank has a separate buffer. A batch collects `rollouts_per_iteration` rollouts, adds their
    transitions, and then draws `num_batches_per_iter` minibatches. Before the first batch the
    buffer is filled by another policy or with demonstrations. Rewards between the acts of an actor
    are discounted by the `gamma` of the algorithm's `data_requirements`.

    Args:
        env: Builds one environment; a plain gymnasium environment is adapted.
        wrappers: Callables that wrap the environment, the first one innermost.
        num_actors: Parallel environments of each rank; 0 means one per core.
        n_rollout_steps: Env steps of each environment in a rollout, without those that a wrapper skips.
        rollouts_per_iteration: Rollouts of all environments before each batch of updates.
        num_batches_per_iter: Minibatches per batch, one for each update.
        batch_size: Acts of each sub-step in a minibatch, on each rank.
        replay_buffer_size: Capacity in transitions of each sub-step, on each rank.
        initial_buffer_size: Transitions of all sub-steps, on each rank, before the first update; at
            most `replay_buffer_size`, also with several sub-steps, as some of them may rarely act.
        initial_sampling_policy: Class or function that makes the policy that acts until then from any of
            `action_spaces_dict` and `masks` (by sub-step) and `spec`; each shard acts with a copy of it. None means
            a `RandomPolicy`, which always gets the masks.
        split_rollouts_into_transitions: Whether acts are drawn one by one. If not, a minibatch has
            `batch_size` sequences of `n_rollout_steps` consecutive acts of an actor; a sequence
            that ends early is continued by another one.
        n_step: Acts whose rewards are summed before bootstrapping from the next value.
        prioritized: Whether transitions are drawn by their last TD errors (prioritized replay), see
            `ReplayStorage`. The algorithm must report them by `ReplayBatch.reprioritise`; otherwise
            it is refused.
        priority_alpha: Exponent of the priorities: 0 is uniform sampling, 1 is proportional. A
            number or a schedule.
        priority_beta: Exponent of the importance weights in the loss: 0 is no correction, 1 is
            full. A number or a schedule.
        demonstrations: Recorded episodes that fill the buffer at the start, in place of a policy.
        demonstration_share: Share of each minibatch that is drawn from demonstrations, which are
            then stored separately and never overwritten; None lets new transitions overwrite them.
        memory_map: Whether the buffer is in unnamed files in the run directory, not in memory.
        buffer_device: `auto` stores observations and actions on the GPU of the networks if they take
            at most half of its free memory; `host` never does. Minibatches are the same.
        save_buffer: Whether the buffer is saved next to checkpoints, so that a resumed run
            continues exactly. If not, a resumed run fills its buffer as at the start.
        epoch_length: Batches per epoch; evaluation follows each epoch.
        vectorization: `sequential` steps the environments in the process in which the policy acts,
            `subprocess` in separate processes; `native` uses the vector entry point of a gymnasium environment.
        on_nondeterminism: Reaction, on resuming, to an episode that does not reach the same state
            when it is replayed, or that an error has ended: `restart` with a new one and a message,
            or `refuse`.
        n_shards: Number of groups of environments that collect independently, each with its own
            random numbers; 0 means one per environment. It affects results, and limits how many
            workers of an engine are useful. One is the fastest if everything is in this process.
        evaluators: Evaluators by name; None means one named `eval`, an empty dict means none.
        seed: Seed of the run; None takes the seed of `seed_everything`.
        action_masks: Action head -> observation that is 1 where an action is allowed, else 0; adds
            to the masks that the environment declares itself.
        max_agents: Maximum number of agents at the same time, for sub-steps whose number of agents varies.
        n_normalization_samples: Observations from which wrappers estimate their statistics.
        engine: Steps the environments and runs the policy; None means in this process. Results do not depend on it.
        check: Validation of environment returns in each step, `fast` or `full`; see
            `SequentialVectorEnv`.

    Raises:
        ValueError: A number is out of range, or options contradict each other.
    """

    batch_type: ClassVar[type] = ReplayBatch
    trainer: Any

    def __init__(
        self,
        env: Callable[[], Env],
        wrappers: list[Callable[[Any], Env]] | None = None,
        num_actors: int = 1,
        n_rollout_steps: int = 1,
        rollouts_per_iteration: int = 1,
        num_batches_per_iter: int = 1,
        batch_size: int = 100,
        replay_buffer_size: int = 1_000_000,
        initial_buffer_size: int = 10_000,
        initial_sampling_policy: Callable[..., Policy] | None = None,
        split_rollouts_into_transitions: bool = True,
        n_step: int = 1,
        prioritized: bool = False,
        priority_alpha: Coefficient = 0.6,
        priority_beta: Coefficient = 0.4,
        demonstrations: InMemoryDataset | None = None,
        demonstration_share: float | None = None,
        memory_map: bool = False,
        buffer_device: BufferDevice = "auto",
        save_buffer: bool = False,
        epoch_length: int = 100,
        vectorization: Literal["sequential", "subprocess", "native"] = "sequential",
        on_nondeterminism: Literal["restart", "refuse"] = "restart",
        n_shards: int = 1,
        evaluators: dict[str, RolloutEvaluator] | None = None,
        seed: int | None = None,
        action_masks: dict[str, str] | None = None,
        max_agents: dict[StepKey, int] | None = None,
        n_normalization_samples: int = 1000,
        engine: Engine | None = None,
        check: Literal["fast", "full"] = "fast",
    ) -> None:
        check_count("num_actors", num_actors, 0)
        check_count("rollouts_per_iteration", rollouts_per_iteration, 1)
        check_count("num_batches_per_iter", num_batches_per_iter, 1)
        check_count("batch_size", batch_size, 1)
        check_count("n_step", n_step, 1)
        super().__init__(
            env,
            wrappers,
            num_actors,
            n_rollout_steps,
            epoch_length=epoch_length,
            vectorization=vectorization,
            on_nondeterminism=on_nondeterminism,
            n_shards=n_shards,
            evaluators=evaluators,
            seed=seed,
            action_masks=action_masks,
            max_agents=max_agents,
            n_normalization_samples=n_normalization_samples,
            engine=engine,
            check=check,
        )
        if not batch_size <= initial_buffer_size <= replay_buffer_size:
            raise ValueError(f"{initial_buffer_size=} must be at least {batch_size=} and at most {replay_buffer_size=}")
        if buffer_device not in ("auto", "host"):
            raise ValueError(f"{buffer_device=} must be 'auto' or 'host'")
        for progress in (0.0, 0.5, 1.0):
            value_at("priority_alpha", priority_alpha, progress, check_fraction)
            value_at("priority_beta", priority_beta, progress, check_fraction)
        if prioritized and not split_rollouts_into_transitions:
            raise ValueError("prioritized=True draws acts one by one: leave split_rollouts_into_transitions=True")
        share = demonstration_share or 0.0
        n_demonstrated = round(share * batch_size) if 0 <= share <= 1 else 0
        if demonstration_share is not None and (demonstrations is None or not n_demonstrated):
            expected = f"demonstrations, and a share that is at least one act of {batch_size=} and at most all of them"
            raise ValueError(f"{demonstration_share=} needs {expected}")
        self.rollouts_per_iteration = rollouts_per_iteration
        self.num_batches_per_iter = num_batches_per_iter
        self.batch_size = batch_size
        self.replay_buffer_size = replay_buffer_size
        self.n_demonstrated = n_demonstrated
        self.initial_buffer_size = initial_buffer_size
        self.initial_sampling_policy = initial_sampling_policy
        self.demonstrations = demonstrations
        self.save_buffer = save_buffer
        self.prioritized = prioritized
        self.priority_alpha = priority_alpha
        self.priority_beta = priority_beta
        run_length = 1 if split_rollouts_into_transitions else n_rollout_steps
        alpha = value_at("priority_alpha", priority_alpha, 0.0) if prioritized else None
        self._new_storage: Any = partial(
            ReplayStorage,
            n_step=n_step,
            run_length=run_length,
            alpha=alpha,
            memory_map=memory_map,
            keep_sizes=callable(priority_alpha),
        )
        self._fixed_options: dict[str, Any] = {  # that a saved buffer must share
            "n_step": n_step,
            "run_length": run_length,
            "alpha": described(priority_alpha) if prioritized and callable(priority_alpha) else alpha,
            "replay_buffer_size": replay_buffer_size,
            "demonstrated": n_demonstrated,
        }
        self.buffer_device: BufferDevice = "host" if memory_map else buffer_device
        self._buffer: ReplayBuffer | None = None  # None until the first batch
        self._file = ""  # name of the file with the current buffer; empty if not written
        self._is_complete = False  # whether the buffer holds all that was collected

    # ------------------------------------------------------------------------------------------------- hooks

    def setup(self, stage: str) -> None:
        """Forget checkpoint and buffer of the previous run; this run's are restored later."""
        super().setup(stage)
        checkpoint_io = self.trainer.strategy.checkpoint_io if self.save_buffer else None
        if checkpoint_io is not None and not isinstance(checkpoint_io, BuffersBesideCheckpoints):
            name = type(self).__qualname__
            self.trainer.strategy.checkpoint_io = BuffersBesideCheckpoints(checkpoint_io, name)
        if stage == "fit" and self.prioritized:
            options = {"priority_alpha": self.priority_alpha, "priority_beta": self.priority_beta}
            require_length(self.trainer, [name for name, option in options.items() if callable(option)])
        self._file = ""
        if stage == "fit":
            self._buffer = None
            self._is_complete = False

    def train_dataloader(self) -> Source[ReplayBatch]:
        """Batches of minibatches, for which steps are collected on demand."""
        return Source(self._next_batch, self.epoch_length)

    def teardown(self, stage: str) -> None:
        """Close the environments; their state and the buffer are kept for later checkpoints."""
        super().teardown(stage)
        if stage == "fit":  # else training may continue elsewhere, writing a buffer right now
            self._remove_unnamed()  # also what a killed process has left, if this one has not trained
            self._file = ""

    # ------------------------------------------------------------------------------------------------ training

    def _next_batch(self) -> ReplayBatch:
        began, batch = time.perf_counter(), ReplayBatch({}, 0)
        if self._file:
            self._remove_unnamed()
        self._file = ""  # the buffer changes now
        self._is_complete = False
        if self._buffer is None:
            self._fill(batch)
        elif self.prioritized and not self._buffer.has_errors:
            self._refuse_no_errors()
        for _ in range(self.rollouts_per_iteration):
            self._add(batch)
        self._is_complete = True
        if self.prioritized:
            self._set_exponents(batch)
        buffer = self._filled
        drawn = buffer.draw(self.num_batches_per_iter, self.batch_size)
        batch.acts = drawn.acts
        batch.reprioritise = drawn.reprioritise if self.prioritized else None
        batch.measures["buffer_size"], batch.seconds = len(buffer), time.perf_counter() - began
        return batch

    @property
    def _filled(self) -> ReplayBuffer:
        """The buffer, which has its first content."""
        assert self._buffer is not None
        return self._buffer

    def _add(self, batch: ReplayBatch, policy: Policy | None = None) -> None:
        """Collect a rollout and store its transitions; copies of `policy` replace the one trained."""
        rollout = self._collect(policy)
        batch.collected = batch.collected + rollout.env_steps
        batch.summaries = joined_summaries([batch.summaries, rollout.summaries])
        self._filled.add(rollout)

    def _set_exponents(self, batch: ReplayBatch) -> None:
        """Set the exponents of priorities and weights for a batch; those that follow a schedule are logged."""
        options = {"priority_alpha": self.priority_alpha, "priority_beta": self.priority_beta}
        progress = run_progress(self.trainer) if any(map(callable, options.values())) else 0.0
        values = {name: value_at(name, option, progress, check_fraction) for name, option in options.items()}
        self._filled.set_exponents(values["priority_alpha"], values["priority_beta"])
        batch.measures.update({name: value for name, value in values.items() if callable(options[name])})

    def _refuse_no_errors(self) -> None:
        """Refuse an algorithm that learned from a batch without reporting TD errors."""
        raise ValueError(
            f"prioritized=True draws acts by their TD errors, but {self._algorithm_name()} reported none: call "
            "batch.reprioritise({step_key: errors [U, B]}) in its training_step, or set prioritized=False"
        )

    # ------------------------------------------------------------------------------------------ the first content

    def _gamma(self) -> float:
        """Return the discount of the algorithm.

        Raises:
            ValueError: The algorithm states none.
        """
        gamma = self._requirements().gamma
        if gamma is None:
            remedy = "return DataRequirements(gamma=...) from its data_requirements()"
            raise ValueError(f"{self._algorithm_name()} states no gamma, by which rewards are discounted: {remedy}")
        return gamma

    def _new_buffer(self, n_separate: int = 0) -> ReplayBuffer:
        """Make an empty buffer; `n_separate` demonstrated acts of each sub-step will be stored besides the rings."""
        gamma = self._gamma()  # may be refused, before an environment is made
        steps, capacity = self.spec.steps, self.replay_buffer_size
        of_networks = self.trainer.strategy.root_device
        device = device_of_buffer(self.buffer_device, of_networks, steps, capacity + n_separate)
        make_storage = partial(self._new_storage, device=device)
        return ReplayBuffer(steps, self.n_envs, gamma, make_storage, capacity, self.n_demonstrated)

    def _fill(self, batch: ReplayBatch) -> None:
        """Make the buffer, and read or collect its initial content."""
        if self._restored is not None and REPLAY_BUFFERS in self._restored:
            self._buffer = self._load(self._restored[REPLAY_BUFFERS])
            return
        demonstrated = self._demonstrated()
        counts = [len(columns["agent_id"]) for _, columns, _ in demonstrated]
        self._buffer = self._new_buffer(max(counts, default=0) if self.n_demonstrated else 0)
        self._buffer.generator.manual_seed(derive_seed(self.seed, "replay", self._rank))
        if self._statistics.are_of_checkpoint:
            missing = "holds no state of the environments"
            if self._restored is not None:
                missing = "names no replay buffer (save_buffer was off, or an error ended it within a batch)"
            rank_zero_info(f"the checkpoint {missing}: the buffer is filled as at the start")
        for key, columns, lengths in demonstrated:
            self._buffer.add_demonstrations(key, columns, lengths)
        if self.demonstrations is None or self.n_demonstrated:
            self._collect_first(batch, self._buffer)

    def _collect_first(self, batch: ReplayBatch, buffer: ReplayBuffer) -> None:
        """Collect the initial content with another policy."""
        policy = make_initial_policy(self.initial_sampling_policy, self.spec)
        with tqdm(None, "replay buffer", self.initial_buffer_size, False, delay=PROGRESS_AFTER, disable=None) as bar:
            while min(gather_objects(len(buffer))) < self.initial_buffer_size:  # all ranks collect equally often
                self._add(batch, policy)
                bar.update(len(buffer) - bar.n)

    def _demonstrated(self) -> list[tuple[StepKey, Any, Any]]:
        """Read the demonstrations; see `demonstrated_acts`."""
        if self.demonstrations is None:
            return []
        gamma = self._gamma()
        dataset = copy(self.demonstrations)  # without episodes that another processor has read
        make_env = partial(make_frozen, self._environments.factory(), self.wrapper_statistics())
        return list(demonstrated_acts(dataset, gamma, make_env, self.spec))

    # -------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """State of the environments and, if saved, file names of all ranks' buffers.

        After an exception no buffer is named if the state of its environments or another rank's buffer
        is missing, or if collected steps are not stored yet.
        """
        state = super().state_dict()
        is_known = self._is_complete and len(state.get("ranks", [])) == self._world_size
        if not self.save_buffer or not is_known:
            return state
        folder = checkpoint_folders(self.trainer)[0].absolute()
        return state | {REPLAY_BUFFERS: {"folder": str(folder), "files": self._gathered(self._save(folder))}}

    def _described(self) -> dict[str, Any]:
        """Return the properties that a saved buffer must share with this one to replace it."""
        known = {"spec": without_integer_types(self.spec.to_dict()), "gamma": self._gamma()}
        return {**self._fixed_options, **known, "ranks and actors": self._layout}

    def _save(self, folder: Path) -> str:
        """Write the buffer if it has changed since it was last written; return the file name."""
        if not self._file:
            self._file = write_buffer(folder, self._rank, self._filled, self._described())
        return self._file

    def _load(self, saved: dict[str, Any]) -> ReplayBuffer:
        """Return a saved buffer.

        Raises:
            ValueError: It is missing, was altered, or has another format or other properties.
        """
        files = saved["files"]  # of the ranks that wrote them; other numbers of ranks are refused below
        path = find_buffer(files[self._rank % len(files)], [Path(self.trainer.ckpt_path).parent, Path(saved["folder"])])
        return read_buffer(path, self._new_buffer, self._described())

    def _remove_unnamed(self) -> None:
        """Remove buffers that no checkpoint names, unless this run writes no files."""
        if self.save_buffer and self._rank == 0 and self.trainer and not self.trainer.fast_dev_run:
            remove_unnamed_buffers(checkpoint_folders(self.trainer))

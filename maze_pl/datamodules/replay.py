"""The data module of algorithms that learn from what was done before: minibatches of a ring of transitions."""

import hashlib
import time
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor
from tqdm import tqdm

from maze_pl.collect import trajectory_processors as processors
from maze_pl.collect.in_memory_dataset import InMemoryDataset
from maze_pl.collect.replay_storage import Array, ReplayStorage
from maze_pl.collect.transitions import Transitions
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Policy, RandomPolicy
from maze_pl.core.ranks import gather_objects
from maze_pl.core.rollout import Acts, ReplayBatch
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import mapped
from maze_pl.datamodules.environments import Env, Source, make_frozen
from maze_pl.datamodules.rollout import RolloutDataModule
from maze_pl.datamodules.rollout_evaluator import require_count
from maze_pl.envs.wrappers.normalization import PROGRESS_AFTER


class ReplayDataModule(RolloutDataModule):
    """Collects transitions into a buffer and deals out minibatches of it, in the process of each rank by itself.

    A batch is `rollouts_per_iteration` rollouts, whose transitions are added, and `num_batches_per_iter` minibatches
    drawn after that. Before the first one the buffer is filled by another policy, or with demonstrations. Rewards are
    discounted between the acts of an actor by the algorithm's `gamma`.

    Args:
        env: Builds one environment; a bare gymnasium environment is adapted.
        wrappers: Wrap it, the first one innermost.
        num_actors: Environments of each rank that play at the same time; 0 means one for each core.
        n_rollout_steps: Environment steps of each environment in a rollout.
        rollouts_per_iteration: Rollouts of all environments before each batch of updates.
        num_batches_per_iter: Minibatches of a batch, each of which is an update.
        batch_size: Acts of each sub-step in a minibatch, on each rank.
        replay_buffer_size: Transitions of each sub-step that are kept, on each rank.
        initial_buffer_size: Transitions of all sub-steps, on each rank, before the first update.
        initial_sampling_policy: What acts until then; made of the action spaces of all sub-steps. A `RandomPolicy`,
            which it is if None, heeds masks.
        split_rollouts_into_transitions: Whether acts are drawn one by one. If not, a minibatch is `batch_size` runs of
            `n_rollout_steps` consecutive acts of an actor; one that ends before is continued by another one.
        n_step: Acts whose rewards are summed up before the value of the next observation is added.
        prioritized: Whether transitions are drawn by their last TD errors, as `ReplayStorage` describes.
        priority_alpha: How much these count: 0 not at all, 1 in proportion.
        priority_beta: How much weights in the loss make up for that: 0 not at all, 1 wholly.
        demonstrations: Recorded episodes with which the buffer starts, in place of the other policy's transitions.
        demonstration_share: The part of each minibatch that is drawn from demonstrations, which are kept apart for
            ever then; if None, new transitions take their places.
        memory_map: Whether the buffer is in files of the run directory that have no names, and not in memory.
        save_buffer: Whether the buffer is written beside checkpoints, so that a resumed run goes on exactly. If not,
            its buffer is filled as at the start.
        epoch_length: Batches of an epoch, which is followed by evaluation.
        options: Those of `RolloutDataModule`: evaluators, seed, n_shards, engine and others.

    Raises:
        ValueError: A number is out of range, or options contradict each other.
    """

    trainer: Any

    def __init__(
        self,
        env: Callable[[], Env],
        wrappers: list[Callable[[Env], Env]] | None = None,
        num_actors: int = 1,
        n_rollout_steps: int = 1,
        rollouts_per_iteration: int = 1,
        num_batches_per_iter: int = 1,
        batch_size: int = 100,
        replay_buffer_size: int = 1_000_000,
        initial_buffer_size: int = 10_000,
        initial_sampling_policy: Callable[[dict[StepKey, Any]], Policy] | None = None,
        split_rollouts_into_transitions: bool = True,
        n_step: int = 1,
        prioritized: bool = False,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        demonstrations: InMemoryDataset | None = None,
        demonstration_share: float | None = None,
        memory_map: bool = False,
        save_buffer: bool = False,
        epoch_length: int = 100,
        **options: Any,
    ) -> None:
        for name in ("num_actors", "rollouts_per_iteration", "num_batches_per_iter", "batch_size", "n_step"):
            require_count(name, locals()[name], int(name != "num_actors"))
        super().__init__(env, wrappers, num_actors, n_rollout_steps, epoch_length=epoch_length, **options)
        if not batch_size <= initial_buffer_size <= replay_buffer_size:
            raise ValueError(f"{initial_buffer_size=} must be at least {batch_size=} and at most {replay_buffer_size=}")
        if not (0 <= priority_alpha <= 1 and 0 <= priority_beta <= 1):
            raise ValueError(f"{priority_alpha=} and {priority_beta=} must be between 0 and 1")
        if prioritized and not split_rollouts_into_transitions:
            raise ValueError("prioritized=True draws acts one by one: leave split_rollouts_into_transitions=True")
        share = demonstration_share or 0.0
        n_shown = round(share * batch_size) if 0 <= share <= 1 else 0
        if demonstration_share is not None and (demonstrations is None or not n_shown):
            raise ValueError(f"{demonstration_share=} needs demonstrations, and must be 1 to all acts of {batch_size=}")
        self.rollouts_per_iteration, self.num_batches_per_iter = rollouts_per_iteration, num_batches_per_iter
        self.batch_size, self.replay_buffer_size, self.n_shown = batch_size, replay_buffer_size, n_shown
        self.initial_buffer_size, self.initial_sampling_policy = initial_buffer_size, initial_sampling_policy
        self.demonstrations, self.save_buffer, self.prioritized = demonstrations, save_buffer, prioritized
        run_length = 1 if split_rollouts_into_transitions else n_rollout_steps
        kind: Any = {"n_step": n_step, "run_length": run_length, "alpha": priority_alpha if prioritized else None}
        self._kind = {**kind, "replay_buffer_size": replay_buffer_size, "demonstrated": n_shown}
        self._new_storage: Any = partial(ReplayStorage, **kind, beta=priority_beta, memory_map=memory_map)
        self._generator, self._transitions = torch.Generator(), Transitions(0, 0)
        self._storages: dict[StepKey, list[ReplayStorage]] = {}  # a ring, and demonstrations that are kept apart
        self._file = ""  # name of the file with the buffer as it is now

    # ------------------------------------------------------------------------------------------------- hooks

    def setup(self, stage: str) -> None:
        """Forget the checkpoint, and the buffer, of a former run; those of this one are restored after this hook."""
        super().setup(stage)
        self._file, self._storages = "", {} if stage == "fit" else self._storages

    def train_dataloader(self) -> Source[ReplayBatch]:
        """Minibatches for some updates, after some steps, taken when asked for."""
        return Source(self._next_batch, self.epoch_length)

    def teardown(self, stage: str) -> None:
        """End the environments; their state, and the buffer, are kept for checkpoints that are written later."""
        super().teardown(stage)
        if stage == "fit":  # otherwise the run may go on elsewhere, and write a buffer now
            self._tidy()

    # ------------------------------------------------------------------------------------------------ training

    def _next_batch(self) -> ReplayBatch:
        began, batch = time.perf_counter(), ReplayBatch({}, 0)
        self._tidy()
        if not self._storages:
            self._fill(batch)
        for _ in range(self.rollouts_per_iteration):
            self._add(batch)
        drawn = {key: self._draw(storages) for key, storages in self._storages.items()}
        for key, ((one, _), *others) in drawn.items():
            batch.acts[key] = mapped(lambda *x: torch.cat(x, 1), one, *(acts for acts, _ in others)) if others else one
        batch.reprioritise = partial(self._reprioritise, drawn) if self.prioritized else None
        batch.measures["buffer_size"], batch.seconds = self._size, time.perf_counter() - began
        return batch

    def _add(self, batch: ReplayBatch, policy: Policy | None = None) -> None:
        """Collect a rollout, with a policy other than that in training, and keep its transitions."""
        rollout = self._collect(policy)
        batch.collected, batch.summaries = batch.collected + rollout.env_steps, batch.summaries + rollout.summaries
        for key, columns in self._transitions.of(rollout).items():
            self._storages[key][0].add(columns)

    def _draw(self, storages: list[ReplayStorage]) -> list[tuple[Acts, Array]]:
        """Minibatches of a sub-step; all of each from one of the storages if there is nothing in the other."""
        sizes = [self.batch_size - self.n_shown, self.n_shown]
        if not all(map(len, storages)):
            sizes = [self.batch_size * (len(one) > 0) for one in storages]
        drawn = zip(storages, sizes, strict=False)
        return [one.sample(self.num_batches_per_iter, size, self._generator) for one, size in drawn]

    def _reprioritise(self, drawn: dict[StepKey, list[tuple[Acts, Array]]], errors: dict[StepKey, Tensor]) -> None:
        """Tell storages what was found while learning from what was drawn from them."""
        for key, error in errors.items():
            for storage, (_, places) in zip(self._storages[key], drawn[key], strict=True):
                part, error = error.tensor_split([places.shape[1]], 1)
                storage.reprioritise(places, part)

    @property
    def _size(self) -> int:
        """Transitions of all sub-steps."""
        return sum(len(ring) for ring, *_ in self._storages.values())

    # ------------------------------------------------------------------------------------------ the first content

    def _fill(self, batch: ReplayBatch) -> None:
        """Make the buffer, and read or collect what it starts with."""
        self._generator.manual_seed(derive_seed(self.seed, "replay", self._rank))
        gamma = getattr(self.trainer.lightning_module, "gamma", None)
        if gamma is None:
            raise ValueError("a ReplayDataModule is for algorithms that have a gamma: use SAC")
        self._transitions = Transitions(self.n_envs, gamma)
        if self._restored is not None and "replay" in self._restored:
            self._load(self._restored["replay"])
            return
        steps = self.spec.steps.items()
        self._storages = {key: [self._new_storage(step, self.replay_buffer_size)] for key, step in steps}
        if self._has_loaded:
            rank_zero_info("the checkpoint names no replay buffer (save_buffer was off): it is filled as at the start")
        if self.demonstrations is not None:
            self._demonstrate(copy(self.demonstrations))  # without what was read before, by another processor
        if self.demonstrations is None or self.n_shown:
            try:
                policy = (self.initial_sampling_policy or RandomPolicy)({key: step.action_space for key, step in steps})
            except TypeError as error:
                raise ValueError(f"initial_sampling_policy makes no policy of the action spaces: {error}") from error
            if isinstance(policy, RandomPolicy):
                policy.masks = {key: step.masks for key, step in steps} | policy.masks
            bar = tqdm(None, "replay buffer", self.initial_buffer_size, False, delay=PROGRESS_AFTER, disable=None)
            while min(gather_objects(self._size)) < self.initial_buffer_size:  # all ranks collect equally often
                self._add(batch, policy)
                bar.update(self._size - bar.n)
            bar.close()

    def _demonstrate(self, dataset: InMemoryDataset) -> None:
        """Read demonstrations into the rings, or into storages of their own."""
        plain = processors.IdentityTrajectoryProcessor, processors.IdentityWithNextObservationTrajectoryProcessor
        if is_plain := type(dataset.processor) in plain:
            dataset.processor = plain[1](self.trainer.lightning_module.gamma)
        dataset.load(partial(make_frozen, self._factory_of(), self._learned()), self.spec)
        acts = dataset.batch(torch.arange(len(dataset))).acts
        for (key, columns), lengths in zip(acts.items(), dataset.lengths.T, strict=True):
            n, fields = len(columns), mapped(Tensor.numpy, vars(columns))
            if any(fields[name] is None for name in ("next_observation", "reward", "discount")):
                whose = f"demonstrations by {type(dataset.processor).__name__}"
                raise ValueError(f"{whose} hold no next observations: leave out trajectory_processor")
            if self.n_shown:
                self._storages[key].append(self._new_storage(self.spec.steps[key], max(1, n)))
            elif n > self.replay_buffer_size:
                room = f"replay_buffer_size={self.replay_buffer_size}: raise it, or give a demonstration_share"
                raise ValueError(f"{n} demonstrated acts of sub-step {key!r} are more than {room}")
            # other processors may leave out acts, so that nobody knows which one follows
            episode = np.repeat(np.arange(len(lengths)), lengths) * (fields["agent_id"].max(initial=0) + 1)
            fields["stream"] = -1 - (episode + fields["agent_id"] if is_plain else np.arange(n))
            self._storages[key][-1].add({**fields, "is_first": np.zeros(n, np.bool_)})

    # -------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """That of the environments and, if it is asked for, the names of the files with the buffers of all ranks."""
        state = super().state_dict()
        if not (self.save_buffer and self._storages):
            return state
        folder = (*self._folders(), Path(self.trainer.default_root_dir, "checkpoints"))[0].absolute()
        return state | {"replay": {"folder": str(folder), "files": gather_objects(self._save(folder))}}

    def _described(self) -> dict[str, Any]:
        """What a buffer must have in common with another one to take its place."""
        gamma = self.trainer.lightning_module.gamma
        return {**self._kind, "spec": self.spec.to_dict(), "gamma": gamma, "ranks and actors": self._layout}

    def _save(self, folder: Path) -> str:
        """Write the buffer, unless it was written since it changed; gives the name of the file."""
        if not self._file:
            part, storages = folder / f"replay-{self._rank}.part", self._storages.items()
            state = {"described": self._described(), "open": self._transitions.state_dict()}
            state |= {"storages": {key: [one.state_dict() for one in kept] for key, kept in storages}}
            try:
                folder.mkdir(parents=True, exist_ok=True)
                torch.save(state | {"generator": self._generator.get_state()}, part)
                self._file = part.replace(folder / f"replay-{_digest(part)}.pt").name
            except (OSError, RuntimeError) as error:
                part.unlink(missing_ok=True)
                raise OSError(f"the replay buffer cannot be written to {folder}: {error}") from error
        return self._file

    def _load(self, saved: dict[str, Any]) -> None:
        """Go on with a buffer that was written.

        Raises:
            ValueError: It is not there, it is not what was written, or it is another kind of buffer.
        """
        name = (saved["files"] * self._world_size)[self._rank]
        paths = [Path(folder, name) for folder in (Path(self.trainer.ckpt_path).parent, saved["folder"])]
        path = next((path for path in paths if path.is_file() and _digest(path) in name), None)
        if path is None:
            raise ValueError(f"the replay buffer {paths[0]}, which the checkpoint names, is missing or was altered")
        state = torch.load(path, weights_only=True, mmap=True)
        then, now = state["described"], self._described()
        other = [f"{name} was {then[name]!r:.80} and is {now[name]!r:.80}" for name in now if now[name] != then[name]]
        if other:
            raise ValueError(f"the replay buffer {path} does not fit: {', '.join(other)}")
        for key, kept in state["storages"].items():
            made = [(one, self._new_storage(self.spec.steps[key], one["capacity"])) for one in kept]
            self._storages[key] = [storage.load_state_dict(one) for one, storage in made]
        self._transitions.load_state_dict(state["open"])
        self._generator.set_state(state["generator"])

    def _folders(self) -> list[Path]:
        """Folders of checkpoints."""
        paths = [vars(one).get("dirpath") for one in self.trainer.checkpoint_callbacks] if self.trainer else []
        return [Path(path) for path in paths if path]

    def _tidy(self) -> None:
        """Forget the buffer that was written, which changes now, and remove those that no checkpoint names any more."""
        folders = self._folders() if self._file and self._rank == 0 else []
        named = b"".join(path.read_bytes() for folder in folders for path in folder.glob("*.ckpt"))
        for buffer in [path for folder in folders for path in folder.glob("replay-*")]:
            if buffer.name.encode() not in named:
                buffer.unlink(missing_ok=True)
        self._file = ""


def _digest(path: Path) -> str:
    content: Any = np.memmap(path, mode="r") if path.stat().st_size else b""
    return hashlib.sha256(content).hexdigest()

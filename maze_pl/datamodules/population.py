"""The data module of evolution strategies: its batches are the returns of a population of perturbed policies."""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any, cast

import numpy as np
import torch

from maze_pl.collect.environment_actor import EnvironmentActor
from maze_pl.collect.population_actor import Played, PopulationActor
from maze_pl.core.population import NoiseTable, PopulationBatch, perturbed_parameters
from maze_pl.core.ranks import gather_objects
from maze_pl.core.seeding import derive_seed
from maze_pl.datamodules.environments import Env, EnvironmentDataModule, Source
from maze_pl.datamodules.rollout_evaluator import require_count
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.wrappers import TimeLimitWrapper


def _numbers(pairs: Iterable[int]) -> Iterator[int]:
    """Numbers of the episodes of pairs."""
    return (2 * pair + half for pair in pairs for half in (0, 1))


class PopulationDataModule(EnvironmentDataModule):
    """Has pairs of perturbed policies play an episode each; one pair has the same noise, added and subtracted.

    Both policies of a pair play the same episode, and what is random in it depends on the seed and on the numbers of
    update and pair alone. An update takes pairs in the order of their numbers, as few as are needed for both minima.
    So neither the engine nor the number of its workers, nor the number of ranks, decides anything about it. How many
    pairs are needed to reach a number of env steps is not known before: free workers play ahead, a part of an episode
    at a time, and what is not needed in the end is abandoned, and counts nowhere.

    The algorithm, `maze_pl.modules.ES`, says by how much policies are perturbed.

    Args:
        env: Builds one environment; a bare gymnasium environment is adapted.
        wrappers: Wrap it, the first one innermost. What they learn while policies are perturbed is brought together
            after each update; each episode of it begins with what was known before.
        n_rollouts_per_update: Episodes of an update, at least, over all ranks.
        n_timesteps_per_update: Environment steps of an update, at least, over all ranks. One of the two may be 0.
        max_steps: Environment steps after which an episode of training is truncated; 0 means without limit.
        epoch_length: Updates of an epoch, which is followed by evaluation.
        n_shards: 0, as each episode is played by itself; `runner/dev`, `runner/local` and `runner/ray` say so.
        deterministic: Whether perturbed policies take their most likely actions instead of sampling.
        shared_noise_table_size: Numbers in the table of noise, 4 bytes each, which all processes of a machine share.
        options: Those of `EnvironmentDataModule`: evaluators, seed, engine and others.

    Raises:
        ValueError: A number is out of range, or both minima are 0.
    """

    _actor = PopulationActor

    def __init__(
        self,
        env: Callable[[], Env],
        wrappers: list[Callable[[Env], Env]] | None = None,
        n_rollouts_per_update: int = 10,
        n_timesteps_per_update: int = 0,
        max_steps: int = 0,
        epoch_length: int = 1,
        n_shards: int = 0,
        deterministic: bool = True,
        shared_noise_table_size: int = 100_000_000,
        **options: Any,
    ) -> None:
        super().__init__(env, wrappers, **options)
        least = {"n_rollouts_per_update": 0, "n_timesteps_per_update": 0, "max_steps": 0}
        for name, minimum in {**least, "epoch_length": 1, "shared_noise_table_size": 1}.items():
            require_count(name, locals()[name], minimum)
        if n_shards:
            raise ValueError(f"n_shards={n_shards} must be 0: each episode of a population is played by itself")
        if n_rollouts_per_update == n_timesteps_per_update == 0:
            raise ValueError("n_rollouts_per_update and n_timesteps_per_update are both 0: set at least one of them")
        self.n_rollouts_per_update, self.n_timesteps_per_update = n_rollouts_per_update, n_timesteps_per_update
        self.max_steps, self.epoch_length, self.deterministic = max_steps, epoch_length, deterministic
        self._noise = NoiseTable(derive_seed(self.seed, "noise table"), shared_noise_table_size)
        self._busy: dict[int, tuple[int, int]] = {}  # actor -> number and update of the episode that it plays

    def train_dataloader(self) -> Source[PopulationBatch]:
        """What populations return, played when asked for."""
        return Source(self._collect, self.epoch_length)

    def _make_actor(self) -> Callable[..., EnvironmentActor]:
        self._busy = {}
        limit = [partial(TimeLimitWrapper, max_episode_steps=self.max_steps)] if self.max_steps else []
        options: Any = {"spec": self.spec, "seed": self.seed, "autoreset": False, "seed_by_env": False}
        training = [partial(SequentialVectorEnv, [self._factory_of(None, *limit)], **options)]
        return partial(super()._make_actor(), training=training, noise=self._noise, deterministic=self.deterministic)

    def _ask(self, jobs: list[tuple[int, str, tuple[Any, ...]]]) -> list[Any]:
        while self._busy:  # with parts of episodes that were not needed
            del self._busy[self.engine.get().actor]
        return super()._ask(jobs)

    def _collect(self) -> PopulationBatch:
        """Play the episodes of the next update."""
        began, policy, trainer = time.perf_counter(), self._policy(), cast(Any, self.trainer)
        self._refuse_foreign_checkpoint()
        if not hasattr(trainer.lightning_module, "noise_stddev"):
            raise ValueError("a PopulationDataModule is for algorithms that have a noise_stddev: use ES")
        length = sum(parameter.numel() for parameter in perturbed_parameters(policy))
        self._noise.offset(length)  # fails now if it is too small
        if not self._has_begun:  # ranks of a machine share what the first one makes
            self._close()  # actors that have evaluated something before know of no table but their rank's
            if self._rank == 0:
                self._noise.piece(0, 0)
            tables = gather_objects(self._noise)
            self._noise, self._has_begun = tables[0] if self._rank else self._noise, True
        shared, update = self._learned(), trainer.fit_loop.total_batch_idx + 1
        task = update, trainer.lightning_module.noise_stddev, shared, self._engage(policy)
        (own, used), kinds = self._play(task), self._wrappers
        self._shared = {name: kinds[name].merge_shared_states([one.learned[name] for one in used]) for name in shared}
        offsets = [self._noise.offset(length, update, pair) for pair in range(len(used) // 2)]
        returns = torch.tensor([one.reward for one in used], dtype=torch.float64).view(-1, 2)
        batch = PopulationBatch(self._noise, offsets, returns, sum(one.env_steps for one in own))
        batch.summaries = [summary for one in own for summary in one.summaries]
        batch.measures = {"n_rollouts": len(used), "n_timesteps": sum(one.env_steps for one in used)}
        batch.seconds = time.perf_counter() - began
        return batch

    def _play(self, task: tuple[Any, ...]) -> tuple[list[Played], list[Played]]:
        """Play until an update has enough: its episodes that were played on this rank, and all of them."""
        least, minimum, step = -(-self.n_rollouts_per_update // 2), self.n_timesteps_per_update, self._world_size
        played, found, n_pairs, n_used = dict[int, Played](), dict[int, Played](), max(1, least), 0
        waiting = _numbers(count(self._rank, step) if minimum else range(self._rank, n_pairs, step))
        while not n_used:
            needed = set(_numbers(range(self._rank, n_pairs, step)))
            while needed - played.keys():
                self._advance(waiting, played, task)
            for part in gather_objects({n: played[n]._replace(summaries=[]) for n in needed - found.keys()}):
                found |= part
            env_steps = np.cumsum([found[n].env_steps for n in range(2 * n_pairs)])[1::2]
            n_used = max(least, 1 + int(np.searchsorted(env_steps, minimum))) if env_steps[-1] >= minimum else 0
            n_pairs += step
        numbers = range(2 * n_used)
        return [played[n] for n in numbers if n in played], [found[n] for n in numbers]

    def _advance(self, waiting: Iterator[int], played: dict[int, Played], task: tuple[Any, ...]) -> None:
        """Give actors that are free the next episodes, and wait until one of them has played a part of its own."""
        free = [actor for actor in range(self.engine.n_workers) if actor not in self._busy]
        for actor, number in zip(free, waiting, strict=False):
            self._submit(actor, number, task)
        done = self.engine.get()
        number, update = self._busy.pop(done.actor)
        if update == task[0] and done.result is None:
            self._submit(done.actor, number, task)
        elif update == task[0]:  # otherwise it is of an episode that was not needed
            played[number] = done.result

    def _submit(self, actor: int, number: int, task: tuple[Any, ...]) -> None:
        self._busy[actor] = number, task[0]
        self.engine.submit(actor, "play_perturbed", number, *task)

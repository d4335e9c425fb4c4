"""Data module of evolution strategies: its batches are returns of perturbed policies."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_info

from maze_pl.collect.engines.engine import Engine
from maze_pl.collect.population_worker import Played, PopulationWorker
from maze_pl.collect.rollout_worker import RolloutWorker
from maze_pl.core.actor_id import StepKey
from maze_pl.core.checks import check_count
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.episode_batch import EpisodeBatch, joined_summaries
from maze_pl.core.population import (
    NoiseTable,
    PopulationBatch,
    StackablePolicy,
    perturbed_parameters,
    trainable_flags,
)
from maze_pl.core.seeding import derive_seed
from maze_pl.datamodules.cancelled_returns import warn_if_returns_cancel_out
from maze_pl.datamodules.environment_maker import Env
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator
from maze_pl.datamodules.source import Source
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.system.ranks import gather_objects

_PAIRS_AHEAD = 16  # that play together at least, where the number of pairs is not known in advance


class _Update(NamedTuple):
    """Everything that an episode of an update depends on besides its number.

    The fields are in the order of the arguments of `PopulationWorker.play_perturbed`.

    Attributes:
        number: Number of the update.
        noise_stddev: Factor of the noise.
        wrapper_statistics: Wrapper statistics before the update.
        policy: The policy without noise; None if the players have it already.
        flags: For each parameter of the policy, whether it is perturbed.
    """

    number: int
    noise_stddev: float
    wrapper_statistics: dict[str, Any]
    policy: Any
    flags: tuple[bool, ...]


class _Episodes(NamedTuple):
    """Episodes that an update uses, in the order of their numbers.

    Attributes:
        own: Those that this rank has played.
        summaries: Statistics of these.
        used: The episodes of all ranks, without statistics.
    """

    own: list[Played]
    summaries: Sequence[EpisodeSummary]
    used: list[Played]


def _numbers(pairs: Iterable[int]) -> Iterator[int]:
    """Return the episode numbers of pairs."""
    return (2 * pair + half for pair in pairs for half in (0, 1))


class PopulationDataModule(EnvironmentDataModule):
    """Plays one episode with each of many perturbed policies, in mirrored pairs.

    The two policies of a pair add and subtract the same noise and play the same episode. Its random
    numbers depend only on the seed and on the numbers of update and pair. An update takes pairs in
    the order of their numbers, as few as both minima need. So its result depends neither on the
    engine, nor on the number of workers or ranks. The number of pairs that a number of env steps
    takes is not known in advance: free workers play ahead, a part of an episode at a time, and
    episodes that turn out to be unnecessary are abandoned and counted nowhere.

    The algorithm sets the scale of the perturbations by its `data_requirements`.

    In environments in arrays, whole populations play at the same time, with stacked parameters,
    where most likely actions suffice (`deterministic`), no wrapper gathers statistics, and
    `torch.vmap` evaluates the networks; otherwise a message says why not. Episodes and noise are
    the same in both ways.

    Args:
        env: Builds one environment; a plain gymnasium environment is adapted.
        wrappers: Callables that wrap the environment, the first one innermost. Statistics that they
            gather during an update are merged after it; each of its episodes begins with the
            statistics from before the update.
        n_rollouts_per_update: Minimum number of episodes per update, over all ranks.
        n_timesteps_per_update: Minimum number of env steps per update, over all ranks. One of the
            two minima may be 0.
        max_steps: Env steps after which a training episode is truncated; 0 means no limit.
        epoch_length: Updates per epoch; evaluation follows each epoch.
        n_shards: Must be 0, as each episode is played separately; `runner/dev`, `runner/local` and
            `runner/ray` set it.
        deterministic: Whether perturbed policies take their most likely actions instead of sampling.
        shared_noise_table_size: Numbers in the noise table, 4 bytes each; all processes of a
            machine share it.
        evaluators: Evaluators by name; None means one named `eval`, an empty dict means none.
        seed: Seed of the run; None takes the seed of `seed_everything`.
        action_masks: Action head -> observation that is 1 where an action is allowed, else 0; adds
            to the masks that the environment declares itself.
        max_agents: Maximum number of agents at the same time, for sub-steps whose number of agents
            varies.
        n_normalization_samples: Observations from which wrappers estimate their statistics.
        engine: Runs the environments; None means in this process.
        check: Validation of environment returns in each step, `fast` or `full`; see
            `SequentialVectorEnv`.

    Raises:
        ValueError: A number is out of range, or both minima are 0. When collecting begins in arrays: a wrapper has
            no array form, the engine has a step timeout, or a vector environment of gymnasium takes one seed for
            all its environments, which are to play at the same time.
    """

    batch_type: ClassVar[type] = PopulationBatch
    _player_class = PopulationWorker

    def __init__(
        self,
        env: Callable[[], Env],
        wrappers: list[Callable[[Any], Env]] | None = None,
        n_rollouts_per_update: int = 10,
        n_timesteps_per_update: int = 0,
        max_steps: int = 0,
        epoch_length: int = 1,
        n_shards: int = 0,
        deterministic: bool = True,
        shared_noise_table_size: int = 100_000_000,
        evaluators: dict[str, RolloutEvaluator] | None = None,
        seed: int | None = None,
        action_masks: dict[str, str] | None = None,
        max_agents: dict[StepKey, int] | None = None,
        n_normalization_samples: int = 1000,
        engine: Engine | None = None,
        check: Literal["fast", "full"] = "fast",
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
        check_count("n_rollouts_per_update", n_rollouts_per_update, 0)
        check_count("n_timesteps_per_update", n_timesteps_per_update, 0)
        check_count("max_steps", max_steps, 0)
        check_count("epoch_length", epoch_length, 1)
        check_count("shared_noise_table_size", shared_noise_table_size, 1)
        if n_shards:
            raise ValueError(f"n_shards={n_shards} must be 0: each episode of a population is played separately")
        if n_rollouts_per_update == n_timesteps_per_update == 0:
            raise ValueError("n_rollouts_per_update and n_timesteps_per_update are both 0: set at least one of them")
        self.n_rollouts_per_update = n_rollouts_per_update
        self.n_timesteps_per_update = n_timesteps_per_update
        self.max_steps = max_steps
        self.epoch_length = epoch_length
        self.deterministic = deterministic
        self._noise = NoiseTable(derive_seed(self.seed, "noise table"), shared_noise_table_size)
        # decided when a run begins to collect, and when parameters are frozen
        self._plays_together = False
        self._flags: tuple[bool, ...] = ()  # for which it was decided
        self._busy: dict[int, tuple[int, int]] = {}  # player -> (episode number, update) of the episode in progress

    def train_dataloader(self) -> Source[PopulationBatch]:
        """Returns of populations, played on demand."""
        return Source(self._collect, self.epoch_length)

    def _make_player(self) -> Callable[..., RolloutWorker]:
        self._busy = {}
        limit = [partial(TimeLimitWrapper, max_episode_steps=self.max_steps)] if self.max_steps else []
        options: Any = {"seed": self.seed, "autoreset": False, "seed_by_env": False}
        environments = self._environments
        if environments.description.is_array:
            training: Any = environments.array_vector(1, *limit, **options)
        else:
            training = environments.vector_of([environments.factory(*limit)], **options)
        population = None
        if self._plays_together:
            same = "a population, whose pairs play the same episodes,"
            population = environments.array_vector(self._n_together(), *limit, same_starts=same, **options)
        return partial(
            super()._make_player(),
            training=[training],
            noise=self._noise,
            population=population,
            deterministic=self.deterministic,
        )

    def _n_together(self) -> int:
        """Return the number of episodes that a worker plays at the same time in arrays."""
        pairs = -(-self.n_rollouts_per_update // 2)
        if self.n_timesteps_per_update:
            pairs = max(pairs, _PAIRS_AHEAD)
        return 2 * -(-pairs // (self._world_size * self.engine.n_workers))

    def _decide(self, policy: Any, statistics: dict[str, Any], flags: tuple[bool, ...]) -> None:
        """Decide whether policies play at the same time while these parameters are perturbed."""
        self._plays_together = self._environments.description.is_array and self._can_play_together(policy, statistics)
        self._flags = flags

    def _can_play_together(self, policy: Any, wrapper_statistics: dict[str, Any]) -> bool:
        """Return whether policies can play at the same time in arrays; a message says why not."""
        reason = self._why_one_by_one(policy, wrapper_statistics)
        if reason is not None:
            rank_zero_info(f"policies of a population play one after the other: {reason}")
        return reason is None

    def _why_one_by_one(self, policy: Any, wrapper_statistics: dict[str, Any]) -> str | None:
        """Return why policies cannot play at the same time; None if they can."""
        if not self.deterministic:
            return "they sample their actions: deterministic=False"
        if wrapper_statistics:
            return f"wrappers gather statistics: {', '.join(wrapper_statistics)}"
        if not isinstance(policy, StackablePolicy):
            return f"a {type(policy).__name__} has no stacked copies"
        try:
            policy.stacked()
        except ValueError as error:
            return str(error)
        return None

    def _ask(self, jobs: list[tuple[int, str, tuple[Any, ...]]]) -> list[Any]:
        self._players.require_current(self.engine)
        while self._busy:  # with parts of episodes that are no longer needed
            with self._closed_on_failure():
                del self._busy[self.engine.get().player]
        return super()._ask(jobs)

    def _collect(self) -> PopulationBatch:
        """Play the episodes of the next update."""
        began = time.perf_counter()
        policy = self._policy()
        trainer = cast(Any, self.trainer)
        self._refuse_foreign_checkpoint()
        noise_stddev = self._noise_stddev()
        flags = trainable_flags(policy)
        length = sum(parameter.numel() for parameter in perturbed_parameters(policy, flags))
        noise_seed = derive_seed(self.seed, "noise table")
        if self._noise.seed != noise_seed:  # made before the run began
            self._noise = NoiseTable(noise_seed, self._noise.size)
        self._noise.offset(length)  # fails now if it is too small
        wrapper_statistics = self.wrapper_statistics()
        is_first = not self._has_begun
        self._prepare_players(policy, wrapper_statistics, flags)
        number = trainer.fit_loop.total_batch_idx + 1
        given = self._engage(policy)
        episodes = self._play(_Update(number, noise_stddev, wrapper_statistics, given, flags))
        used = episodes.used
        gathered = [episode.wrapper_statistics for episode in used]
        self._statistics.merge(gathered, self._environments.description.wrappers)
        offsets = [self._noise.offset(length, number, pair) for pair in range(len(used) // 2)]
        returns = torch.tensor([one.reward for one in used], dtype=torch.float64).view(-1, 2)
        if is_first:
            warn_if_returns_cancel_out([one.reward for one in used], [one.paid for one in used])
        env_steps = sum(one.env_steps for one in episodes.own)
        batch = PopulationBatch(self._noise, offsets, returns, env_steps, flags)
        batch.summaries = episodes.summaries
        batch.measures = {
            "n_rollouts": len(used),
            "n_timesteps": sum(one.env_steps for one in used),
        }
        batch.seconds = time.perf_counter() - began
        return batch

    def _noise_stddev(self) -> float:
        """Return the scale of the perturbations.

        Raises:
            ValueError: The algorithm states none.
        """
        noise_stddev = self._requirements().noise_stddev
        if noise_stddev is None:
            remedy = "return DataRequirements(noise_stddev=...) from its data_requirements()"
            raise ValueError(
                f"{self._algorithm_name()} states no noise_stddev, by which policies are perturbed: {remedy}"
            )
        return noise_stddev

    def _prepare_players(self, policy: Any, wrapper_statistics: dict[str, Any], flags: tuple[bool, ...]) -> None:
        """Share the noise, decide how policies play, and close players that do not suit.

        Args:
            policy: The policy without noise.
            wrapper_statistics: Wrapper statistics before the update.
            flags: For each parameter of the policy, whether it is perturbed.
        """
        if not self._has_begun:  # ranks of a machine share the table that rank 0 makes
            self._close()  # players started for an earlier evaluation only know their rank's table
            if self._rank == 0:
                self._noise.piece(0, 0)
            tables = gather_objects(self._noise)
            if self._rank != 0:
                self._noise = tables[0]
            self._has_begun = True
            self._decide(policy, wrapper_statistics, flags)
        elif flags != self._flags:  # a callback has frozen parameters, or trains them again
            before = self._plays_together
            self._decide(policy, wrapper_statistics, flags)
            if self._plays_together != before:  # players get other environments
                self._close()
                self._has_begun = True

    def _play(self, update: _Update) -> _Episodes:
        """Play until an update has enough episodes; ranks take turns with the pairs."""
        n_ranks = self._world_size
        least_pairs = -(-self.n_rollouts_per_update // 2)
        least_env_steps = self.n_timesteps_per_update
        n_pairs = max(1, least_pairs)  # may be needed, as far as is known
        n_more = n_ranks * (_PAIRS_AHEAD if self._plays_together else 1)
        pairs: Iterable[int] = range(self._rank, n_pairs, n_ranks)
        if least_env_steps:
            pairs = count(self._rank, n_ranks)
        waiting = _numbers(pairs)
        played = dict[int, Played]()  # by this rank, by number
        everywhere = dict[int, Played]()  # by all ranks, without statistics
        together_numbers = list[int]()
        together_summaries = list[EpisodeBatch]()
        n_used = 0  # pairs that the update uses
        while not n_used:
            needed = set(_numbers(range(self._rank, n_pairs, n_ranks)))
            if self._plays_together and needed - played.keys():
                numbers = sorted(needed - played.keys())
                together_numbers += numbers
                together_summaries += self._play_together(numbers, played, update)
            while needed - played.keys():
                self._advance(waiting, played, update)
            shared = {n: played[n]._replace(summaries=[]) for n in needed - everywhere.keys()}
            for part in gather_objects(shared):
                everywhere |= part
            # [n_pairs] env steps up to the end of each pair
            env_steps = np.cumsum([everywhere[n].env_steps for n in range(2 * n_pairs)])[1::2]
            if env_steps[-1] >= least_env_steps:
                n_used = max(least_pairs, 1 + int(np.searchsorted(env_steps, least_env_steps)))
            n_pairs += n_more
        own = [n for n in range(2 * n_used) if n in played]
        summaries: Sequence[EpisodeSummary] = joined_summaries([played[n].summaries for n in own])
        if together_summaries:
            place = {number: place for place, number in enumerate(together_numbers)}
            order = np.array([place[number] for number in own])
            summaries = EpisodeBatch.concatenated(together_summaries).chosen(order)
        used = [everywhere[n] for n in range(2 * n_used)]
        return _Episodes([played[n] for n in own], summaries, used)

    def _play_together(self, numbers: list[int], played: dict[int, Played], update: _Update) -> list[EpisodeBatch]:
        """Play episodes in arrays, a share of them on each player; return their statistics in the same order."""
        shares = [share for share in np.array_split(np.array(numbers), self.engine.n_workers) if len(share)]
        jobs = []
        for player, share in enumerate(shares):
            arguments = (
                share.tolist(),
                update.number,
                update.noise_stddev,
                update.policy,
                update.flags,
            )
            jobs.append((player, "play_together", arguments))
        summaries = []
        for share, (rewards, paid, batch) in zip(shares, self._ask(jobs), strict=True):
            columns = share.tolist(), rewards.tolist(), paid.tolist(), batch.env_steps.tolist()
            for number, reward, size, env_steps in zip(*columns, strict=True):
                played[number] = Played(reward, size, env_steps, [], {})
            summaries.append(batch)
        return summaries

    def _advance(self, waiting: Iterator[int], played: dict[int, Played], update: _Update) -> None:
        """Give free players the next episodes, and wait for one part of an episode."""
        free = [player for player in range(self.engine.n_workers) if player not in self._busy]
        for player, number in zip(free, waiting, strict=False):
            self._submit(player, number, update)
        with self._closed_on_failure():
            done = self.engine.get()
        number, update_number = self._busy.pop(done.player)
        if update_number != update.number:
            return  # the episode was not needed
        if done.result is None:
            self._submit(done.player, number, update)
        else:
            played[number] = done.result

    def _submit(self, player: int, number: int, update: _Update) -> None:
        self._busy[player] = number, update.number
        self.engine.submit(player, "play_perturbed", number, *update)

"""Data module of self-labelling: its batches are acts of the best of several episodes from each start."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from maze_pl.collect.best_episode_worker import BestEpisode, BestEpisodeWorker
from maze_pl.collect.engines.engine import Engine
from maze_pl.collect.rollout_worker import RolloutWorker
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import BestEpisodesBatch
from maze_pl.core.checks import check_count
from maze_pl.core.seeding import derive_seed
from maze_pl.datamodules.best_episodes import BestEpisodes
from maze_pl.datamodules.best_episodes_loader import BestEpisodesLoader
from maze_pl.datamodules.cancelled_returns import warn_if_returns_cancel_out
from maze_pl.datamodules.environment_maker import Env
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator
from maze_pl.envs.wrappers.time_limit_wrapper import TimeLimitWrapper
from maze_pl.system.ranks import gather_objects


class SelfLabellingDataModule(EnvironmentDataModule):
    """Plays several episodes from each of several starts, and serves the acts of the best ones.

    In each epoch the policy in training plays `n_samples` episodes with sampled actions from each of
    `n_starts` new starts. The episode of each start with the largest return, of rewards as changed by
    wrappers, is imitated. No demonstrations and no critic are needed. Corsini et al. 2024,
    arXiv:2401.11849, "Self-labeling the job shop scheduling problem".

    All episodes from a start have the same seed, so that they differ by the actions only, where
    nothing else is random. In environments in arrays, they are played at the same time, with the
    same results. Several ranks share the starts and the order of the acts.

    Args:
        env: Builds one environment; a plain gymnasium environment is adapted.
        wrappers: Callables that wrap the environment, the first one innermost. Their statistics are
            estimated once.
        n_starts: Starts per epoch, over all ranks.
        n_samples: Episodes from each start.
        batch_size: Acts per batch on each rank, over all sub-steps.
        epoch_length: Batches per epoch; evaluation follows each epoch. The acts are served in random
            order, as often as there are batches.
        max_steps: Env steps after which a training episode is truncated; 0 means no limit.
        evaluators: Evaluators by name; None means one named `eval`, an empty dict means none.
        seed: Seed of the run; None takes the seed of `seed_everything`.
        action_masks: Action head -> observation that is 1 where an action is allowed, else 0; adds
            to the masks that the environment declares itself.
        max_agents: Maximum number of agents at the same time, for sub-steps whose number of agents varies.
        n_normalization_samples: Observations from which wrappers estimate their statistics.
        engine: Runs the environments; None means in this process.
        check: Validation of environment returns in each step, `fast` or `full`; see
            `SequentialVectorEnv`.
        n_shards: Must be 0, as each start is played separately; `runner/dev`, `runner/local` and
            `runner/ray` set it.

    Raises:
        ValueError: A number is out of range. When training begins: a vector environment of gymnasium takes
            one seed for all its environments.
    """

    batch_type: ClassVar[type] = BestEpisodesBatch
    _player_class = BestEpisodeWorker

    def __init__(
        self,
        env: Callable[[], Env],
        wrappers: list[Callable[[Any], Env]] | None = None,
        n_starts: int = 16,
        n_samples: int = 32,
        batch_size: int = 128,
        epoch_length: int = 32,
        max_steps: int = 0,
        evaluators: dict[str, RolloutEvaluator] | None = None,
        seed: int | None = None,
        action_masks: dict[str, str] | None = None,
        max_agents: dict[StepKey, int] | None = None,
        n_normalization_samples: int = 1000,
        engine: Engine | None = None,
        check: Literal["fast", "full"] = "fast",
        n_shards: int = 0,
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
        if n_shards:
            raise ValueError(f"n_shards={n_shards} must be 0: each start is played separately")
        check_count("n_starts", n_starts, 1)
        check_count("n_samples", n_samples, 2)
        check_count("batch_size", batch_size, 1)
        check_count("epoch_length", epoch_length, 1)
        check_count("max_steps", max_steps, 0)
        self.n_starts = n_starts
        self.n_samples = n_samples
        self.batch_size = batch_size
        self.epoch_length = epoch_length
        self.max_steps = max_steps
        self.episodes = BestEpisodes()

    def setup(self, stage: str) -> None:
        """Forget the episodes of the previous run; this run's are restored after this hook."""
        super().setup(stage)
        if stage == "fit":
            self.episodes = BestEpisodes()

    def train_dataloader(self) -> BestEpisodesLoader:
        """Batches of the best episodes, which are played when an epoch begins."""
        return BestEpisodesLoader(self, self._rank, self._world_size)

    def _make_player(self) -> Callable[..., RolloutWorker]:
        limit = [partial(TimeLimitWrapper, max_episode_steps=self.max_steps)] if self.max_steps else []
        options: Any = {"seed": derive_seed(self.seed, "train"), "autoreset": False, "seed_by_env": False}
        environments = self._environments
        if environments.description.is_array:
            same = f"self-labelling with n_samples={self.n_samples}"
            training: Any = environments.array_vector(self.n_samples, *limit, same_starts=same, **options)
        else:
            training = environments.vector_of([environments.factory(*limit)] * self.n_samples, **options)
        return partial(super()._make_player(), training=[training])

    def play(self, epoch: int) -> BestEpisodes:
        """Play the episodes of an epoch; the same on all ranks.

        Args:
            epoch: Number of the epoch.
        """
        began = time.perf_counter()
        self._refuse_foreign_checkpoint()
        wrapper_statistics = self.wrapper_statistics()
        given = self._engage(self._policy())
        first = epoch * self.n_starts
        own = range(first + self._rank, first + self.n_starts, self._world_size)
        jobs = []
        for place, start in enumerate(own):
            jobs.append((place % self.engine.n_workers, "play_best", (start, wrapper_statistics, given)))
        found: list[BestEpisode] = self._ask(jobs)
        best: dict[int, tuple[bytes, float]] = {}
        for start, one in zip(own, found, strict=True):
            best[start] = one.record.to_bytes(), one.summaries[one.place].reward
        if epoch == 0:
            warn_if_returns_cancel_out([one.size_of_sums for one in found], [one.paid for one in found])
        env_steps = sum(summary.env_steps for one in found for summary in one.summaries)
        everywhere: dict[int, tuple[bytes, float]] = {}
        n_timesteps = 0
        for part, of_rank in gather_objects((best, env_steps)):
            everywhere |= part
            n_timesteps += of_rank
        in_order = [everywhere[start] for start in sorted(everywhere)]
        self.episodes = BestEpisodes(epoch, [record for record, _ in in_order])
        self.episodes.measures = {  # of all ranks
            "best_return": float(np.mean([reward for _, reward in in_order])),
            "n_timesteps": float(n_timesteps),
        }
        self.episodes.summaries = [summary for one in found for summary in one.summaries]
        self.episodes.seconds = time.perf_counter() - began
        return self.episodes

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapper statistics and the episodes of the running epoch."""
        return {**super().state_dict(), "epoch": self.episodes.epoch, "episodes": self.episodes.to_tensors()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self.episodes = BestEpisodes.from_tensors(state_dict["epoch"], state_dict["episodes"])

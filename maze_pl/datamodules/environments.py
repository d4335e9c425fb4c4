"""Base of data modules with environments: building them, evaluation and wrapper statistics."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, Literal

import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_info

from maze_pl.collect.engines import Engine, InProcessEngine
from maze_pl.collect.rollout_worker import RolloutWorker
from maze_pl.collect.state_tensors import from_tensors, to_tensors
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batch_types import require_fitting_module
from maze_pl.core.batches import Evaluation
from maze_pl.core.checkpoint_content import WRAPPER_STATISTICS
from maze_pl.core.checks import MOST_EPISODES, check_count
from maze_pl.core.episode_batch import joined_summaries
from maze_pl.core.policy import Policy
from maze_pl.core.run_starts import is_first_fit
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.core.training_data import DataRequirements, DeclaresPolicy, requirements_of
from maze_pl.datamodules.completed_statistics import CompletedStatistics, completed_statistics
from maze_pl.datamodules.environment_maker import Env, EnvironmentMaker
from maze_pl.datamodules.evaluation_environments import EvaluationEnvironments
from maze_pl.datamodules.players import Players
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator, checked_evaluators
from maze_pl.datamodules.run_seed import RunSeed
from maze_pl.datamodules.source import Source
from maze_pl.datamodules.statistics_of_other_stacks import require_known_statistics, taken_statistics
from maze_pl.datamodules.wrapper_statistics import WrapperStatistics
from maze_pl.envs.building import make_frozen
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.events.event_log_ends import (
    EVENT_LOG_ENDS,
    EventLogEnds,
    cut_event_logs,
    event_log_ends,
    last_ends,
    log_folders,
)
from maze_pl.system.ranks import gather_objects
from maze_pl.system.signals import StoppedBySignal, abandoned_after_signal

_SEED = "seed"
"""Key of the seed in the state of a data module."""


class EnvironmentDataModule(pl.LightningDataModule):
    """Owns environments and plays evaluation episodes; subclasses provide the training data.

    Args:
        env: Builds one environment; a plain gymnasium environment is adapted. Without one (None)
            nothing is evaluated, and a subclass must know the `spec`.
        wrappers: Callables that wrap the environment, the first one innermost.
        evaluators: Evaluators by name; None means one named `eval`, an empty dict means none.
        seed: Seed of the run; None takes the seed of `seed_everything` when a run begins, and that of the
            checkpoint when one is resumed.
        action_masks: Action head -> observation that is 1 where an action is allowed, else 0; adds
            to the masks that the environment declares itself.
        max_agents: Maximum number of agents at the same time, for sub-steps whose number of agents varies.
        n_normalization_samples: Observations from which wrappers estimate their statistics.
        engine: Runs the environments; None means in this process.
        check: Validation of environment returns in each step, `fast` or `full`; see `SequentialVectorEnv`.

    Attributes:
        batch_type: Class of the training batches, which algorithms are checked against. Where a
            subclass does not declare it, each batch is checked when it arrives.
    """

    batch_type: ClassVar[type] = object
    _player_class = RolloutWorker

    def __init__(
        self,
        env: Callable[[], Env] | None,
        wrappers: list[Callable[[Any], Env]] | None = None,
        evaluators: dict[str, RolloutEvaluator] | None = None,
        seed: int | None = None,
        action_masks: dict[str, str] | None = None,
        max_agents: dict[StepKey, int] | None = None,
        n_normalization_samples: int = 1000,
        engine: Engine | None = None,
        check: Literal["fast", "full"] = "fast",
    ) -> None:
        super().__init__()
        if check not in ("fast", "full"):
            raise ValueError(f"check={check!r} must be 'fast' or 'full'")
        check_count("n_normalization_samples", n_normalization_samples, 1)
        self.evaluators = checked_evaluators(evaluators, has_env=env is not None)
        self._seed = RunSeed(seed)
        self.n_normalization_samples = n_normalization_samples
        self.engine = engine or InProcessEngine()
        self.check = check
        self._environments = EnvironmentMaker(
            env,
            wrappers,
            action_masks,
            max_agents,
            check=check,
            step_timeout=self.engine.step_timeout,
            owner=type(self).__qualname__,
        )
        self._evaluation = EvaluationEnvironments(self._environments, self.evaluators)
        self._statistics = WrapperStatistics()
        self._players = Players(type(self).__name__)
        self._first_episode = 0  # of evaluations
        self._has_begun = False  # True once collecting started, so that players have a state to save
        self._log_folders = set[str]()  # of event logs that players, or the run that was resumed, have written

    @property
    def seed(self) -> int:
        """Seed of the run, from which those of environments, policies and evaluations are derived."""
        return self._seed.value

    @seed.setter
    def seed(self, seed: int) -> None:
        self._seed.given = seed

    # --------------------------------------------------------------------------------------------- description

    @property
    def spec(self) -> Spec:
        """Observation and action spaces of the agents, read from a temporary environment."""
        return self._environments.description.spec

    @property
    def kpi_names(self) -> tuple[str, ...] | None:
        """Names of the KPIs of an episode; None if the environment does not declare them."""
        return self._environments.description.kpi_names if self._environments.has_env else None

    def kpi_names_of(self, source: str) -> tuple[str, ...] | None:
        """Return the names of the KPIs of an evaluator's episodes, or those of training.

        Args:
            source: Name of an evaluator; others stand for training.

        Returns:
            The names; None if the environment does not declare them.
        """
        if source not in self.evaluators:
            return self.kpi_names
        return self._evaluation.of(source).description.kpi_names

    @property
    def rollout_options(self) -> dict[str, Any]:
        """Environment for single episodes, wrappers, action masks and numbers of agents, as arguments of `rollout`."""
        return self._environments.rollout_options

    def make_env(self) -> LogStatsWrapper:
        """Make one wrapped environment with frozen statistics, as used in evaluation."""
        return make_frozen(self._environments.factory(), self.wrapper_statistics())

    # ------------------------------------------------------------------------------------------------- hooks

    def setup(self, stage: str) -> None:
        """Refuse a module that learns from other batches; forget the checkpoint of the previous run."""
        if stage == "fit" and self.trainer is not None:
            require_fitting_module(self.trainer.lightning_module, self)
            self._statistics.begin_fit(self.trainer.lightning_module)
        self._close()
        if self.trainer is None or stage == "fit":
            self._seed.begin_fit(is_new_run=self.trainer is None or is_first_fit(self.trainer))
        else:
            self._seed.begin_evaluation()
        self._statistics.are_of_checkpoint = False
        self._evaluation.check()  # fails now, not after an epoch

    def val_dataloader(self) -> list[Any]:
        """One dataloader for each evaluator, with its episodes."""
        return [Source(partial(self.evaluate, name)) for name in self.evaluators]

    def test_dataloader(self) -> list[Any]:
        """Return the dataloaders of validation."""
        return self.val_dataloader()

    def teardown(self, stage: str) -> None:
        """Close the environments."""
        self._close()

    def _close(self) -> None:
        self._players.end(self.engine)
        self._has_begun = False

    def on_exception(self, exception: BaseException) -> None:
        """Close the environments, as no teardown follows; after a signal, processes that they use may have ended."""
        ignored = (Exception,) if isinstance(exception, StoppedBySignal) else ()
        with suppress(*ignored):
            self._close()

    # ---------------------------------------------------------------------------------------------- evaluation

    def _policy(self) -> Any:
        if self.trainer is None or self.trainer.lightning_module is None:
            raise RuntimeError("rollouts need a policy: use this data module in Trainer.fit or Trainer.validate")
        return self.trainer.lightning_module.policy

    def _requirements(self) -> DataRequirements:
        """Return what the module in training requires of its data."""
        return requirements_of(None if self.trainer is None else self.trainer.lightning_module)

    def _algorithm_name(self) -> str:
        return "no algorithm" if self.trainer is None else type(self.trainer.lightning_module).__name__

    def _make_player(self) -> Callable[..., RolloutWorker]:
        """Return the factory of the engine's players."""
        evaluation = {}
        for name, evaluator in self.evaluators.items():
            options = {"seed": derive_seed(self.seed, "evaluation", name), "autoreset": False, "seed_by_env": False}
            evaluation[name] = self._evaluation.vector(name, **options), evaluator.deterministic
        return partial(self._player_class, self.seed, evaluation)

    def _engage(self, policy: Any) -> Any:
        """Prepare the engine to act with the current weights of a policy.

        Returns:
            The policy to send to the players; None if they have it already.
        """
        if not self._players.are_started:  # other policies than that of the module come with the jobs
            module = None if self.trainer is None else self.trainer.lightning_module
            acting = module.policy if isinstance(module, DeclaresPolicy) else policy
            self._players.start(self.engine, self._make_player(), acting)
        return self._players.update(self.engine, policy)

    def _ask(self, jobs: list[tuple[int, str, tuple[Any, ...]]]) -> list[Any]:
        """Return the players' answers."""
        self._players.require_current(self.engine)
        with self._closed_on_failure():
            return self.engine.map(jobs)

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        """Wait for players; if one fails, close all, as the other answers would never be collected."""
        with abandoned_after_signal():
            try:
                yield
            except BaseException:
                self._close()
                raise

    @contextmanager
    def final_episodes(self) -> Iterator[None]:
        """Let `evaluate` play as many other episodes, by which no checkpoint is chosen."""
        self._first_episode = MOST_EPISODES  # an index that no other evaluation reaches
        try:
            yield
        finally:
            self._first_episode = 0

    def evaluate(
        self, name: str, policy: Policy | None = None, wrapper_statistics: dict[str, Any] | None = None
    ) -> Evaluation:
        """Play the episodes of an evaluator, always the same ones; each rank plays its share.

        Args:
            name: Name of the evaluator.
            policy: Chooses the actions; None means the policy of the module in training.
            wrapper_statistics: Wrapper statistics, in the form of `warm_start`; None means the current ones.
        """
        wrapper_statistics = self.wrapper_statistics() if wrapper_statistics is None else wrapper_statistics
        given = self._engage(self._policy() if policy is None else policy)
        groups = self.evaluators[name].groups[self._rank :: self._world_size]
        wrapper_statistics = self._evaluation.statistics_for(name, wrapper_statistics)
        first = self._first_episode
        jobs = []
        for place, group in enumerate(groups):
            episodes = range(first + group.start, first + group.stop)
            jobs.append((place % self.engine.n_workers, "play", (name, episodes, wrapper_statistics, given)))
        return Evaluation(name, joined_summaries(self._ask(jobs)))

    # -------------------------------------------------------------------------------------------------- state

    def wrapper_statistics(self) -> dict[str, Any]:
        """Wrapper statistics: those taken over, and the rest, estimated by rank 0 on first use.

        Raises:
            ValueError: A checkpoint holds statistics of other wrappers.
        """
        known = self._statistics.complete_states
        if known is not None:
            return known
        is_taken_over = self._statistics.states is not None
        is_first = self._rank == 0 and self._environments.has_env
        states = self._statistics.complete(self._completed() if is_first else CompletedStatistics({}))
        if states and not is_taken_over:
            self._refuse_foreign_checkpoint()
        self._evaluation.require_playable(states)
        return states

    def statistics_in(self, options: Mapping[str, Any], owner: str) -> dict[str, Any]:
        """Return the current wrapper statistics for another environment or other wrappers.

        Args:
            options: Environment, wrappers, action masks and numbers of agents, as `rollout_options` returns them.
            owner: What has them, for messages.

        Raises:
            ValueError: A normalisation of training is missing, or there are wrappers with other statistics.
        """
        other = EnvironmentMaker(**options, check=self.check, step_timeout=None, owner=type(self).__qualname__)
        own = other.description
        require_known_statistics(owner, self._environments.description, own)
        return taken_statistics(own, self.wrapper_statistics())

    def _completed(self) -> CompletedStatistics:
        """Estimate the wrapper statistics that are missing."""
        wrappers = self._environments.description.wrappers
        vector = self._environments.vector_of([self._environments.factory()])

        def estimate(known: dict[str, Any]) -> dict[str, Any]:
            with closing(vector()) as env:
                return env.estimate(self.n_normalization_samples, derive_seed(self.seed, "normalization"), known)

        return completed_statistics(self._statistics.states, list(wrappers), estimate, self._statistics.may_differ)

    def _refuse_foreign_checkpoint(self) -> None:
        """Refuse a checkpoint without state of this class, which Lightning would ignore."""
        checkpoint = None if self.trainer is None else self.trainer.ckpt_path
        if checkpoint is not None and not self._statistics.are_of_checkpoint:
            fault = f"the checkpoint {checkpoint} holds no state of a {type(self).__qualname__}"
            remedy = "resume with the class of data module that wrote it, or use its weights alone with --warm-start"
            raise ValueError(f"{fault}; {remedy}")

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapper statistics, where the event logs end, and the seed; every rank must call it."""
        statistics = to_tensors(self._statistics.states)
        return {WRAPPER_STATISTICS: statistics, EVENT_LOG_ENDS: self._event_log_ends(), _SEED: self.seed}

    def _event_log_ends(self) -> EventLogEnds:
        """Return where the event logs of all ranks end, once everything that was played is written."""
        self._write_pending()
        ends = event_log_ends(sorted(self._log_folders | self._described_log_folders()))
        return last_ends(self._gathered(ends))

    @property
    def _saves_alone(self) -> bool:
        """True after an exception, when the other ranks may no longer be there to answer."""
        return self.trainer is not None and self.trainer.interrupted

    def _gathered(self, value: Any) -> list[Any]:
        """Gather a value of each rank for a checkpoint; after an exception, the value of this rank alone."""
        return [value] if self._saves_alone else gather_objects(value)

    def _described_log_folders(self) -> set[str]:
        """Return the folders of event logs that are known before players write to them."""
        if not self._environments.has_env:
            return set()
        return self._evaluation.log_folders().union(self._environments.description.log_folders)

    def _write_pending(self) -> None:
        """Write all records and logs of what was played, if the players have not ended."""
        if self._players.are_started:
            self._log_folders.update(*self._ask([(player, "write_pending", ()) for player in self.engine.players]))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        if self.trainer is not None and self.trainer.state.fn == "fit":
            ends = state_dict.get(EVENT_LOG_ENDS, {})  # earlier versions saved none
            if self._rank == 0:
                cut_event_logs(ends)
            self._log_folders.update(log_folders(ends))
            self._continue_with_seed(state_dict.get(_SEED, self.seed))
        self._statistics.load(from_tensors(state_dict[WRAPPER_STATISTICS]))

    def _continue_with_seed(self, seed: int) -> None:
        """Take over the seed of a checkpoint, unless one was given."""
        before = self.seed
        if self._seed.continue_with(seed):
            rank_zero_info(f"the run continues with the seed {seed} of its checkpoint, not with {before}")

    def warm_start(self, wrapper_statistics: dict[str, Any], *, may_differ: bool = True) -> None:
        """Take over the wrapper statistics of another run, without the state of its environments.

        Args:
            wrapper_statistics: State of each wrapper, by name; empty if none of the other run had any.
            may_differ: Whether the wrappers may differ from those of the other run. New ones then
                start from scratch, and statistics without a wrapper are dropped, with a message. A
                class of which there are more or fewer than in the other run is ambiguous and always
                refused; a subclass counts as another class.
        """
        self._statistics.take_over(wrapper_statistics, may_differ)

    @property
    def _rank(self) -> int:
        return self.trainer.global_rank if self.trainer is not None else 0

    @property
    def _world_size(self) -> int:
        return self.trainer.world_size if self.trainer is not None else 1

"""Base of data modules with environments: building them, evaluation and wrapper statistics."""

import os
from collections.abc import Callable
from contextlib import chdir, closing, suppress
from functools import partial
from typing import Any, ClassVar, Literal, cast

import cloudpickle  # type: ignore[import-untyped]
import gymnasium
import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_info

from maze_pl.collect.engines import Engine, InProcessEngine
from maze_pl.collect.rollout_worker import RolloutWorker
from maze_pl.collect.state_tensors import from_tensors, to_tensors
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batch_types import require_fitting_module
from maze_pl.core.batches import Evaluation
from maze_pl.core.checkpoint import WRAPPER_STATISTICS
from maze_pl.core.checks import check_count
from maze_pl.core.episode_batch import joined_summaries
from maze_pl.core.policy import Policy
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.core.training_data import DataRequirements, DeclaresPolicy, requirements_of
from maze_pl.datamodules.initial_statistics import InitialStatistics
from maze_pl.datamodules.players import Players
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator, checked_evaluators
from maze_pl.datamodules.source import Source
from maze_pl.datamodules.wrapper_statistics import CompletedStatistics, completed_statistics
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays import ArrayEnv, ArrayMazeEnv, ArrayVectorEnv
from maze_pl.envs.arrays.gym_vector_array_env import require_seeds
from maze_pl.envs.arrays.native_form import single_form
from maze_pl.envs.building import make_frozen, make_wrapped, wrapper_stack
from maze_pl.envs.gif_files import GifFiles
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv, VectorEnv
from maze_pl.envs.wrapper import Wrapper
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.trajectory_recording_wrapper import TrajectoryRecordingWrapper
from maze_pl.events.event_log_ends import EVENT_LOG_ENDS, EventLogEnds, cut_event_logs, event_log_ends, last_ends
from maze_pl.system.ranks import gather_objects
from maze_pl.system.signals import StoppedBySignal, abandoned_after_signal
from maze_pl.system.time_limit import time_limit_to_make

Env = gymnasium.Env[Any, Any] | ArrayEnv
AnyVector = SequentialVectorEnv | SubprocVectorEnv
_SINGLE = "use the form of the environment for single episodes"
_BY_VALUE = ("_factory", "_wrappers")


class EnvironmentDataModule(pl.LightningDataModule):
    """Owns environments and plays evaluation episodes; subclasses provide the training data.

    Args:
        env: Builds one environment; a plain gymnasium environment is adapted. Without one (None)
            nothing is evaluated, and a subclass must know the `spec`.
        wrappers: Callables that wrap the environment, the first one innermost.
        evaluators: Evaluators by name; None means one named `eval`, an empty dict means none.
        seed: Seed of the run; None takes the seed of `seed_everything`.
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
    vectorization = "sequential"
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
        if not (env is None or callable(env)) or not all(map(callable, wrappers or [])):
            came = f"env={env!r} and wrappers={wrappers!r} must be callables that make and wrap an environment"
            raise TypeError(f"{came}; write env=lambda: GymMazeEnv('CartPole-v1'), for example")
        self.evaluators = checked_evaluators(evaluators, has_env=env is not None)
        self.seed = seed if seed is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))
        self.n_normalization_samples = n_normalization_samples
        self.engine = engine or InProcessEngine()
        self._factory = None if env is None else partial(make_wrapped, env, list(wrappers or []), action_masks)
        self.check = check
        self._action_masks, self._max_agents = action_masks, max_agents
        self._spec: Spec | None = None
        self._kpi_names: tuple[str, ...] | None = None
        self._keeps_arrays = False  # True if environments are kept in arrays, once they are known
        self._wrappers: dict[str, type[Wrapper]] = {}  # classes of the environment's wrappers, once they are known
        self._players = Players(type(self).__name__)
        self._log_folders = set[str]()  # folders of event logs that players have written to
        self._has_begun = False  # True once collecting started, so that players have a state to save
        self._wrapper_statistics: dict[str, Any] | None = None  # None until estimated or taken over
        self._is_complete = False  # True once `_wrapper_statistics` covers all wrappers
        self._may_differ = False  # True if wrappers may differ from those of the earlier run
        self._has_loaded = False
        self._initial_statistics = InitialStatistics()

    # --------------------------------------------------------------------------------------------- description

    @property
    def spec(self) -> Spec:
        """Observation and action spaces of the agents, read from a temporary environment."""
        return self._spec or self._read_environment()

    def _read_environment(self) -> Spec:
        """Read spaces, classes of wrappers and names of KPIs from a temporary environment."""
        with time_limit_to_make(self.engine.step_timeout), chdir(os.getcwd()):  # which environments may change
            env = self._factory_of()()
        self._spec = Spec.of(env, self._max_agents)
        self._wrappers = {name: type(wrapper) for name, wrapper in wrapper_stack(env).items()}
        calculator = env.get_kpi_calculator()
        declared = () if calculator is None else calculator.kpi_names
        self._kpi_names = None if declared is None else tuple(declared)
        self._keeps_arrays = isinstance(env, ArrayMazeEnv)
        env.close()
        return self._spec

    @property
    def kpi_names(self) -> tuple[str, ...] | None:
        """Names of the KPIs of an episode; None if the environment does not declare them."""
        if self._factory is not None and self._spec is None:
            self._read_environment()
        return self._kpi_names

    @property
    def _is_array(self) -> bool:
        """True if environments are kept in arrays."""
        if self._factory is not None and self._spec is None:
            self._read_environment()
        return self._keeps_arrays

    @property
    def rollout_options(self) -> dict[str, Any]:
        """Environment for single episodes, wrappers, action masks and numbers of agents, as arguments of `rollout`."""
        env, wrappers, masks = (None, [], None) if self._factory is None else self._factory.args
        return {"env": single_form(env), "wrappers": wrappers, "action_masks": masks, "max_agents": self._max_agents}

    def make_env(self) -> LogStatsWrapper:
        """Make one wrapped environment with frozen statistics, as used in evaluation."""
        return make_frozen(self._factory_of(), self.wrapper_statistics())

    def _factory_of(self, evaluator: str | None = None, *inner: Any) -> Callable[[], LogStatsWrapper]:
        """Return a factory of environments for an evaluator or training; `inner` adds wrappers."""
        if self._factory is None:
            raise ValueError(f"this {type(self).__qualname__} has no environment: give one as env")
        if evaluator is not None and self.evaluators[evaluator].render:
            writer = GifFiles(f"renderings/{evaluator}", keep_all=False)
            inner = (partial(TrajectoryRecordingWrapper, writer=writer, n_episodes=0),)
        env, wrappers, masks = self._factory.args
        return partial(make_wrapped, env, [*inner, *wrappers], masks) if inner else self._factory

    # ------------------------------------------------------------------------------------------------- hooks

    def setup(self, stage: str) -> None:
        """Refuse a module that learns from other batches; forget the checkpoint of the previous run."""
        if stage == "fit" and self.trainer is not None:
            require_fitting_module(self.trainer.lightning_module, self)
            if self._initial_statistics.begin_fit(self.trainer.lightning_module):
                self._wrapper_statistics = self._initial_statistics.states
                self._is_complete = self._initial_statistics.are_complete
        self._close()
        self._has_loaded = False
        for name, evaluator in self.evaluators.items():
            if evaluator.render:
                self._factory_of(name)().close()  # fails now, not after an epoch, if rendering is impossible

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

    def _vector(self, n_envs: int, evaluator: str | None = None, **options: Any) -> Callable[[], VectorEnv]:
        """Return a factory of a vector of environments for training or for an evaluator."""
        if self._is_array:
            if evaluator is not None and self.evaluators[evaluator].render:
                raise ValueError(f"evaluators[{evaluator!r}] cannot render an array environment; {_SINGLE}")
            if self.vectorization == "subprocess":
                raise ValueError("vectorization=subprocess has no use for an array environment: leave it out")
            return self._array_vector(n_envs, **options)
        return self._vector_of([self._factory_of(evaluator)] * n_envs, **options)

    def _array_vector(
        self, n_envs: int, *inner: Any, same_starts: str | None = None, **options: Any
    ) -> Callable[[], ArrayVectorEnv]:
        """Return a factory of a vector of environments in arrays; `inner` adds wrappers, `same_starts` needs seeds."""
        if self.engine.step_timeout is not None:
            raise ValueError(f"step_timeout cannot interrupt an array environment: leave it out, or {_SINGLE}")
        env, wrappers, masks = cast(Any, self._factory).args
        make = partial(make_wrapped_arrays, env, [*inner, *wrappers], masks)
        n_same_starts = options.get("n_same_starts", 1)
        with closing(make()) as sample:  # fails now if a wrapper has no array form
            if n_same_starts > 1:
                require_seeds(sample, f"n_same_starts={n_same_starts}", all_episodes=True)
            elif same_starts is not None:
                require_seeds(sample, same_starts)
        return partial(ArrayVectorEnv, make, n_envs, spec=self.spec, **{"check": self.check, **options})

    def _vector_of(self, factories: list[Callable[[], LogStatsWrapper]], **options: Any) -> Callable[[], AnyVector]:
        """Return a factory of a vector env; it uses subprocesses if there is a step timeout."""
        limit, options = self.engine.step_timeout, {"check": self.check, **options}
        if self.vectorization == "subprocess":
            return partial(SubprocVectorEnv, factories, spec=self.spec, step_timeout=limit, **options)
        if limit is not None:
            return partial(SubprocVectorEnv, factories, spec=self.spec, step_timeout=limit, n_workers=1, **options)
        return partial(SequentialVectorEnv, factories, spec=self.spec, **options)

    def _make_player(self) -> Callable[..., RolloutWorker]:
        """Return the factory of the engine's players."""
        evaluation = {}
        for name, evaluator in self.evaluators.items():
            options = {"seed": derive_seed(self.seed, "evaluation", name), "autoreset": False, "seed_by_env": False}
            vector = self._vector(len(evaluator.groups[0]), name, **options)
            evaluation[name] = vector, evaluator.deterministic
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
        """Return the players' answers; on failure close all, as the other answers would never be collected."""
        self._players.require_current(self.engine)
        with abandoned_after_signal():
            try:
                return self.engine.map(jobs)
            except BaseException:
                self._close()
                raise

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
        jobs = []
        for place, group in enumerate(groups):
            jobs.append((place % self.engine.n_workers, "play", (name, group, wrapper_statistics, given)))
        return Evaluation(name, joined_summaries(self._ask(jobs)))

    # -------------------------------------------------------------------------------------------------- state

    def wrapper_statistics(self) -> dict[str, Any]:
        """Wrapper statistics: those taken over, and the rest, estimated by rank 0 on first use.

        Raises:
            ValueError: A checkpoint holds statistics of other wrappers.
        """
        if self._wrapper_statistics is None or not self._is_complete:
            is_taken_over = self._wrapper_statistics is not None
            completed = CompletedStatistics({})
            if self._rank == 0 and self._factory is not None:
                completed = self._completed()
            completed = gather_objects(completed)[0]
            if completed.refusal:
                raise ValueError(completed.refusal)
            if completed.message:
                rank_zero_info(completed.message)
            self._wrapper_statistics = completed.states
            self._is_complete = True
            if not self._has_loaded:
                self._initial_statistics.set(completed.states, are_complete=True)
            if completed.states and not is_taken_over:
                self._refuse_foreign_checkpoint()
        return cast(dict[str, Any], self._wrapper_statistics)

    def _completed(self) -> CompletedStatistics:
        """Estimate the wrapper statistics that are missing."""
        vector = self._vector_of([self._factory_of()])  # also looks up the names of all wrappers

        def estimate(known: dict[str, Any]) -> dict[str, Any]:
            with closing(vector()) as env:
                return env.estimate(self.n_normalization_samples, derive_seed(self.seed, "normalization"), known)

        return completed_statistics(self._wrapper_statistics, list(self._wrappers), estimate, self._may_differ)

    def _refuse_foreign_checkpoint(self) -> None:
        """Refuse a checkpoint without state of this class, which Lightning would ignore."""
        if self.trainer is not None and self.trainer.ckpt_path is not None and not self._has_loaded:
            fault = f"the checkpoint {self.trainer.ckpt_path} holds no state of a {type(self).__qualname__}"
            remedy = "resume with the class of data module that wrote it, or use its weights alone with --warm-start"
            raise ValueError(f"{fault}; {remedy}")

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapper statistics, and where the event logs end; every rank must call it."""
        return {WRAPPER_STATISTICS: to_tensors(self._wrapper_statistics), EVENT_LOG_ENDS: self._event_log_ends()}

    def _event_log_ends(self) -> EventLogEnds:
        """Return where the event logs of all ranks end, once everything that was played is written."""
        self._write_pending()
        ends = event_log_ends(sorted(self._log_folders))
        is_alone = self.trainer is not None and self.trainer.interrupted  # other ranks may no longer answer
        return last_ends([ends] if is_alone else gather_objects(ends))

    def _write_pending(self) -> None:
        """Write all records and logs of what was played, if the players have not ended."""
        if self._players.are_started:
            self._log_folders.update(*self._ask([(player, "write_pending", ()) for player in self.engine.players]))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        if self.trainer is not None and self.trainer.state.fn == "fit" and self._rank == 0:
            cut_event_logs(state_dict.get(EVENT_LOG_ENDS, {}))  # earlier versions saved none
        self._wrapper_statistics = from_tensors(state_dict[WRAPPER_STATISTICS])
        self._is_complete = self._may_differ = False
        self._has_loaded = True

    def warm_start(self, wrapper_statistics: dict[str, Any], *, may_differ: bool = True) -> None:
        """Take over the wrapper statistics of another run, without the state of its environments.

        Args:
            wrapper_statistics: State of each wrapper, by name; empty if none of the other run had any.
            may_differ: Whether the wrappers may differ from those of the other run. New ones then
                start from scratch, and statistics without a wrapper are dropped, with a message. A
                class of which there are more or fewer than in the other run is ambiguous and always
                refused; a subclass counts as another class.
        """
        self._wrapper_statistics, self._is_complete = wrapper_statistics, False
        self._may_differ = may_differ
        self._initial_statistics.set(wrapper_statistics, are_complete=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for spawned processes; factories may be lambdas or local classes."""
        return {**self.__dict__, **{name: cloudpickle.dumps(vars(self)[name]) for name in _BY_VALUE}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, **{name: cloudpickle.loads(state[name]) for name in _BY_VALUE})

    @property
    def _rank(self) -> int:
        return self.trainer.global_rank if self.trainer is not None else 0

    @property
    def _world_size(self) -> int:
        return self.trainer.world_size if self.trainer is not None else 1

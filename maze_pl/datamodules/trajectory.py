"""Data module of imitation learning: its batches are acts of recorded episodes."""

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any, ClassVar, Literal, cast

from pytorch_lightning.utilities import rank_zero_info

from maze_pl.collect.engines.engine import Engine
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import TrajectoryBatch
from maze_pl.core.checks import check_count
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.datamodules.act_loader import ActLoader
from maze_pl.datamodules.completed_statistics import CompletedStatistics
from maze_pl.datamodules.environment_maker import Env
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator
from maze_pl.datasets.episode_loader import UnfitEpisodeError, UntrustedRecordsError
from maze_pl.datasets.in_memory_dataset import InMemoryDataset
from maze_pl.envs.building import make_frozen
from maze_pl.envs.wrapper import ObservationWrapper


class TrajectoryDataModule(EnvironmentDataModule):
    """Serves the acts of recorded episodes in batches, in a different order in each epoch.

    Some episodes are held out: their acts form an additional validation dataloader, after the
    dataloaders of the evaluators. Several ranks share one order: each gets different acts, and as
    many batches as the others.

    Args:
        dataset: The episodes. States that were converted for another data module, with its wrapper
            statistics, are converted again, in a copy. Observations of space records stay as they
            were recorded: a message says so if normalisation has new statistics here.
        env: Builds one environment, whose spaces the episodes must have. Without one (None) only
            held-out episodes are evaluated.
        wrappers: Callables that wrap the environment, the first one innermost. Their statistics are
            estimated from the environment.
        batch_size: Acts per batch on each rank, over all sub-steps; the last batch of an epoch may
            have fewer.
        validation_percentage: Percentage of episodes that are held out.
        evaluators: Evaluators by name; None means one named `eval`, an empty dict means none.
        seed: Seed of the run; None takes the seed of `seed_everything`.
        action_masks: Action head -> observation that is 1 where an action is allowed, else 0; adds
            to the masks that the environment declares itself.
        max_agents: Maximum number of agents at the same time, for sub-steps whose number of agents varies.
        n_normalization_samples: Observations from which wrappers estimate their statistics.
        engine: Runs the environments; None means in this process.
        check: Validation of environment returns in each step, `fast` or `full`; see
            `SequentialVectorEnv`.
        n_shards: Must be 0, as evaluations are played in groups of episodes; `runner/dev`, `runner/local` and
            `runner/ray` set it.

    Raises:
        ValueError: A number is out of range, or options contradict each other.
    """

    batch_type: ClassVar[type] = TrajectoryBatch

    def __init__(
        self,
        dataset: InMemoryDataset,
        env: Callable[[], Env] | None = None,
        wrappers: list[Callable[[Any], Env]] | None = None,
        batch_size: int = 100,
        validation_percentage: float = 20,
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
        check_count("batch_size", batch_size, 1)
        if n_shards:
            raise ValueError(f"n_shards={n_shards} must be 0: evaluations are played in groups of episodes")
        if not 0 <= validation_percentage < 100:
            raise ValueError(f"validation_percentage={validation_percentage} must be at least 0 and below 100")
        if env is None and wrappers:
            raise ValueError(f"wrappers={wrappers} wrap an environment, but there is none: give one as env")
        self.dataset = dataset
        self.batch_size = batch_size
        self.validation_percentage = validation_percentage
        self._converted_with: dict[str, Any] | None = None  # wrapper statistics, of states
        self._estimated: list[str] = []  # wrappers with new statistics, until a message names them

    @property
    def spec(self) -> Spec:
        """Spaces of the agents, from the environment or, without one, from the episodes."""
        if not (self._environments.has_env or self._environments.is_described):
            masks = self._environments.action_masks or {}
            spec = cast(Spec, self._loaded(masks=masks).spec)
            self._environments.describe_as(spec.with_masks(masks))
        return super().spec

    def _loader(self, *, held_out: bool) -> ActLoader:
        self._refuse_foreign_checkpoint()
        if self._environments.has_env:
            wrapper_statistics = self.wrapper_statistics()
            if self.dataset.is_converted and self._converted_with is not wrapper_statistics:
                self.dataset = copy(self.dataset)  # without acts
            self._converted_with = wrapper_statistics
            make_env = partial(make_frozen, self._environments.factory(), wrapper_statistics)
            self._loaded(make_env, self.spec)
            self._say_what_was_estimated()
        dataset = self._loaded(masks=self._environments.action_masks)
        acts = dataset.split(self.validation_percentage, derive_seed(self.seed, "held out"))[held_out]
        if not held_out and not len(acts):
            raise ValueError("all acts are of held-out episodes: record more, or lower validation_percentage")
        batch_size = self.batch_size * (10 if held_out else 1)  # held-out acts need no gradients
        order_seed = None if held_out else self.order_seed
        return ActLoader(self.dataset, acts, batch_size, order_seed, self._rank, self._world_size)

    def _loaded(
        self,
        make_env: Callable[[], Any] | None = None,
        spec: Spec | None = None,
        masks: Mapping[str, str] | None = None,
    ) -> InMemoryDataset:
        """Read the episodes, unless they were already read; see `InMemoryDataset.load`.

        Args:
            make_env: Makes the environment that converts states.
            spec: Specification of that environment.
            masks: Action head -> observation.

        Raises:
            ValueError: They cannot be read, or do not fit the environment.
        """
        try:
            return self.dataset.load(make_env, spec, masks)
        except UntrustedRecordsError as error:
            raise ValueError(f"{error} (on the command line: --data.dataset.trust true)") from error
        except UnfitEpisodeError as error:
            reason = self._reason_of_misfit(error)
            if not reason:
                raise
            remedy = "use state records, or the same wrappers as in the run that recorded the episodes"
            raise ValueError(f"{error}; {reason}: {remedy}") from error

    def _reason_of_misfit(self, error: UnfitEpisodeError) -> str:
        """Say by which wrappers recorded observations may differ from those of this run; empty if by none."""
        if not error.is_of_observation:
            return ""
        if names := self._observation_wrappers():
            return f"observations of this run are changed by {' and '.join(names)}"
        return "wrappers have named those of the records otherwise" if error.is_missing else ""

    def _observation_wrappers(self) -> list[str]:
        """Names of the wrappers that change observations."""
        if not self._environments.has_env:
            return []
        wrappers = self._environments.description.wrappers.values()
        return [wrapper.__name__ for wrapper in wrappers if issubclass(wrapper, ObservationWrapper)]

    def _completed(self) -> CompletedStatistics:
        """Estimate missing wrapper statistics, and note which of them change observations."""
        completed = super()._completed()
        known = self._statistics.states or {}
        wrappers = self._environments.description.wrappers
        for name, state in completed.states.items():
            if state and name not in known and issubclass(wrappers[name], ObservationWrapper):
                self._estimated.append(name)
        return completed

    def _say_what_was_estimated(self) -> None:
        """Say once that space records may have been normalised by other statistics."""
        if self._estimated and self.dataset.has_space_records:
            names = " and ".join(name.rpartition(".")[2] for name in self._estimated)
            fact = "space records keep the observations that were recorded"
            statistics = f"{names} has estimated statistics here"
            condition = "unless the records were made with the same seed, environment and wrappers"
            effect = "the policy is evaluated on other observations than it learns from"
            remedy = "use state records, or take over the recording run's statistics (--warm-start)"
            rank_zero_info(f"{fact}, and {statistics}: {condition}, {effect}; {remedy}")
        self._estimated = []

    def order_seed(self) -> int:
        """Return the seed of this epoch's order of acts."""
        return derive_seed(self.seed, "acts", self.trainer.current_epoch if self.trainer is not None else 0)

    def train_dataloader(self) -> ActLoader:
        """Batches of all acts except the held-out ones."""
        return self._loader(held_out=False)

    def val_dataloader(self) -> list[Any]:
        """One dataloader per evaluator; then one of the acts of held-out episodes, in order."""
        held_out = [self._loader(held_out=True)] if self.validation_percentage else []
        return super().val_dataloader() + [loader for loader in held_out if len(loader)]

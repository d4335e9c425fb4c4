"""Data module of runs that RLlib trains: its batches are iterations of RLlib's algorithm."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from maze_pl.collect.engines import Engine
from maze_pl.core.actor_id import StepKey
from maze_pl.core.checks import check_count
from maze_pl.datamodules.environment_maker import Env
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator
from maze_pl.datamodules.source import Source
from maze_pl.rllib.environment_source import EnvironmentSource
from maze_pl.rllib.iteration import RLlibIteration
from maze_pl.rllib.rllib_module import RLlibModule


class RLlibDataModule(EnvironmentDataModule):
    """Has the environments in which RLlib collects, and plays episodes for evaluation.

    Args:
        env: Builds one environment; a plain gymnasium environment is adapted.
        wrappers: Callables that wrap the environment, the first one innermost.
        epoch_length: Iterations of RLlib per epoch; evaluation follows each epoch.
        evaluators: Evaluators by name; None means one named `eval`, an empty dict means none.
        seed: Seed of the run; None takes the seed of `seed_everything`.
        action_masks: Action head -> observation that is 1 where an action is allowed, else 0; adds
            to the masks that the environment declares itself.
        max_agents: Most agents alive at once, for sub-steps whose number of agents varies.
        n_normalization_samples: Observations from which wrappers estimate their statistics.
        engine: Plays the episodes of evaluations; None means in this process. RLlib's workers, which
            collect, are options of the model.
        check: Validation of environment returns in evaluations: `fast` or `full`.

    Raises:
        ValueError: A number is out of range, or options contradict each other.
    """

    batch_type: ClassVar[type] = RLlibIteration

    def __init__(
        self,
        env: Callable[[], Env],
        wrappers: list[Callable[[Any], Env]] | None = None,
        epoch_length: int = 1,
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
        check_count("epoch_length", epoch_length, 1)
        self.epoch_length = epoch_length
        self._training: Any = None

    def train_dataloader(self) -> Source[RLlibIteration]:
        """Iterations of RLlib, on demand."""
        return Source(self._iterate, self.epoch_length)

    def _iterate(self) -> RLlibIteration:
        """Let RLlib collect and learn for one iteration."""
        if self._training is None:
            self._refuse_foreign_checkpoint()
            module = None if self.trainer is None else self.trainer.lightning_module
            if not isinstance(module, RLlibModule):
                raise ValueError("an RLlibDataModule needs an algorithm of RLlib, such as RLlibPPO, as model")
            source = EnvironmentSource(self._environments.factory(), self.spec, self.seed, self.wrapper_statistics())
            self._training = module.start_training(source)
        iteration: RLlibIteration = self._training.iterate(self._merged_statistics)
        return iteration

    def _merged_statistics(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Merge the wrapper statistics of all environments, and keep them for evaluations."""
        self._statistics.merge(states, self._environments.description.wrappers)
        return self.wrapper_statistics()

    def _close(self) -> None:
        super()._close()
        if self._training is not None:
            training, self._training = self._training, None
            training.close()

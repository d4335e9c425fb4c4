"""Base class of modules that take part in a run: acting, scheduled options, statistics, and checkpoints.

Everything that learning needs, such as optimisers and gradients, belongs to `AlgorithmModule`.
"""

import os
import time
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor

from maze_pl.agents import Critic, TorchActorCritic, TorchPolicy
from maze_pl.agents.acting import ActsOnObservations
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batch_types import learned_type, require_fitting_batch, require_fitting_data
from maze_pl.core.batches import Evaluation, Experience
from maze_pl.core.checkpoint_content import CheckpointEntry, RankState, add_to_checkpoint, checkpoint_entry
from maze_pl.core.checkpoint_io import readable_io
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.core.unsuitable_features import refuse_unsuitable_trainer
from maze_pl.modules.averaged_weights import average_exactly
from maze_pl.modules.coefficients import Coefficients, HasCoefficients
from maze_pl.modules.described_statistics import descriptions_of
from maze_pl.modules.env_step_count import EnvStepCount
from maze_pl.modules.equal_batches import EqualBatches
from maze_pl.modules.half_precision import keep_batches_exact
from maze_pl.modules.hooks import AlgorithmHooks
from maze_pl.modules.optimization.recorded_values import RecordedValue
from maze_pl.modules.overridden_hooks import ExtendedHooks, refuse_uncalled_hooks
from maze_pl.modules.published_values import PublishedValues, PublishesValues
from maze_pl.modules.random_state import Generator, global_random_state, restore_random_state
from maze_pl.modules.restored_modes import RestoredModes
from maze_pl.modules.resumed_loops import continue_loops
from maze_pl.modules.run_statistics import RunStatistics, SourceStatistics, Value
from maze_pl.modules.schedulers import Schedulers
from maze_pl.schedules.coefficient import Check, Coefficient
from maze_pl.system.global_generators import seed_global_generators
from maze_pl.system.memory import keep_freed_memory
from maze_pl.system.ranks import gather_objects, leave_at_exit, sum_over_ranks, world_size


class RunModule(
    ExtendedHooks,  # refuses hooks of users that leave out those of maze_pl
    EqualBatches,  # `log` counts each batch once
    RestoredModes,  # training modes as before, after an evaluation that failed
    HasCoefficients,  # checks what is assigned to options
    EnvStepCount,  # weights carry the number of environment steps
    PublishesValues,  # values that callbacks and schedulers monitor
    pl.LightningModule,
    AlgorithmHooks,  # what an algorithm declares, with defaults
    ActsOnObservations,  # `act_on`
):
    """A module that acts, counts environment steps, logs statistics, and continues exactly from checkpoints.

    Attributes:
        actor_critic: Policy and critic; None until they are built.
        generator: Random generator of this rank, restored with checkpoints.
        env_steps: Environment steps learned from so far, over all ranks and the whole run.
        epoch_statistics: "train" or evaluator -> latest table of "<Topic>/<event>/<statistic>".
        epoch_plots: Source -> figures of events that declare plots, under the same names.
    """

    def __init__(self) -> None:
        super().__init__()
        self.actor_critic: TorchActorCritic | None = None
        self.generator = Generator()
        self.env_steps = 0
        self.epoch_statistics: dict[str, dict[str, Value]] = {}
        self.epoch_plots: dict[str, dict[str, Any]] = {}
        self._statistics = RunStatistics()
        self.published = PublishedValues()
        self._learned_type = learned_type(type(self))
        self._coefficients = Coefficients(self)
        self._schedulers = Schedulers(self)
        self._restored: CheckpointEntry | None = None
        self._epoch_began = self._batch_began = time.perf_counter()

    # ------------------------------------------------------------------------------------------------ networks

    @property
    def networks(self) -> TorchActorCritic:
        """Policy and critic.

        Raises:
            RuntimeError: The networks are not built yet.
        """
        if self.actor_critic is None:
            raise RuntimeError("the networks are not built yet: give a spec, or call Trainer.fit with a data module")
        return self.actor_critic

    @property
    def policy(self) -> TorchPolicy:
        """The policy."""
        return self.networks.policy

    @property
    def critic(self) -> Critic | None:
        """The critic, None if the networks have no critic."""
        return self.networks.critic

    @property
    def spec(self) -> Spec:
        """Observations and actions of the agent."""
        return self.policy.spec

    def acting_policy(self) -> TorchPolicy:
        """Return the policy, for `act`."""
        return self.policy

    act = ActsOnObservations.act_on

    # ---------------------------------------------------------------------------------------------------- data

    def check_data_module(self, data: object) -> None:
        """Refuse a data module that does not fit, before environments are made.

        Args:
            data: The data module; any object without `batch_type` passes.

        Raises:
            ValueError: It delivers batches of another class than `batch_type`, or does not fit the
                options of the algorithm.
        """
        require_fitting_data(self, self._learned_type, data)

    def setup(self, stage: str) -> None:
        """Refuse an unsuitable trainer or data; prepare this process and the trainer; forget the previous run."""
        leave_at_exit()
        keep_freed_memory()
        trainer: Any = self._trainer
        if trainer is not None:
            refuse_uncalled_hooks(self)
            keep_batches_exact(trainer)
            trainer.strategy.checkpoint_io = readable_io(trainer.strategy.checkpoint_io)
        if stage == "fit" and trainer is not None:
            refuse_unsuitable_trainer(trainer)
            average_exactly(trainer)
            if trainer.fast_dev_run and not trainer.overfit_batches:  # which removes the limit of batches
                trainer.fit_loop.epoch_loop.max_steps = -1  # a batch takes several steps
            self.check_data_module(getattr(trainer, "datamodule", None))
            self._statistics.discard_unfinished()
            self.published = PublishedValues()
            self.epoch_statistics, self.epoch_plots = {}, {}

    # ----------------------------------------------------------------------------------------------- schedules

    def coefficient(self, name: str, value: Coefficient, check: Check | None = None) -> float | Tensor:
        """Let an option accept a number or a schedule; called after `super().__init__()`.

            self.clip_range = self.coefficient("clip_range", clip_range, check_positive)

        A number remains a number. For a schedule the result is a tensor without dimensions, to be
        assigned to the attribute `name`. It is changed in place: it has the value of a batch while
        its data is collected and learned from. A loss that calculates with it is traced once for all
        values. Outside of losses, `float(self.clip_range)` is the number.

        Args:
            name: Name of the option, under which its mean in an epoch is logged.
            value: A number, or a function of the progress of the run, from 0 to 1.
            check: Raises ValueError for values out of range; see `maze_pl.core.checks`.

        Raises:
            TypeError: It is neither, or the function does not return numbers.
            ValueError: A value is out of range.
        """
        return self._coefficients.add(name, value, check)

    def optional_coefficient(
        self, name: str, value: Coefficient | None, check: Check | None = None
    ) -> float | Tensor | None:
        """Do the same as `coefficient` for an option that may be None."""
        return self._coefficients.add_optional(name, value, check)

    def value_of(self, name: str) -> float:
        """Return an option that may follow a schedule as a number: its value in the current batch.

        A traced loss must not call it: it reads the attribute.

        Args:
            name: Name of the option, see `coefficient`.
        """
        values = self._coefficients.values
        return values[name] if name in values else float(getattr(self, name))

    def _follow_schedules(self, *, if_changed: bool = False) -> None:
        """Set scheduled options for the next batch; with `if_changed`, only if callbacks have set others."""
        if not if_changed or self._coefficients.are_changed:
            self._coefficients.follow(self.trainer)
            self.on_coefficients_set()

    # ---------------------------------------------------------------------------------------------- statistics

    def record(
        self,
        name: str,
        value: Tensor | float,
        step_key: StepKey | None = None,
        *,
        count: Tensor | float = 1.0,
        source: str = "train",
    ) -> None:
        """Add a value to a statistic, logged once per epoch as the mean over all calls and ranks.

        Args:
            name: The statistic, logged as "<source>_<topic>/<name>[/substep_<key>]".
            value: A number, or the sum of `count` numbers. Tensors move to the CPU when the epoch ends.
            step_key: Step key that the value belongs to.
            count: Number of summands; need not be an integer. In a loss it may be a tensor [].
            source: "train", or the name of an evaluation during which it is called.
        """
        values = self.values_of_loss()
        if values is None:
            self._statistics.record(f"{self.topic}/{name}", value, step_key, count, source)
        else:
            values.append(RecordedValue(name, value, step_key, count))

    def values_of_loss(self) -> list[RecordedValue] | None:
        """Return the list for values of the loss that is being computed; None outside of a loss."""
        return None

    def record_metric(self, name: str, value: Tensor | float, *, count: float = 1.0, source: str = "train") -> None:
        """Add a value to a metric for callbacks, `<source>/<name>`, as `record` does for statistics.

        Args:
            name: The metric.
            value: A number, or the sum of `count` numbers.
            count: Number of summands.
            source: "train", or the name of an evaluation during which it is called.
        """
        self._statistics.record(name, value, None, count, source)

    def described_statistics(self) -> dict[str, str]:
        """Return "<topic>/<name>" -> one line that describes the statistic, for tables and dashboards."""
        own: dict[str, str] = {}
        for kind in reversed(type(self).__mro__):
            own.update(vars(kind).get("statistics", {}))
        return descriptions_of(self.topic, own)

    def record_epoch(self) -> None:
        """Record the standard deviations of Gaussian policies."""
        if isinstance(self.policy, TorchPolicy):
            for name, deviations in self.policy.deviations().items():
                self.record("policy_std", deviations.mean(), name)

    def on_train_epoch_start(self) -> None:
        """Start the clock of the epoch; use coefficients that callbacks have set."""
        self._epoch_began = time.perf_counter()
        self._follow_schedules(if_changed=True)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Count environment steps and episodes, and record the values of scheduled options."""
        require_fitting_batch(self, self._learned_type, batch)
        self._batch_began = time.perf_counter()
        self._statistics.n_batches += 1
        for name, value in self._coefficients.values.items():
            self.record(name, value)
        if isinstance(batch, Experience):
            env_steps = batch.env_steps
            if world_size() > 1:
                env_steps = int(sum_over_ranks(torch.tensor(env_steps, device=self.device)))
            self.env_steps += env_steps
            self._statistics.add_episodes("train", batch.summaries)
            for name, value in {"time_rollout": batch.seconds, **batch.measures}.items():
                self.record(name, value)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Finish the epoch's statistics after its last batch, before evaluation and callbacks."""
        self._schedulers.finish_batch()
        self.record("time_update", time.perf_counter() - self._batch_began)
        if self.trainer.is_last_batch:
            self._finish_training(on_step=True)
        self._follow_schedules()

    def on_train_epoch_end(self) -> None:
        """Finish the statistics of an epoch that ended early, and step monitoring schedulers."""
        if self._statistics.n_batches:
            self._finish_training(on_step=False)
        self._schedulers.finish_epoch()

    def _finish_training(self, *, on_step: bool) -> None:
        self.record_epoch()
        self.record("time_epoch", time.perf_counter() - self._epoch_began)
        self._publish({"train": self._statistics.finish_training()}, on_step=on_step, on_epoch=not on_step)
        _ = self.trainer.callback_metrics  # Lightning keeps logged values once they are read

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add the episodes of an evaluator to the statistics."""
        if isinstance(batch, Evaluation):
            self._statistics.add_episodes(batch.name, batch.summaries)

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Do the same as in validation."""
        self.validation_step(batch, batch_idx, dataloader_idx)

    def on_validation_epoch_end(self) -> None:
        """Finish the statistics of the evaluation."""
        if self.trainer.sanity_checking:
            self._statistics.discard_evaluation()
            return
        self._publish(self._statistics.finish_evaluation(), batch_size=1)

    def on_validation_end(self) -> None:
        """Use coefficients that callbacks have set after an evaluation in training."""
        if self.trainer.state.fn == "fit" and not self.trainer.sanity_checking:
            self._follow_schedules(if_changed=True)

    def on_test_epoch_end(self) -> None:
        """Do the same as in validation."""
        self.on_validation_epoch_end()

    def _publish(self, tables: dict[str, SourceStatistics], **options: Any) -> None:
        """Pass statistics to loggers and callbacks; `options` are those of `log_dict`."""
        self.published.begin(tables, self.trainer.current_epoch)
        self._schedulers.forget(tables)
        for source, table in tables.items():
            self.epoch_statistics[source], self.epoch_plots[source] = table.values, table.plots
            scalars = self.published.add(source, table, self.trainer.callback_metrics)
            for logger in self.loggers:
                logger.log_metrics(scalars, step=self.env_steps)
                logger.save()
            self.log_dict(table.short_values(source), logger=False, sync_dist=True, **options)

    # --------------------------------------------------------------------------------------------- checkpoints

    def on_train_start(self) -> None:
        """Start the clock; restore or seed random generators, as Lightning no longer overwrites them."""
        self._epoch_began = time.perf_counter()  # also of the rest of an epoch
        continue_loops(self.trainer)
        self._schedulers.start()
        self._follow_schedules()
        restored, self._restored = self._restored, None
        seed = int(os.environ.get("PL_GLOBAL_SEED", torch.initial_seed() % 2**31))
        seed_of_rank = derive_seed(seed, "rank", self.env_steps, self.global_rank)
        if restored is not None and self.trainer.ckpt_path is not None:
            ranks = restored["ranks"]
            if len(ranks) == world_size():
                own = ranks[self.global_rank]
                self.generator.set_state(own["generator"].cpu())
                restore_random_state(own["random"], self.device, seed_of_rank)
                self._statistics.load_rank_state_dict(own["statistics"])
                self._statistics.n_batches = own["unfinished_batches"]
                self.load_rank_state(own.get("further", {}))
                if self.trainer.is_last_batch and self._statistics.n_batches:
                    self._finish_training(on_step=False)
                return
            found = f"the checkpoint was written by {len(ranks)} ranks, not {world_size()}"
            rank_zero_warn(f"random generators are seeded again: {found}")
        self.generator.manual_seed(derive_seed(seed, "minibatches", self.env_steps, self.global_rank))
        if world_size() > 1:
            seed_global_generators(seed_of_rank)

    @property
    def saves_alone(self) -> bool:
        """True after an exception, when the other ranks may no longer be there to answer."""
        return self._trainer is not None and self.trainer.interrupted

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the state of all ranks; Lightning calls this on each rank."""
        alone = self.saves_alone
        own: RankState = {
            "generator": self.generator.get_state(),
            "random": global_random_state(self.device),
            "statistics": self._statistics.rank_state_dict(),
            "unfinished_batches": self._statistics.n_batches,
            "further": self.rank_state(),
        }
        add_to_checkpoint(
            checkpoint,
            class_path=f"{type(self).__module__}.{type(self).__qualname__}",
            spec=self.spec.to_dict(),
            env_steps=self.env_steps,
            statistics=self._statistics.state_dict(),
            monitored=self._schedulers.save(checkpoint),
            ranks=[own] if alone else gather_objects(own),
        )
        self._coefficients.save(checkpoint)
        self.count_in(checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the state added by `on_save_checkpoint`.

        Raises:
            ValueError: The checkpoint has another format.
        """
        entry = checkpoint_entry(checkpoint)
        if entry is None or "class_path" not in entry:  # of another program or kind of module
            return
        self.env_steps = entry["env_steps"]
        self.count_in(checkpoint)  # Lightning loads the weights after this
        if self._trainer is not None and self.trainer.precision == "64-true":
            self.double()  # which Lightning does after it has loaded the weights: they would be rounded
        self._statistics.load_state_dict(entry["statistics"])
        self._schedulers.load(entry["monitored"])
        if self._trainer is not None and self.trainer.training:
            self._coefficients.restore(checkpoint)
        self._restored = entry

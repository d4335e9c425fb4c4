"""Base class of all algorithms: networks, optimisation step, statistics and checkpoint contents."""

import os
import time
from collections.abc import Callable
from typing import Any, Literal, Protocol

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.optim import Optimizer

from maze_pl.agents import Critic, TorchActorCritic, TorchPolicy
from maze_pl.agents.acting import ActsOnObservations
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Evaluation, Experience
from maze_pl.core.checkpoint import CheckpointEntry, RankState, add_to_checkpoint, checkpoint_entry
from maze_pl.core.checks import check_at_least, check_positive, is_plain
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.modules.optimization.flat_optimizer import FlatAdam
from maze_pl.modules.optimization.gradient_step import Updates
from maze_pl.modules.random_state import Generator, global_random_state, restore_random_state, seed_global_generators
from maze_pl.modules.run_statistics import RunStatistics, SourceStatistics, Value
from maze_pl.modules.schedulers import Schedulers
from maze_pl.system.ranks import gather_objects, leave_at_exit, sum_over_ranks, world_size


class ModelComposer(Protocol):
    """Builder of networks from a specification."""

    def compose(self, spec: Spec) -> TorchActorCritic:
        """Build the networks.

        Args:
            spec: Observations and actions of the agent.
        """
        ...


class AlgorithmModule(pl.LightningModule, ActsOnObservations):
    """A learning algorithm. Subclasses write `training_step`, which may call `optimize` repeatedly.

    Networks are passed ready-made as `actor_critic`, or are built by `networks` from the
    specification: at once if `spec` is given, otherwise from the specification of the data module
    when training or evaluation starts.

    A subclass that overrides a hook must call `super()`.

    Args:
        networks: Composer that builds policy and critic.
        spec: Observations and actions of the agent; the command line takes it from the data module.
        actor_critic: Ready-made networks, instead of `networks`.
        lr: Learning rate of Adam.
        max_grad_norm: Maximum L2 norm of the gradient; 0 for no limit.
        lr_schedule: `linear` decays the learning rate to 0 over all batches of the run.
        critic_burn_in_epochs: Number of initial epochs in which only the critic learns. Parameters
            that it shares with the policy are not updated either.
        capture: `auto` records the operations of an update once and replays them, where that is
            possible and yields the same numbers, as long as nothing that the loss reads changes;
            `off` runs every update eagerly.

    Attributes:
        generator: Random generator of this rank, restored with checkpoints.
        env_steps: Environment steps learned from so far, over all ranks and the whole run.
        epoch_statistics: Source ("train" or an evaluator's name) -> the latest table of
            "<Topic>/<event>/<statistic>".
        epoch_plots: Source -> figures of events that declare plots, under the same names.
    """

    topic = "ActorCriticEvents"

    def __init__(
        self,
        networks: ModelComposer | None = None,
        spec: Spec | dict[str, Any] | None = None,
        actor_critic: TorchActorCritic | None = None,
        lr: float = 5e-4,
        max_grad_norm: float = 0.0,
        lr_schedule: Literal["constant", "linear"] = "constant",
        critic_burn_in_epochs: int = 0,
        capture: Literal["auto", "off"] = "auto",
    ) -> None:
        super().__init__()
        if capture not in ("auto", "off"):
            raise ValueError(f"capture={capture!r} must be 'auto' or 'off'")
        self.capture = capture
        if (networks is None) == (actor_critic is None):
            raise ValueError("give either networks, which are built from the specification, or a ready actor_critic")
        if lr_schedule not in ("constant", "linear"):
            raise ValueError(f"lr_schedule={lr_schedule!r} must be 'constant' or 'linear'")
        check_positive(lr=lr)
        check_at_least(0, max_grad_norm=max_grad_norm, critic_burn_in_epochs=critic_burn_in_epochs)
        self.automatic_optimization = False
        self.lr, self.max_grad_norm, self.lr_schedule = lr, max_grad_norm, lr_schedule
        self.critic_burn_in_epochs = critic_burn_in_epochs
        self.generator = Generator()
        self.env_steps = 0
        self.epoch_statistics: dict[str, dict[str, Value]] = {}
        self.epoch_plots: dict[str, dict[str, Any]] = {}
        self._statistics = RunStatistics()
        self._updates = Updates(self)
        self._schedulers = Schedulers(self)
        self._unfinished_batches = 0
        self._restored: CheckpointEntry | None = None
        self._epoch_began = self._batch_began = time.perf_counter()
        self._save_plain_hyperparameters()
        self._composer: ModelComposer | None = networks
        self.actor_critic: TorchActorCritic | None = None
        if actor_critic is not None:
            self._set_networks(actor_critic)
        elif spec is not None:
            self._compose(spec if isinstance(spec, Spec) else Spec.from_dict(spec))

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

    def configure_model(self) -> None:
        """Build the networks from the data module's specification, unless they exist already."""
        if self._trainer is None:
            return
        self._schedulers.intercept()
        if self.actor_critic is not None:
            return
        spec = getattr(getattr(self.trainer, "datamodule", None), "spec", None)
        if isinstance(self.trainer.strategy.launcher, _MultiProcessingLauncher):
            raise ValueError("networks built in a spawned process are lost: give spec=data.spec, or use strategy=ddp")
        if not isinstance(spec, Spec):
            raise ValueError("networks need a specification: give one as spec=..., or a data module that has one")
        self._compose(spec)

    def _compose(self, spec: Spec) -> None:
        assert self._composer is not None
        self._set_networks(self._composer.compose(spec))
        self._composer = None  # it may hold lambdas, which cannot be sent to a spawned process

    def _set_networks(self, actor_critic: TorchActorCritic) -> None:
        self.actor_critic = actor_critic
        if self.critic_burn_in_epochs and not self._parameter_groups().get("critic"):
            raise ValueError("critic_burn_in_epochs needs a critic with parameters of its own, but there is none")

    def _save_plain_hyperparameters(self) -> None:
        """Keep numbers, strings, and lists and dicts of them: checkpoints may hold nothing else."""
        ignored = ["spec", "actor_critic"]
        self.save_hyperparameters(ignore=ignored)
        ignored += [name for name, value in self.hparams.items() if not is_plain(value)]
        if self.hparams.get("networks") is None:
            ignored.append("networks")  # ready-made networks must be passed again
        self.save_hyperparameters(ignore=ignored)

    # -------------------------------------------------------------------------------------------- optimisation

    @property
    def in_critic_burn_in(self) -> bool:
        """True if only the critic learns in this epoch."""
        return self.current_epoch < self.critic_burn_in_epochs

    def _parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Trainable parameters: of the policy, of the critic alone, and of neither."""
        critic = self.critic
        groups: dict[str, list[nn.Parameter]] = {}
        seen: set[int] = set()
        for name, module in (("policy", self.policy), ("critic", critic), ("other", self)):
            parameters = [] if module is None else [p for p in module.parameters() if id(p) not in seen]
            seen |= {id(parameter) for parameter in parameters}
            groups[name] = [parameter for parameter in parameters if parameter.requires_grad]
        return {name: parameters for name, parameters in groups.items() if parameters}

    def configure_optimizers(self) -> Optimizer:
        """Create Adam for all parameters, in groups named policy, critic and (all others) other.

        Subclasses may return anything that Lightning accepts, including learning-rate schedulers.
        These replace `lr_schedule`, and are stepped automatically as `Schedulers` describes.
        """
        groups = self._parameter_groups()
        return FlatAdam([{"params": parameters, "name": name} for name, parameters in groups.items()], lr=self.lr)

    def optimize(self, loss: Tensor, *, optimizer: int = 0, record_norms: bool = False) -> None:
        """Take one gradient step, averaged over all ranks; all ranks must call it equally often.

        The loss may depend on any of the parameters, or on some ranks on none of them. Optimisers
        other than `FlatAdam` keep the learning rates that they were created with.

        Args:
            loss: A scalar.
            optimizer: Index of the optimiser in `configure_optimizers`.
            record_norms: Also record the gradient norms of policies and critics.
        """
        self._updates.optimize(loss, optimizer, record_norms)

    def learning_rate_of(self, group: str, learning_rate: float) -> float:
        """Return the learning rate of a `FlatAdam` parameter group; 0 leaves the group unchanged.

        Args:
            group: Name of the group.
            learning_rate: Learning rate according to the schedule.
        """
        return 0.0 if group == "policy" and self.in_critic_burn_in else learning_rate

    def loss(self, minibatch: Any) -> Tensor:
        """Compute the loss of a set of acts; algorithms that call `descend` override this.

        A loss may call `record` and read any state: attributes, helper objects, the trainer. While
        it is replayed from a record, the state that it reads is watched, and a change makes it
        recorded again. If changes are frequent or cannot be detected, the loss is computed eagerly,
        and a message gives the reason.
        """
        raise TypeError(f"{type(self).__name__} calls descend, but defines no loss")

    def descend(
        self,
        minibatch: Any,
        *,
        loss: Callable[[Any], Tensor] | None = None,
        optimizer: int = 0,
        even: bool = True,
        record_norms: bool = False,
    ) -> None:
        """Take one gradient step on a loss, replayed from a record where possible; see `optimize`.

        Args:
            minibatch: Input of the loss: step key -> an object with `tensors`, `with_tensors` and
                `structure`.
            loss: A method of this module with the contract of `loss`; None for `loss` itself.
            optimizer: Index of the optimiser in `configure_optimizers`. Parameters of the other
                optimisers are constants of the loss.
            even: All minibatches have the same shapes, so that recording pays off.
            record_norms: Also record the gradient norms of policies and critics.
        """
        self._updates.descend(minibatch, loss or self.loss, optimizer, even, record_norms)

    def last_recorded(self, name: str) -> dict[StepKey, Tensor]:
        """Return, by step key, what the loss recorded under a name in the last `descend`."""
        return self._updates.last_recorded(name)

    def setup(self, stage: str) -> None:
        """Arrange that this rank leaves the others in an orderly way at the end."""
        leave_at_exit()

    def on_fit_start(self) -> None:
        """Refuse combinations of options that cannot work."""
        trainer = self.trainer
        if self.lr_schedule == "linear" and trainer.max_epochs in (None, -1):
            raise ValueError("lr_schedule=linear needs the length of the run: set trainer.max_epochs")
        if self.lr_schedule != "constant" and self._schedulers.is_active:
            raise ValueError("lr_schedule=linear and a scheduler of configure_optimizers contradict: use one of them")
        if getattr(trainer.precision_plugin, "scaler", None) is not None:
            raise ValueError(f"precision={trainer.precision!r} scales losses, which is not supported; use bf16-mixed")

    def _learning_rate(self) -> float:
        if self.lr_schedule == "constant":
            return self.lr
        assert self.trainer.max_epochs is not None
        n_batches = self.trainer.max_epochs * self.trainer.num_training_batches
        return self.lr * max(0.0, 1.0 - self.trainer.fit_loop.epoch_loop.total_batch_idx / n_batches)

    # ---------------------------------------------------------------------------------------------- statistics

    def record(self, name: str, value: Tensor | float, step_key: StepKey | None = None, *, count: float = 1.0) -> None:
        """Add a value to a statistic, logged once per epoch as the mean over all calls and ranks.

        Args:
            name: The statistic, logged as "train_<topic>/<name>" or
                "train_<topic>/<name>/substep_<key>".
            value: A number, or the sum of `count` numbers. Tensors are not moved to the CPU before
                the epoch ends.
            step_key: Step key that the value belongs to.
            count: Number of summands; need not be an integer.
        """
        records = self._updates.records
        if records is None:
            self._statistics.record(f"{self.topic}/{name}", value, step_key, count)
        else:
            records.append((name, value, step_key, count))

    def on_train_epoch_start(self) -> None:
        """Start the clock of the epoch."""
        self._epoch_began = time.perf_counter()
        self._updates.start_epoch()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Count environment steps and episodes, and set the learning rate."""
        self._batch_began = time.perf_counter()
        self._unfinished_batches += 1
        learning_rate = self._learning_rate()
        self._schedulers.start_batch(learning_rate)
        self._updates.start_batch(self._schedulers.rates)
        self._record_learning_rates(learning_rate)
        if isinstance(batch, Experience):
            self.env_steps += int(sum_over_ranks(torch.tensor(batch.env_steps, device=self.device)))
            self._statistics.add_episodes("train", batch.summaries)
            for name, value in {"time_rollout": batch.seconds, **batch.measures}.items():
                self.record(name, value)

    def _record_learning_rates(self, learning_rate: float) -> None:
        """Record the learning rate; with schedulers, that of each optimiser's first group."""
        optimizers = self.trainer.optimizers if self._schedulers.is_active else []
        for index, optimizer in enumerate(optimizers):
            group = optimizer.param_groups[0]
            name, rate = group.get("name", ""), group["lr"]
            if isinstance(optimizer, FlatAdam):
                rate = self.learning_rate_of(name, rate)
            self.record(f"learning_rate_{name or index}" if index else "learning_rate", rate)
        if not optimizers:
            self.record("learning_rate", learning_rate)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Finish the epoch's statistics after its last batch, before evaluation and callbacks."""
        self._finish_updates()
        self._schedulers.finish_batch()
        self.record("time_update", time.perf_counter() - self._batch_began)
        if self.trainer.is_last_batch:
            self._finish_training(on_step=True)

    def _finish_updates(self, *, alone: bool = False) -> None:
        """Collect the values that losses recorded, and raise ValueError if any was not finite."""
        for name, step_key, total, count in self._updates.finish(alone=alone):
            self.record(name, total, step_key, count=count)

    def on_train_epoch_end(self) -> None:
        """Finish the statistics of an epoch that ended early, and step monitoring schedulers."""
        if self._unfinished_batches:
            self._finish_training(on_step=False)
        self._schedulers.finish_epoch()

    def _finish_training(self, *, on_step: bool) -> None:
        self._unfinished_batches = 0
        self.record("time_epoch", time.perf_counter() - self._epoch_began)
        table = self._statistics.finish_training()
        self._publish("train", table)
        metrics = {f"train/{name}": value for name, value in table.metrics.items()}
        self.log_dict(metrics, logger=False, on_step=on_step, on_epoch=not on_step, batch_size=1, sync_dist=True)
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
        for name, table in self._statistics.finish_evaluation().items():
            self._publish(name, table)
            metrics = {f"{name}/{metric}": value for metric, value in table.metrics.items()}
            self.log_dict(metrics, logger=False, batch_size=1, sync_dist=True)

    def on_test_epoch_end(self) -> None:
        """Do the same as in validation."""
        self.on_validation_epoch_end()

    def _publish(self, source: str, table: SourceStatistics) -> None:
        self.epoch_statistics[source], self.epoch_plots[source] = table.values, table.plots
        scalars = table.scalars(source)
        for logger in self.loggers:
            logger.log_metrics(scalars, step=self.env_steps)
        self.trainer.callback_metrics.update({name: torch.tensor(value) for name, value in scalars.items()})

    # --------------------------------------------------------------------------------------------- checkpoints

    def on_train_start(self) -> None:
        """Restore or seed the random generators of this rank.

        This hook runs after Lightning has restored its state, which would overwrite them.
        """
        self._schedulers.start()
        restored, self._restored = self._restored, None
        if restored is not None and self.trainer.ckpt_path is not None:
            ranks = restored["ranks"]
            if len(ranks) == world_size():
                own = ranks[self.global_rank]
                self.generator.set_state(own["generator"].cpu())
                restore_random_state(own["random"], self.device)
                self._statistics.load_rank_state_dict(own["statistics"])
                self._unfinished_batches = own["unfinished_batches"]
                return
            rank_zero_warn(f"random generators start anew: the checkpoint is of {len(ranks)} ranks, not {world_size()}")
        seed = int(os.environ.get("PL_GLOBAL_SEED", torch.initial_seed() % 2**31))
        self.generator.manual_seed(derive_seed(seed, "minibatches", self.env_steps, self.global_rank))
        if world_size() > 1:
            seed_global_generators(derive_seed(seed, "rank", self.env_steps, self.global_rank))

    def get_extra_state(self) -> Tensor:
        """Return the count of environment steps: spawned processes return only module state."""
        return torch.tensor(self.env_steps)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the count of environment steps from `get_extra_state`."""
        self.env_steps = int(state)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the state of all ranks; Lightning calls this on each rank.

        Raises:
            ValueError: The last losses or gradients were not finite.
        """
        # After an exception the other ranks may no longer be there to answer.
        alone = self._trainer is not None and self.trainer.interrupted
        self._finish_updates(alone=alone)
        own: RankState = {
            "generator": self.generator.get_state(),
            "random": global_random_state(self.device),
            "statistics": self._statistics.rank_state_dict(),
            "unfinished_batches": self._unfinished_batches,
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

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the state added by `on_save_checkpoint`; build the networks if necessary.

        Raises:
            ValueError: The checkpoint has another format.
        """
        entry = checkpoint_entry(checkpoint)
        if entry is None or "class_path" not in entry:  # of another program or kind of module
            return
        if self.actor_critic is None:
            self._compose(Spec.from_dict(entry["spec"]))
        self.env_steps = entry["env_steps"]
        self._statistics.load_state_dict(entry["statistics"])
        self._schedulers.load(entry["monitored"])
        self._restored = entry

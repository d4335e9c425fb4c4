"""Base class of all algorithms: networks, learning rates, gradient steps; `RunModule` has the rest."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Self, TypeVar, cast, overload

from torch import Tensor, nn
from torch.optim import Optimizer

from maze_pl.agents import TorchActorCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.checkpoint_content import add_to_checkpoint, checkpoint_entry
from maze_pl.core.checks import check_at_least
from maze_pl.core.spec import Spec
from maze_pl.modules.hyperparameters import PlainHyperparameters, save_plain_hyperparameters
from maze_pl.modules.learning_rates import LearningRates
from maze_pl.modules.network_choice import NetworksOption, as_spec, composed, composer_of, require_critic, spec_of_data
from maze_pl.modules.network_description import NamedNetworks, describe_networks, require_same_networks
from maze_pl.modules.notes import say_before_training
from maze_pl.modules.optimization.batch_statistics import average_batch_statistics
from maze_pl.modules.optimization.flat_optimizer import FlatOptimizer
from maze_pl.modules.optimization.frozen_parameters import frozen_names, restore_frozen
from maze_pl.modules.optimization.gradient_step import GradientSteps, divergence
from maze_pl.modules.optimization.network_parts import networks_with_norms
from maze_pl.modules.optimization.optimizer_options import OptimizerChoice, OptimizerOptions
from maze_pl.modules.optimization.parameter_group import ParameterGroup
from maze_pl.modules.optimization.parameter_names import trainable_by_group
from maze_pl.modules.optimization.recorded_values import RecordedValue
from maze_pl.modules.optimization.restored_state import names_by_group, require_fitting_state
from maze_pl.modules.optimization.step_plan import LossOwner, StepPlan, make_plan, optimizer_of
from maze_pl.modules.run_module import RunModule
from maze_pl.modules.target_networks import forget_pieces
from maze_pl.schedules import Coefficient, require_length

Inputs = TypeVar("Inputs")


class AlgorithmModule(NamedNetworks, PlainHyperparameters, RunModule):
    """A learning algorithm. Subclasses write `training_step`, which calls `gradient_step` any number of times.

    A subclass declares as `batch_type` what it learns from; other data is refused before there are
    environments. Hooks for subclasses, besides those of Lightning, are described by `AlgorithmHooks`.

    Networks are passed ready-made as `actor_critic`, or are built by `networks` from the
    specification: at once if `spec` is given, otherwise from the specification of the data module
    when training or evaluation starts. With `auto`, the default, `AutomaticModelComposer` does it.

    Args:
        networks: Composer of policy and critic; by default `auto`, for networks that fit the spaces.
        spec: Observations and actions of the agent; the command line takes it from the data module.
        actor_critic: Ready-made networks, instead of `networks`.
        lr: Learning rate: a number or a schedule.
        optimizer: `adam`, `sgd` with a momentum of 0.9, or a class of optimisers with its options.
        optimizer_groups: Pattern of parameter names -> options of the optimiser for these
            parameters; the first pattern that matches counts.
        frozen: Patterns of parameter names, such as `policy.*`, that are not trained.
        max_grad_norm: Maximum L2 norm of the gradient; 0 for no limit.
        lr_schedule: `linear` decays the learning rate from `lr` to 0 over all batches of the run.
        critic_burn_in_epochs: Number of initial epochs in which only the critic learns. Parameters
            that it shares with the policy are not updated either.
        grad_norms_by_part: Also record the gradient norm of each part of the networks, such as body
            and heads, under the statistics `policy_grad_norm` and `critic_grad_norm`.
        capture: `auto` traces the operations of an update once and runs the trace, where that is
            possible and yields the same numbers; `off` runs every update eagerly.

    Attributes:
        chosen_networks: Automatic networks as YAML; None for all others.
        given_arguments: Arguments of the constructor without networks; `hparams` has texts for objects.
    """

    def __init__(
        self,
        networks: NetworksOption | None = None,
        spec: Spec | dict[str, Any] | None = None,
        actor_critic: TorchActorCritic | None = None,
        lr: Coefficient = 5e-4,
        optimizer: OptimizerChoice = "adam",
        optimizer_groups: dict[str, ParameterGroup] | None = None,
        frozen: list[str] | None = None,
        max_grad_norm: float = 0.0,
        lr_schedule: Literal["constant", "linear"] = "constant",
        critic_burn_in_epochs: int = 0,
        grad_norms_by_part: bool = False,
        capture: Literal["auto", "off"] = "auto",
    ) -> None:
        super().__init__()
        if capture not in ("auto", "off"):
            raise ValueError(f"capture={capture!r} must be 'auto' or 'off'")
        check_at_least(0, max_grad_norm=max_grad_norm, critic_burn_in_epochs=critic_burn_in_epochs)
        self.automatic_optimization = False
        self.capture = capture
        self.max_grad_norm = max_grad_norm
        self.lr_schedule = lr_schedule
        self.critic_burn_in_epochs = critic_burn_in_epochs
        self.grad_norms_by_part = grad_norms_by_part
        self.chosen_networks: str | None = None
        self.composer = composer_of(networks, actor_critic)  # until networks are built
        self._optimizer_options = OptimizerOptions(self, optimizer, optimizer_groups, frozen)
        self._learning_rates = LearningRates(self, lr, lr_schedule, self._optimizer_options, self._schedulers)
        self.lr = self._learning_rates.first
        self._modules_at_rest: list[nn.Module] = []
        self._loaded_checkpoint: dict[str, Any] = {}  # until optimisers exist
        self._gradient_steps = GradientSteps()
        self.given_arguments = save_plain_hyperparameters(self)
        self.hparams.update(self._optimizer_options.hyperparameters())
        if actor_critic is not None:
            self._use_networks(actor_critic)
        elif spec is not None:
            self._compose(as_spec(spec))

    # ------------------------------------------------------------------------------------------------ networks

    def configure_model(self) -> None:
        """Build the networks from the data module's specification, unless they exist already."""
        if self._trainer is not None:
            self._schedulers.intercept()
            if self.actor_critic is None:
                self._compose(spec_of_data(self.trainer))

    def _compose(self, spec: Spec) -> None:
        assert self.composer is not None
        networks, self.chosen_networks = composed(self.composer, spec, self.critic_type, self.head_distributions)
        self._use_networks(networks)
        self.composer = None  # it may hold lambdas, which cannot be sent to a spawned process

    def _use_networks(self, actor_critic: TorchActorCritic) -> None:
        self.actor_critic = actor_critic
        try:
            if actor_critic.critic is not None:  # without a critic they may act, but not learn
                require_critic(type(self).__name__, actor_critic.critic, self.critic_type)
            self.on_networks_ready()
            self._optimizer_options.apply_to_parameters()
            if self.critic_burn_in_epochs and not self.parameter_groups().get("critic"):
                raise ValueError("critic_burn_in_epochs needs a critic with separate parameters, but there is none")
        except BaseException:
            self.actor_critic = None  # a later run is refused for the same reason
            raise

    def train(self, mode: bool = True) -> Self:
        """Switch to training mode; statistics of frozen layers remain in evaluation mode while training."""
        super().train(mode)
        for module in self._modules_at_rest:
            module.training = False
        return self

    # -------------------------------------------------------------------------------------------- optimisation

    @property
    def in_critic_burn_in(self) -> bool:
        """True if only the critic learns in this epoch."""
        return self.current_epoch < self.critic_burn_in_epochs

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return the trainable parameters of `policy`, `critic` (of it alone) and `other`, if any."""
        return trainable_by_group({"policy": self.policy, "critic": self.critic, "other": self})

    def configure_optimizers(self) -> Optimizer:
        """Create the optimiser of all parameters, in groups named policy, critic and (all others) other.

        Subclasses may return anything that Lightning accepts, including learning-rate schedulers.
        These replace `lr_schedule`, and are stepped automatically as `Schedulers` describes.
        """
        return self.make_optimizer(self.parameter_groups())

    def make_optimizer(self, groups: dict[str, list[nn.Parameter]]) -> Optimizer:
        """Create an optimiser as `optimizer` and `optimizer_groups` describe it.

        Its learning rates follow the options, and `learning_rate_of`. Adam, AdamW and SGD are
        created in their flat forms, which are faster and have the same numbers.

        Args:
            groups: Some groups of `parameter_groups`, by name.

        Raises:
            ValueError: The optimiser sets a learning rate itself, or lacks an option of a group.
        """
        return self._optimizer_options.make(groups, self.lr)

    def follows_schedule(self, name: str) -> bool:
        """True if an option is given as a schedule; `lr_schedule` does not make `lr` one.

        Args:
            name: `lr`, or the name of an option that `coefficient` was called with.
        """
        return self._learning_rates.is_scheduled if name == "lr" else name in self._coefficients.values

    def learning_rate_of(self, group: str, learning_rate: float) -> float:
        """Return 0 for the policy while only the critic learns; see `AlgorithmHooks.learning_rate_of`."""
        return 0.0 if group == "policy" and self.in_critic_burn_in else learning_rate

    @property
    def current_learning_rate(self) -> float:
        """Learning rate of the current batch according to `lr` and `lr_schedule`."""
        return self._learning_rates.current

    def follow_learning_rate(self, optimizer: Optimizer) -> None:
        """Set the learning rates of all groups by `current_learning_rate`, unless schedulers do.

        Flat optimisers and those by `make_optimizer` follow it anyway, except where a callback has
        set another rate, which this call replaces. Other optimisers follow it only by this call.
        """
        self._learning_rates.follow(optimizer)

    @overload
    def gradient_step(
        self,
        loss: Callable[[Inputs], Tensor],
        minibatch: Inputs,
        *,
        optimizer: int = 0,
        even: bool = True,
        traced: bool = True,
        record_norms: bool = False,
    ) -> None: ...

    @overload
    def gradient_step(self, loss: Tensor, *, optimizer: int = 0, record_norms: bool = False) -> None: ...

    def gradient_step(
        self,
        loss: Tensor | Callable[[Any], Tensor],
        minibatch: Any = None,
        *,
        optimizer: int = 0,
        even: bool = True,
        traced: bool = True,
        record_norms: bool = False,
    ) -> None:
        """Take one gradient step, averaged over all ranks; all ranks must call it equally often.

        Losses may depend on any parameters, on some ranks on none. Methods of this module, such as
        `self.loss`, are traced where that yields the same numbers; autograd differentiates tensors.

        Args:
            loss: Function from the minibatch to a scalar, or a scalar.
            minibatch: Input of the function. It can be traced if it maps step keys to objects with
                `tensors`, `with_tensors` and `structure`, as `PolicySamples` and `TransitionBatch`.
            optimizer: Index of the optimiser in `configure_optimizers`. Parameters of the other
                optimisers are constants of the loss.
            even: Whether all minibatches have the same few shapes, each of which has a trace.
                Otherwise one trace, which takes longer to make, serves any numbers of acts.
            traced: False for a loss with other effects than `record`, such as one that keeps tensors.
            record_norms: Also record the gradient norms of policies and critics.

        Raises:
            TypeError: There is a function without a minibatch, or a scalar with one.
        """
        if isinstance(loss, Tensor) != (minibatch is None):
            raise TypeError("gradient_step takes a function with its minibatch, or a scalar tensor alone")
        plan = self._plan(optimizer)
        if isinstance(loss, Tensor):
            self._gradient_steps.step_on_scalar(plan, loss)
        else:
            self._gradient_steps.step_on_minibatch(plan, loss, minibatch, even=even, traced=traced)
        if record_norms:
            list_networks = partial(networks_with_norms, self.networks, by_part=self.grad_norms_by_part)
            for norm in self._gradient_steps.norms(plan, list_networks):
                self.record(*norm[:3])

    def values_of_loss(self) -> list[RecordedValue] | None:
        """Return the values that the loss has recorded so far; None outside of a loss."""
        return self._gradient_steps.values

    def last_recorded(self, name: str) -> dict[StepKey, Tensor]:
        """Return, by step key, what the loss recorded under a name in the last `gradient_step`."""
        return self._gradient_steps.last_recorded(name)

    @property
    def capture_refusal(self) -> str | None:
        """Reason why updates by all losses or by one are computed eagerly; None if there is none."""
        return self._gradient_steps.traced_losses.refused_any

    @property
    def n_traces(self) -> int:
        """Number of traces of losses made so far."""
        return self._gradient_steps.traced_losses.n_made

    def _plan(self, index: int) -> StepPlan:
        """Return the plan of an optimiser's steps in this batch."""
        plans = self._gradient_steps.plans_of_batch()
        if index not in plans:
            wrapped = optimizer_of(self, index).optimizer
            if self.sets_learning_rates_of(wrapped):
                self._learning_rates.set_rates(wrapped, index)
            skips_idle = self._optimizer_options.has_made(wrapped)
            plans[index] = make_plan(self, index, self.max_grad_norm, self._loss_owner(index), skip_idle=skips_idle)
        return plans[index]

    def _loss_owner(self, index: int) -> LossOwner | None:
        """Describe this module for the tracing of its losses; None if they are not traced."""
        if self.capture != "auto" or self.device.type not in ("cpu", "cuda"):
            return None
        settings = self.device, index, self.max_grad_norm, self.in_critic_burn_in, self.networks.training
        in_critic_burn_in = cast(Any, AlgorithmModule.in_critic_burn_in).fget
        return LossOwner(self, settings, (AlgorithmModule.record.__code__, in_critic_burn_in.__code__))

    def sets_learning_rates_of(self, optimizer: Optimizer) -> bool:
        """True if the options of the algorithm determine the learning rates of an optimiser."""
        return isinstance(optimizer, FlatOptimizer) or self._optimizer_options.has_made(optimizer)

    # ------------------------------------------------------------------------------------------- Lightning's hooks

    def setup(self, stage: str) -> None:
        """Forget the previous run; refuse data and networks that do not fit."""
        if stage == "fit":
            self._learning_rates.start_run()
            self._loaded_checkpoint = {}
        super().setup(stage)
        if stage == "fit" and self._trainer is not None and self.actor_critic is not None:
            require_critic(type(self).__name__, self.critic, self.critic_type)

    def cpu(self) -> Self:
        """Free memory of the GPU and move to the CPU, as the trainer does however a run ends."""
        self._gradient_steps.end_run()
        self._statistics.discard_unfinished()  # rollouts of a run that has failed may take much memory
        forget_pieces(self)
        return super().cpu()

    def on_fit_start(self) -> None:
        """Refuse combinations of options that cannot work; print automatic networks, and notes."""
        self._gradient_steps.start_run(self.device)
        say_before_training(self.policy, self.chosen_networks)
        require_fitting_state(self, self.trainer.optimizers, self._loaded_checkpoint, self.trainer.ckpt_path)
        self._learning_rates.restore(self._loaded_checkpoint)
        self._loaded_checkpoint = {}
        require_length(self.trainer, [*self._learning_rates.schedules, *self._coefficients.names])
        self._learning_rates.check_optimizers()

    def on_train_start(self) -> None:
        """Restore frozen parameters and random generators; set the first learning rates."""
        restore_frozen(self, self.trainer.optimizers, self._restored, self.trainer.ckpt_path)
        self._modules_at_rest = self._optimizer_options.modules_at_rest()
        for resting in self._modules_at_rest:
            resting.training = False
        super().on_train_start()
        self._learning_rates.set_next()

    def on_train_epoch_start(self) -> None:
        """Start the clock of the epoch, in which each trace is checked once."""
        super().on_train_epoch_start()
        self._learning_rates.set_next()  # the policy may learn from this epoch on
        self._gradient_steps.start_epoch()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Count environment steps and episodes, and set the learning rate."""
        self._learning_rates.start_batch()
        self._gradient_steps.start_batch()
        super().on_train_batch_start(batch, batch_idx)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Record what the losses recorded, on a GPU once per epoch; finish the statistics of the epoch."""
        if not self.automatic_optimization:
            self._gradient_steps.refuse_result(outputs, type(self).__name__)
        if self.device.type == "cpu":
            self._finish_updates()
        average_batch_statistics(self)
        super().on_train_batch_end(outputs, batch, batch_idx)
        self._learning_rates.set_next()

    def _finish_training(self, *, on_step: bool) -> None:
        self._finish_updates()
        super()._finish_training(on_step=on_step)

    def _finish_updates(self, *, alone: bool = False) -> None:
        """Collect the values that losses recorded, and raise ValueError if any was not finite."""
        finished = self._gradient_steps.finish()
        failed = finished.failed if alone else finished.failed_anywhere(self.device)
        if failed:
            self._statistics.fetch_episodes()  # raises an error that says more if the environment is at fault
            where = f"epoch {self.current_epoch}, at env step {self.env_steps}"
            raise ValueError(divergence(failed, where, self.lr, self.max_grad_norm))
        for name, step_key, total, count in finished.sums:
            self.record(name, total, step_key, count=count)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the state of all ranks; Lightning calls this on each rank.

        Raises:
            ValueError: The last losses or gradients were not finite.
        """
        if self.actor_critic is None:  # after an error, which is to be seen: there is nothing to save yet
            return
        self._finish_updates(alone=self.saves_alone)
        super().on_save_checkpoint(checkpoint)
        optimized = names_by_group(self, self.trainer.optimizers)
        add_to_checkpoint(checkpoint, optimized=optimized, frozen=frozen_names(self, self.trainer.optimizers))
        add_to_checkpoint(checkpoint, networks=describe_networks(self.networks))
        self._learning_rates.save(checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the state added by `on_save_checkpoint`, as `RunModule`; build the networks if necessary."""
        entry = checkpoint_entry(checkpoint)
        if entry is not None and "class_path" in entry:
            if self.actor_critic is None:
                self._compose(Spec.from_dict(entry["spec"]))
            require_same_networks(self.networks, entry, checkpoint["state_dict"])
        if self._trainer is not None and self.trainer.training:
            self._loaded_checkpoint = checkpoint
        super().on_load_checkpoint(checkpoint)

"""Base class of all algorithms: networks, optimisation step, statistics and checkpoint contents."""

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, cast, overload

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher
from pytorch_lightning.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor, nn
from torch.optim import Optimizer

from maze_pl.agents import Critic, TorchActorCritic, TorchPolicy
from maze_pl.agents.acting import ActsOnObservations
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Evaluation, Experience
from maze_pl.core.checkpoint import CheckpointEntry, RankState, add_to_checkpoint, checkpoint_entry
from maze_pl.core.checks import check_at_least, check_not_negative, check_positive, is_plain
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.core.training_data import DataRequirements
from maze_pl.modules.batch_types import learned_type, require_fitting_batch, require_fitting_data
from maze_pl.modules.coefficients import Coefficients
from maze_pl.modules.described_statistics import descriptions_of
from maze_pl.modules.optimization.batch_statistics import average_batch_statistics
from maze_pl.modules.optimization.flat_optimizer import FlatOptimizer
from maze_pl.modules.optimization.gradient_step import GradientSteps, NetworkParameters
from maze_pl.modules.optimization.network_parts import parts_of
from maze_pl.modules.optimization.optimizer_options import OptimizerChoice, OptimizerOptions
from maze_pl.modules.optimization.parameter_group import ParameterGroup
from maze_pl.modules.optimization.step_plan import LossOwner, StepPlan, make_plan, optimizer_of
from maze_pl.modules.optimization.traced_loss import RecordedValue
from maze_pl.modules.random_state import (
    Generator,
    global_random_state,
    restore_random_state,
    seed_global_generators,
)
from maze_pl.modules.run_statistics import RunStatistics, SourceStatistics, Value
from maze_pl.modules.schedulers import Schedulers
from maze_pl.perception.models.automatic_model_composer import AutomaticModelComposer, as_yaml
from maze_pl.schedules import Coefficient, Linear, described, require_length, run_progress, value_at
from maze_pl.schedules.coefficient import Check
from maze_pl.system.ranks import gather_objects, leave_at_exit, sum_over_ranks, world_size

Inputs = TypeVar("Inputs")

DistributionOverrides = list[dict[str, str]]
"""Distributions of action spaces or heads, in the format of `CustomModelComposer`."""


class ModelComposer(Protocol):
    """Builder of networks from a specification."""

    def compose(self, spec: Spec) -> TorchActorCritic:
        """Build the networks.

        Args:
            spec: Observations and actions of the agent.
        """
        ...


NetworksOption = ModelComposer | Literal["auto"]
"""A composer, or `auto` for networks that are chosen from the spaces."""


class AlgorithmModule(pl.LightningModule, ActsOnObservations):
    """A learning algorithm. Subclasses write `training_step`, which calls `gradient_step` any number of times.

    A subclass declares as `batch_type` what it learns from; a data module that delivers something
    else is refused before environments are made. Hooks for subclasses, besides those of Lightning:

    - `on_networks_ready`: policy and critic exist; make further parameters here.
    - `parameter_groups`: the trainable parameters by group, for `configure_optimizers`.
    - `learning_rate_of`: the learning rate of a group in the current batch.
    - `on_coefficients_set`: options that follow a schedule have their values of the next batch.
    - `data_requirements`: numbers that the training data depends on.
    - `check_data_module`: refusal of data that does not fit the options.
    - `record_epoch`: statistics of an epoch as a whole.

    Networks are passed ready-made as `actor_critic`, or are built by `networks` from the
    specification: at once if `spec` is given, otherwise from the specification of the data module
    when training or evaluation starts. With `auto`, which is the default, they are chosen to fit
    the specification, see `AutomaticModelComposer`.

    A subclass that overrides a hook must call `super()`, except where the hook says otherwise.

    Args:
        networks: Composer that builds policy and critic; `auto`, the default, for networks that
            fit the spaces.
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
            possible and yields the same numbers, as long as nothing that the loss reads changes;
            `off` runs every update eagerly.

    Attributes:
        batch_type: Class of the batches that the algorithm learns from. Where it is not declared,
            the annotation of the batch in `training_step` counts, if it is a class of
            `maze_pl.core.batches`; otherwise any batch is accepted.
        critic_type: Class of critics that the algorithm needs; networks with another critic, or
            without one, are refused, and automatic networks have one. `object` accepts any
            networks; automatic ones have no critic then.
        head_distributions: Distributions of action heads in automatic networks, where they are to
            be others than the default ones.
        chosen_networks: Automatic networks as YAML; None for all others.
        topic: Section of the logs in which recorded values appear.
        statistics: Name of a recorded value -> one line that describes it, for statistics that shipped
            algorithms do not record.
        generator: Random generator of this rank, restored with checkpoints.
        env_steps: Environment steps learned from so far, over all ranks and the whole run.
        epoch_statistics: Source ("train" or an evaluator's name) -> the latest table of
            "<Topic>/<event>/<statistic>".
        epoch_plots: Source -> figures of events that declare plots, under the same names.
    """

    batch_type: ClassVar[type] = object
    critic_type: ClassVar[type] = object
    head_distributions: ClassVar[DistributionOverrides] = []
    topic = "ActorCriticEvents"
    statistics: ClassVar[Mapping[str, str]] = {}

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
        self.capture = capture
        if networks is not None and actor_critic is not None:
            raise ValueError("give either networks, which are built from the specification, or a ready actor_critic")
        if isinstance(networks, str) and networks != "auto":
            raise ValueError(f"networks={networks!r} must be a composer, or 'auto' for networks that fit the spaces")
        if lr_schedule not in ("constant", "linear"):
            raise ValueError(f"lr_schedule={lr_schedule!r} must be 'constant' or 'linear'")
        if lr_schedule == "linear" and callable(lr):
            raise ValueError(f"lr_schedule=linear and lr={described(lr)}, a schedule, contradict: use one of them")
        check_at_least(0, max_grad_norm=max_grad_norm, critic_burn_in_epochs=critic_burn_in_epochs)
        self.automatic_optimization = False
        self.lr = value_at("lr", lr, 0.0, check_not_negative if callable(lr) else check_positive)
        self._lr_coefficient = lr if lr_schedule == "constant" else Linear(self.lr, 0.0)
        self.max_grad_norm = max_grad_norm
        self.lr_schedule = lr_schedule
        self.critic_burn_in_epochs = critic_burn_in_epochs
        self.grad_norms_by_part = grad_norms_by_part
        self.generator = Generator()
        self.env_steps = 0
        self.epoch_statistics: dict[str, dict[str, Value]] = {}
        self.epoch_plots: dict[str, dict[str, Any]] = {}
        self._statistics = RunStatistics()
        self._learned_type = learned_type(type(self))
        self._coefficients = Coefficients(self)
        self._optimizer_options = OptimizerOptions(self, optimizer, optimizer_groups, frozen)
        self._modules_at_rest: list[nn.Module] = []
        self._gradient_steps = GradientSteps()
        self._networks_with_norms: list[NetworkParameters] | None = None  # of the current epoch
        self._schedulers = Schedulers(self)
        self._unfinished_batches = 0
        self._restored: CheckpointEntry | None = None
        self._epoch_began = self._batch_began = time.perf_counter()
        self._save_plain_hyperparameters()
        if callable(lr):
            self.hparams["lr"] = described(lr)
        self.hparams.update(self._optimizer_options.hyperparameters())
        self.chosen_networks: str | None = None
        self._composer: ModelComposer | None = None
        self.actor_critic: TorchActorCritic | None = None
        if actor_critic is None:
            self._composer = AutomaticModelComposer() if networks is None or isinstance(networks, str) else networks
        if actor_critic is not None:
            self._use_networks(actor_critic)
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
        composer = self._composer
        assert composer is not None
        if isinstance(composer, AutomaticModelComposer):
            networks = composer.compose(spec, self.critic_type, self.head_distributions)
            description = composer.describe(spec, self.critic_type, self.head_distributions)
            self.chosen_networks = as_yaml(description)
        else:
            networks = composer.compose(spec)
        self._use_networks(networks)
        self._composer = None  # it may hold lambdas, which cannot be sent to a spawned process

    def _use_networks(self, actor_critic: TorchActorCritic) -> None:
        self.actor_critic = actor_critic
        try:
            if actor_critic.critic is not None:  # without a critic they may act, but not learn
                self._require_critic()
            self.on_networks_ready()
            self._optimizer_options.apply_to_parameters()
            if self.critic_burn_in_epochs and not self.parameter_groups().get("critic"):
                raise ValueError("critic_burn_in_epochs needs a critic with parameters of its own, but there is none")
        except BaseException:
            self.actor_critic = None  # a later run is refused for the same reason
            raise

    def _require_critic(self) -> None:
        """Refuse networks whose critic is not a `critic_type`.

        Raises:
            ValueError: The critic is of another class, or there is none.
        """
        critic = self.networks.critic
        if not isinstance(critic, self.critic_type):
            found = "none" if critic is None else f"a {type(critic).__name__}"
            remedy = "name a composer that builds one in networks, or use networks=auto"
            raise ValueError(f"{type(self).__name__} needs a {self.critic_type.__name__}, not {found}: {remedy}")

    def on_networks_ready(self) -> None:
        """Prepare for training once `networks`, `policy` and `critic` exist; called once.

        Parameters that the algorithm needs besides the networks' are made here, so that they are
        trained, moved and saved. The hook may replace `actor_critic`, or refuse the networks.
        If the networks are passed or built in the constructor, it is called from
        `AlgorithmModule.__init__`: options that it reads must be set before `super().__init__`.
        """

    def _save_plain_hyperparameters(self) -> None:
        """Keep numbers, strings, and lists and dicts of them: checkpoints may hold nothing else."""
        ignored = ["spec", "actor_critic"]
        self.save_hyperparameters(ignore=ignored)
        ignored += [name for name, value in self.hparams.items() if not is_plain(value)]
        if self.hparams.get("networks") is None:
            ignored.append("networks")  # ready-made networks must be passed again
        self.save_hyperparameters(ignore=ignored)

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
        """Return the trainable parameters by group, without empty groups.

        Groups are `policy`, `critic` (parameters of the critic alone) and `other`.
        """
        groups: dict[str, list[nn.Parameter]] = {}
        assigned: set[int] = set()
        for name, module in (("policy", self.policy), ("critic", self.critic), ("other", self)):
            parameters = [] if module is None else [p for p in module.parameters() if id(p) not in assigned]
            assigned |= {id(parameter) for parameter in parameters}
            groups[name] = [parameter for parameter in parameters if parameter.requires_grad]
        return {name: parameters for name, parameters in groups.items() if parameters}

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

    def coefficient(self, name: str, value: Coefficient, check: Check | None = None) -> float | Tensor:
        """Let an option of the constructor be a number or follow a schedule.

            self.clip_range = self.coefficient("clip_range", clip_range, check_positive)

        A number remains a number. For a schedule the result is a tensor without dimensions, to be
        assigned to the attribute `name`. It is changed in place: it has the value of a batch while
        the data of this batch is collected and learned from. A loss that calculates with it is
        traced once for all values. Outside of losses, `float(self.clip_range)` is the number. The
        mean of the values in an epoch is logged under the option's name.

        Call it after `super().__init__`.

        Args:
            name: Name of the option.
            value: A number, or a function of the progress of the run, from 0 to 1.
            check: Check of the values, such as `maze_pl.core.checks.check_positive`.

        Raises:
            TypeError: It is neither, or the function does not return numbers.
            ValueError: A value is out of range.
        """
        return self._coefficients.add(name, value, check)

    def optional_coefficient(
        self, name: str, value: Coefficient | None, check: Check | None = None
    ) -> float | Tensor | None:
        """Do the same as `coefficient` for an option that may be None."""
        return None if value is None else self.coefficient(name, value, check)

    def value_of(self, name: str) -> float:
        """Return an option that may follow a schedule as a number: its value in the current batch.

        A traced loss must not call it: it reads the attribute.

        Args:
            name: Name of the option, see `coefficient`.
        """
        values = self._coefficients.values
        return values[name] if name in values else float(getattr(self, name))

    def follows_schedule(self, name: str) -> bool:
        """True if an option is given as a schedule; `lr_schedule` does not make `lr` one.

        Args:
            name: `lr`, or the name of an option that `coefficient` was called with.
        """
        if name == "lr":
            return callable(self._lr_coefficient) and self.lr_schedule == "constant"
        return name in self._coefficients.values

    def on_coefficients_set(self) -> None:
        """Use the new values of options that follow schedules, before data of the next batch is collected.

        Called at the beginning of a new or resumed run, and after each batch but the last one. It
        is the place to pass a coefficient of acting, such as an exploration rate, to the policy.
        """

    def learning_rate_of(self, group: str, learning_rate: float) -> float:
        """Return the learning rate of a parameter group; 0 leaves the group unchanged.

        It is asked about groups of flat optimisers, and of optimisers by `make_optimizer`.

        Args:
            group: Name of the group in `parameter_groups`.
            learning_rate: Learning rate according to the schedule, and to `optimizer_groups`.
        """
        return 0.0 if group == "policy" and self.in_critic_burn_in else learning_rate

    @property
    def current_learning_rate(self) -> float:
        """Learning rate of the current batch according to `lr` and `lr_schedule`."""
        if not callable(self._lr_coefficient):
            return self.lr
        return value_at("lr", self._lr_coefficient, run_progress(self.trainer), check_not_negative)

    def follow_learning_rate(self, optimizer: Optimizer) -> None:
        """Set the learning rate of all groups to `current_learning_rate`, unless schedulers do.

        `gradient_step` sets those of flat optimisers, and of optimisers by `make_optimizer`; others
        keep the rates that they were created with unless this is called.
        """
        if self._schedulers.is_active:
            return
        learning_rate = self.current_learning_rate
        is_ours = self.sets_learning_rates_of(optimizer)
        for group in optimizer.param_groups:
            group["lr"] = self._rate_of(group, learning_rate) if is_ours else learning_rate

    def loss(self, minibatch: Any) -> Tensor:
        """Compute the loss of a minibatch, for `self.gradient_step(self.loss, minibatch)`.

        A loss may call `record` and read any state: attributes, helper objects, the trainer. While
        it is run from a trace, the state that it reads is watched, and a change makes it
        traced again. If changes are frequent or cannot be detected, the loss is computed eagerly,
        and a message gives the reason.
        """
        raise TypeError(f"{type(self).__name__} takes gradient steps on self.loss, but defines no loss")

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
    def gradient_step(
        self,
        loss: Tensor,
        minibatch: None = None,
        *,
        optimizer: int = 0,
        even: bool = True,
        traced: bool = True,
        record_norms: bool = False,
    ) -> None: ...

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

        The loss may depend on any of the parameters, or on some ranks on none of them. A loss that
        is passed as a method of this module, such as `self.loss`, is traced and run where
        that is possible and yields the same numbers; a tensor is differentiated by autograd.

        Args:
            loss: Function from the minibatch to a scalar, or a scalar.
            minibatch: Input of the function. It can be traced if it is a dict from step keys to
                objects with `tensors`, `with_tensors` and `structure`, such as `PolicySamples` and
                `TransitionBatch`.
            optimizer: Index of the optimiser in `configure_optimizers`. Parameters of the other
                optimisers are constants of the loss. Optimisers other than `FlatAdam` keep the
                learning rates that they were created with, see `follow_learning_rate`.
            even: All minibatches have the same shapes, for each of which a trace is made. Otherwise
                one trace serves minibatches with any numbers of acts; it takes longer to make.
            traced: The loss may be traced. False for a loss that does more than compute a result
                and `record` values, such as one that keeps tensors in an attribute.
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
            if self._networks_with_norms is None:
                self._networks_with_norms = self._list_networks()
            for norm in self._gradient_steps.norms(plan, self._networks_with_norms):
                self.record(*norm[:3])

    def last_recorded(self, name: str) -> dict[StepKey, Tensor]:
        """Return, by step key, what the loss recorded under a name in the last `gradient_step`."""
        return self._gradient_steps.last_recorded(name)

    @property
    def capture_refusal(self) -> str | None:
        """Reason why updates are no longer traced, but computed eagerly; None if there is none."""
        return self._gradient_steps.traced_losses.refused

    def _plan(self, index: int) -> StepPlan:
        """Return the plan of an optimiser's steps in this batch."""
        plans = self._gradient_steps.plans
        if plans is None:
            raise RuntimeError("a gradient step was asked for outside of a training batch")
        if index in plans:
            return plans[index]
        wrapped = optimizer_of(self, index).optimizer
        if self.sets_learning_rates_of(wrapped):
            self._set_rates(wrapped, index)
        owner = None
        if self.capture == "auto" and self.device.type == "cpu":
            idle = tuple(group["lr"] == 0.0 for group in wrapped.param_groups)
            settings = index, idle, self.max_grad_norm, self.in_critic_burn_in, self.networks.training
            in_critic_burn_in = cast(Any, AlgorithmModule.in_critic_burn_in).fget
            owner = LossOwner(self, settings, (AlgorithmModule.record.__code__, in_critic_burn_in.__code__))
        plans[index] = make_plan(
            self, index, self.max_grad_norm, owner, skip_idle=self._optimizer_options.has_made(wrapped)
        )
        return plans[index]

    def sets_learning_rates_of(self, optimizer: Optimizer) -> bool:
        """True if the options of the algorithm determine the learning rates of an optimiser."""
        return isinstance(optimizer, FlatOptimizer) or self._optimizer_options.has_made(optimizer)

    def _set_rates(self, optimizer: Optimizer, index: int = 0) -> None:
        """Set the learning rates of an optimiser's groups for this batch."""
        rates = self._schedulers.rates(index, len(optimizer.param_groups))
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = self._rate_of(group, rate)

    def _rate_of(self, group: dict[str, Any], rate: float) -> float:
        """Return the learning rate of a group in this batch.

        Args:
            group: Entry of `param_groups`.
            rate: Learning rate of the algorithm, or what schedulers have set for the group.
        """
        if "pattern" in group and not self._schedulers.is_active:
            factor = rate / self.lr if self.lr_schedule == "linear" else 1.0
            rate = self._optimizer_options.rate(group["pattern"], rate, factor, partial(run_progress, self.trainer))
        return self.learning_rate_of(group.get("part", group.get("name", "")), rate)

    def _list_networks(self) -> list[NetworkParameters]:
        """List the networks of policies and critics by step key, with their parts if these are asked for."""
        of_critic = [] if self.critic is None else self.critic.parts
        listed: list[NetworkParameters] = []
        of_policy = [self.policy.modules_of(step_key) for step_key in self.spec.step_keys]
        for name, networks in (("policy_grad_norm", of_policy), ("critic_grad_norm", of_critic)):
            for step_key, network in zip(self.spec.step_keys, networks, strict=False):
                listed.append(NetworkParameters(name, step_key, list(network.parameters())))
                if self.grad_norms_by_part:
                    for part, parameters in parts_of(network).items():
                        listed.append(NetworkParameters(name, f"{step_key}/{part}", parameters))
        return listed

    # ---------------------------------------------------------------------------------------------------- data

    def data_requirements(self) -> DataRequirements:
        """Return the numbers that the training data depends on; the data module asks for them."""
        return DataRequirements()

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
        """Refuse data that does not fit; arrange that this rank leaves the others in an orderly way."""
        leave_at_exit()
        self._optimizer_options.start_run()
        if stage == "fit" and self._trainer is not None:
            self.check_data_module(getattr(self.trainer, "datamodule", None))
            if self.actor_critic is not None:
                self._require_critic()

    def on_fit_start(self) -> None:
        """Refuse combinations of options that cannot work; print automatic networks."""
        trainer = self.trainer
        if self.chosen_networks is not None:
            rank_zero_info(f"networks that fit the spaces, as model.networks in YAML:\n{self.chosen_networks}")
        lr_options = []
        if callable(self._lr_coefficient):
            is_by_name = self.lr_schedule != "constant"
            lr_options = ["lr_schedule=linear" if is_by_name else f"lr={described(self._lr_coefficient)}"]
        group_options = self._optimizer_options.scheduled
        require_length(trainer, [*lr_options, *group_options, *self._coefficients.names])
        lr_options += group_options
        if lr_options and self._schedulers.is_active:
            contradiction = f"{lr_options[0]} and a scheduler of configure_optimizers contradict"
            raise ValueError(f"{contradiction}: use one of them")
        if getattr(trainer.precision_plugin, "scaler", None) is not None:
            raise ValueError(f"precision={trainer.precision!r} scales losses, which is not supported; use bf16-mixed")

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
            name: The statistic, logged as "<source>_<topic>/<name>" or
                "<source>_<topic>/<name>/substep_<key>".
            value: A number, or the sum of `count` numbers. Tensors are not moved to the CPU before
                the epoch ends.
            step_key: Step key that the value belongs to.
            count: Number of summands; need not be an integer. In a loss it may be a tensor [].
            source: "train", or the name of an evaluation during which it is called.
        """
        values = self._gradient_steps.values
        if values is None:
            self._statistics.record(f"{self.topic}/{name}", value, step_key, float(count), source)
        else:
            values.append(RecordedValue(name, value, step_key, count))

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
        """Record values of an epoch as a whole; called once, before its statistics are finished."""
        if isinstance(self.policy, TorchPolicy):
            for name, deviations in self.policy.deviations().items():
                self.record("policy_std", deviations.mean(), name)

    def on_train_epoch_start(self) -> None:
        """Start the clock of the epoch."""
        self._epoch_began = time.perf_counter()
        self._networks_with_norms = None
        self._gradient_steps.start_epoch()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Count environment steps and episodes, and set the learning rate."""
        require_fitting_batch(self, self._learned_type, batch)
        self._batch_began = time.perf_counter()
        self._unfinished_batches += 1
        learning_rate = self.current_learning_rate
        self._schedulers.start_batch(learning_rate)
        self._gradient_steps.start_batch()
        self._record_learning_rates(learning_rate)
        for name, value in self._coefficients.values.items():
            self.record(name, value)
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
            if self.sets_learning_rates_of(optimizer):
                rate = self._rate_of(group, rate)
            self.record(f"learning_rate_{name or index}" if index else "learning_rate", rate)
        if optimizers:
            return
        self.record("learning_rate", learning_rate)
        for optimizer in self.trainer.optimizers:
            for group in optimizer.param_groups:
                if "pattern" in group:
                    self.record(f"learning_rate_{group['name']}", self._rate_of(group, learning_rate))

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Finish the epoch's statistics after its last batch, before evaluation and callbacks."""
        self._finish_updates()
        average_batch_statistics(self)
        self._schedulers.finish_batch()
        self.record("time_update", time.perf_counter() - self._batch_began)
        if self.trainer.is_last_batch:
            self._finish_training(on_step=True)
        self._follow_schedules()

    def _follow_schedules(self) -> None:
        """Set the options that follow schedules to their values for the next batch."""
        self._coefficients.follow(self.trainer)
        self.on_coefficients_set()

    def _finish_updates(self, *, alone: bool = False) -> None:
        """Collect the values that losses recorded, and raise ValueError if any was not finite."""
        finished = self._gradient_steps.finish()
        failed = finished.failed if alone else finished.failed_anywhere(self.device)
        if failed:
            *names, where = failed
            raise ValueError(
                f"{', '.join(names)} became NaN or infinite in epoch {self.current_epoch}, at env step "
                f"{self.env_steps} ({where}): look for rewards and observations that are not finite or very large, "
                f"lower lr={self.lr:g}, and limit the gradient with max_grad_norm (it is {self.max_grad_norm:g})"
            )
        for name, step_key, total, count in finished.sums:
            self.record(name, total, step_key, count=count)

    def on_train_epoch_end(self) -> None:
        """Finish the statistics of an epoch that ended early, and step monitoring schedulers."""
        if self._unfinished_batches:
            self._finish_training(on_step=False)
        self._schedulers.finish_epoch()

    def _finish_training(self, *, on_step: bool) -> None:
        self._unfinished_batches = 0
        self.record_epoch()
        self.record("time_epoch", time.perf_counter() - self._epoch_began)
        table = self._statistics.finish_training()
        self._publish("train", table)
        metrics = {f"train/{name}": value for name, value in table.metrics.items()}
        self.log_dict(
            metrics,
            logger=False,
            on_step=on_step,
            on_epoch=not on_step,
            batch_size=1,
            sync_dist=True,
        )
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
        self._follow_schedules()
        if not self._schedulers.is_active:
            self._optimizer_options.restore_options()
        self._modules_at_rest = self._optimizer_options.modules_at_rest()
        for resting in self._modules_at_rest:
            resting.training = False
        restored, self._restored = self._restored, None
        if restored is not None and self.trainer.ckpt_path is not None:
            ranks = restored["ranks"]
            if len(ranks) == world_size():
                own = ranks[self.global_rank]
                self.generator.set_state(own["generator"].cpu())
                restore_random_state(own["random"], self.device)
                self._statistics.load_rank_state_dict(own["statistics"])
                self._unfinished_batches = own["unfinished_batches"]
                self.load_rank_state(own.get("further", {}))
                return
            found = f"the checkpoint is of {len(ranks)} ranks, not {world_size()}"
            rank_zero_warn(f"random generators are seeded again: {found}")
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

    def rank_state(self) -> dict[str, Any]:
        """Return further state of this rank for checkpoints: tensors and plain values."""
        return {}

    def load_rank_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `rank_state`, if the run continues with equally many ranks."""

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

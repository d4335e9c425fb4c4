"""Hooks of algorithms with their defaults; `RunModule` and `AlgorithmModule` call them."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from maze_pl.core.training_data import DataRequirements
from maze_pl.modules.network_choice import DistributionOverrides


class AlgorithmHooks:
    """Declarations and hooks of an algorithm, besides those of Lightning.

    Further hooks are `RunModule.check_data_module` and `AlgorithmModule.parameter_groups`.
    Subclasses extend `on_networks_ready`, `on_coefficients_set`, `record_epoch`, `rank_state` and
    `load_rank_state` by calling `super()`; they replace the others.

    Attributes:
        batch_type: Class of the batches that the algorithm learns from. Where it is not declared,
            the annotation of the batch in `training_step` counts, if it is a class of
            `maze_pl.core.batches`; otherwise any batch is accepted.
        critic_type: Class of critics that the algorithm needs; networks with another critic, or
            without one, are refused, and automatic networks have one. `object` accepts any
            networks; automatic ones have no critic then.
        head_distributions: Distributions of action heads in automatic networks that replace the
            default ones.
        topic: Section of the logs in which recorded values appear.
        statistics: Name of a recorded value -> one line that describes it, for statistics that shipped
            algorithms do not record.
        step_unit: Unit of `env_steps` on the console, for algorithms that count something else.
    """

    batch_type: ClassVar[type] = object
    critic_type: ClassVar[type] = object
    head_distributions: ClassVar[DistributionOverrides] = []
    topic = "ActorCriticEvents"
    statistics: ClassVar[Mapping[str, str]] = {}
    step_unit: ClassVar[str] = "env steps"

    def on_networks_ready(self) -> None:
        """Prepare for training once `networks`, `policy` and `critic` exist; called once.

        Parameters that the algorithm needs besides the networks' are made here, so that they are
        trained, moved and saved. The hook may replace `actor_critic`, or refuse the networks.
        If the networks are passed or built in the constructor, it is called from
        `AlgorithmModule.__init__`: options that it reads must be set before `super().__init__`.
        """

    def default_learning_rate_of(self, group: str, learning_rate: float) -> float:
        """Return the learning rate of a group's parameters for which `optimizer_groups` sets none.

        It is called before `learning_rate_of`, for the same groups.

        Args:
            group: Name of the group in `parameter_groups`.
            learning_rate: Learning rate of the algorithm according to the schedule.
        """
        return learning_rate

    def learning_rate_option_of(self, group: str) -> str:
        """Return the name of the option that `default_learning_rate_of` returns the value of.

        If it follows a schedule, callbacks cannot set the learning rate of the group.

        Args:
            group: Name of the group in `parameter_groups`.
        """
        return "lr"

    def learning_rate_of(self, group: str, learning_rate: float) -> float:
        """Return the learning rate of a parameter group; 0 leaves the group unchanged.

        It is called for groups of flat optimisers, and of optimisers that `make_optimizer` returned,
        several times for a batch: after the previous one, when an epoch begins, when the batch
        starts, and in the first gradient step.

        Args:
            group: Name of the group in `parameter_groups`.
            learning_rate: Learning rate according to the schedule, `default_learning_rate_of`, and
                `optimizer_groups`.
        """
        return learning_rate

    def on_coefficients_set(self) -> None:
        """Use the new values of options that follow schedules, before the next batch is collected.

        Called at the beginning of a new or resumed run, after each batch but the last one, and, if a
        callback has set an option, at the start of an epoch and after an evaluation in training. It
        is the place to pass a coefficient of acting, such as an exploration rate, to the policy.
        """

    def data_requirements(self) -> DataRequirements:
        """Return the numbers that the training data depends on; the data module asks for them."""
        return DataRequirements()

    def loss(self, minibatch: Any) -> Tensor:
        """Compute the loss of a minibatch, for `self.gradient_step(self.loss, minibatch)`.

        A loss may call `record` and read any state: attributes, helper objects, the trainer. While
        it is run from a trace, the state that it reads is watched, and a change makes it
        traced again. If changes are frequent or cannot be detected, the loss is computed eagerly,
        and a message gives the reason.
        """
        raise TypeError(f"{type(self).__name__} takes gradient steps on self.loss, but defines no loss")

    def record_epoch(self) -> None:
        """Record values of an epoch as a whole; called once, before its statistics are finished."""

    def rank_state(self) -> dict[str, Any]:
        """Return further state of this rank for checkpoints: tensors and plain values."""
        return {}

    def load_rank_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `rank_state`, if the run continues with the same number of ranks."""

"""Learning rates of an algorithm: that of the current batch, and those of parameter groups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from torch.optim import Optimizer

from maze_pl.core.checks import check_not_negative, check_positive
from maze_pl.modules.optimization.optimizer_options import OptimizerOptions
from maze_pl.modules.schedulers import Schedulers
from maze_pl.schedules import Coefficient, Linear, described, run_progress, value_at

if TYPE_CHECKING:
    from maze_pl.modules.algorithm import AlgorithmModule


class LearningRates:
    """Learning rates by the options of an algorithm, or by learning-rate schedulers where there are some.

    Args:
        module: The algorithm.
        learning_rate: Its option `lr`.
        lr_schedule: Its option of this name.
        options: Options of its optimisers.
        schedulers: Its learning-rate schedulers.

    Attributes:
        first: Learning rate at the beginning of the run.

    Raises:
        TypeError: The learning rate is neither a number nor a schedule.
        ValueError: An option is out of range, or both options are schedules.
    """

    def __init__(
        self,
        module: AlgorithmModule,
        learning_rate: Coefficient,
        lr_schedule: Literal["constant", "linear"],
        options: OptimizerOptions,
        schedulers: Schedulers,
    ) -> None:
        if lr_schedule not in ("constant", "linear"):
            raise ValueError(f"lr_schedule={lr_schedule!r} must be 'constant' or 'linear'")
        if lr_schedule == "linear" and callable(learning_rate):
            contradiction = f"lr_schedule=linear and lr={described(learning_rate)}, a schedule, contradict each other"
            raise ValueError(f"{contradiction}: use one of them")
        check = check_not_negative if callable(learning_rate) else check_positive
        self.first = value_at("lr", learning_rate, 0.0, check)
        self._module = module
        self._coefficient = learning_rate if lr_schedule == "constant" else Linear(self.first, 0.0)
        self._is_linear = lr_schedule == "linear"
        self._options = options
        self._schedulers = schedulers

    @property
    def is_scheduled(self) -> bool:
        """True if `lr` is given as a schedule; `lr_schedule` does not make it one."""
        return callable(self._coefficient) and not self._is_linear

    @property
    def schedules(self) -> list[str]:
        """Options that make learning rates change, as they are given."""
        names: list[str] = []
        if callable(self._coefficient):
            names.append("lr_schedule=linear" if self._is_linear else f"lr={described(self._coefficient)}")
        return names + self._options.scheduled

    def refuse_contradiction(self) -> None:
        """Refuse schedules besides the schedulers of `configure_optimizers`.

        Raises:
            ValueError: There are both.
        """
        if self.schedules and self._schedulers.is_active:
            contradiction = f"{self.schedules[0]} and a scheduler of configure_optimizers contradict each other"
            raise ValueError(f"{contradiction}: use one of them")

    @property
    def current(self) -> float:
        """Learning rate of the current batch according to the options."""
        if not callable(self._coefficient):
            return self._module.lr
        return value_at("lr", self._coefficient, run_progress(self._module.trainer), check_not_negative)

    def start_batch(self) -> None:
        """Determine the learning rates of a batch, and record them."""
        learning_rate = self.current
        self._schedulers.start_batch(learning_rate)
        if self._schedulers.is_active:
            self._record_first_groups()
        else:
            self._record(learning_rate)

    def _record_first_groups(self) -> None:
        """Record the learning rate that schedulers have set for the first group of each optimiser."""
        for index, optimizer in enumerate(self._module.trainer.optimizers):
            group = optimizer.param_groups[0]
            rate = group["lr"]
            if self._module.sets_learning_rates_of(optimizer):
                rate = self._of_group(group, rate)
            name = f"learning_rate_{group.get('name') or index}" if index else "learning_rate"
            self._module.record(name, rate)

    def _record(self, learning_rate: float) -> None:
        """Record the learning rate, and those of the parameters with separate options."""
        self._module.record("learning_rate", learning_rate)
        for optimizer in self._module.trainer.optimizers:
            for group in optimizer.param_groups:
                if "pattern" in group:
                    self._module.record(f"learning_rate_{group['name']}", self._of_group(group, learning_rate))

    def set_next(self) -> None:
        """Set the learning rates of the next batch, so that callbacks see them before it starts."""
        trainer = self._module.trainer
        if self.schedules and run_progress(trainer) == 1.0:  # they need no value for another batch
            return
        for optimizer in trainer.optimizers:
            if self._module.sets_learning_rates_of(optimizer):
                self.follow(optimizer)

    def follow(self, optimizer: Optimizer) -> None:
        """Set the learning rates of an optimiser; see `AlgorithmModule.follow_learning_rate`."""
        if self._schedulers.is_active:
            return
        learning_rate = self.current
        is_ours = self._module.sets_learning_rates_of(optimizer)
        for group in self._followers(optimizer):
            group["lr"] = self._of_group(group, learning_rate) if is_ours else learning_rate

    def set_rates(self, optimizer: Optimizer, index: int) -> None:
        """Set the learning rates of an optimiser's groups for this batch.

        Args:
            optimizer: The optimiser.
            index: Its index in the algorithm.
        """
        groups = self._followers(optimizer)
        rates = self._schedulers.rates(index, len(optimizer.param_groups))
        for group, rate in zip(groups, rates, strict=False):
            group["lr"] = self._of_group(group, rate)

    def _followers(self, optimizer: Optimizer) -> list[dict[str, Any]]:
        """Return the groups whose learning rates follow the options, all but those of callbacks."""
        groups = optimizer.param_groups
        return groups[: self._options.n_groups(optimizer)]

    def _of_group(self, group: dict[str, Any], rate: float) -> float:
        """Return the learning rate of a group in this batch.

        Args:
            group: Entry of `param_groups`.
            rate: Learning rate of the algorithm, or what schedulers have set for the group.
        """
        module = self._module
        part: str = group.get("part", group.get("name", ""))
        lr_of_pattern = self._options.groups[group["pattern"]].lr if "pattern" in group else None
        if lr_of_pattern is None:
            rate = module.default_learning_rate_of(part, rate)
        elif not self._schedulers.is_active:  # otherwise they have set the rate of the group
            factor = rate / module.lr if self._is_linear else 1.0
            progress = partial(run_progress, module.trainer)
            rate = self._options.rate(group["pattern"], lr_of_pattern, factor, progress)
        return module.learning_rate_of(part, rate)

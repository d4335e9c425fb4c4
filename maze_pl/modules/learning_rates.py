"""Learning rates of an algorithm: that of the current batch, and those of parameter groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.utilities import rank_zero_warn
from torch.optim import Optimizer

from maze_pl.core.checkpoint_content import GroupSettings, add_to_checkpoint, checkpoint_entry
from maze_pl.core.checks import check_not_negative, check_positive
from maze_pl.modules.optimization.optimizer_options import OptimizerOptions
from maze_pl.modules.schedulers import Schedulers
from maze_pl.schedules import Coefficient, Linear, described, run_progress, value_at

if TYPE_CHECKING:
    from maze_pl.modules.algorithm import AlgorithmModule


@dataclass(slots=True)
class _GroupRate:
    """Learning rate of a parameter group.

    Attributes:
        assigned: The rate that the group was given last; None if it was given none yet.
        by_callback: The rate that a callback has set since; None if none has.
        by_options: The rate that the options gave then, unless it was 0.
    """

    assigned: float | None = None
    by_callback: float | None = None
    by_options: float | None = None

    @property
    def saved(self) -> dict[str, float | None]:
        """The attributes by name, as plain values for checkpoints."""
        return {name: None if rate is None else float(rate) for name, rate in asdict(self).items()}

    def is_changed(self, rate: float) -> bool:
        """True if other code has set this rate of the group since it was given one."""
        return self.assigned is not None and rate != self.assigned

    def chosen(self, rate: float) -> float:
        """Return the rate to use: that of a callback until the options give the group another one.

        Args:
            rate: Learning rate by the options. While it is 0, it is used, and that of a callback
                is kept for later.
        """
        if self.by_callback is None or rate == 0.0:
            return rate
        if self.by_options is None:
            self.by_options = rate
        if self.by_options != rate:
            self.by_callback = self.by_options = None
            return rate
        return self.by_callback


class LearningRates:
    """Learning rates by the options of an algorithm, or by its learning-rate schedulers.

    A rate that a callback sets in `param_groups` replaces that of the options until these give the
    group another one; while they give it 0, it is 0. Rates that follow a schedule cannot be
    replaced.

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
        self._rates: dict[tuple[int, int], _GroupRate] = {}  # by id of optimiser, index of group
        self._of_batch = self.first  # rate of the current batch by the options
        self._warned = False

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

    def check_optimizers(self) -> None:
        """Refuse schedules besides the schedulers of `configure_optimizers`; warn of options without effect.

        Raises:
            ValueError: There are both.
        """
        self._options.warn_if_unused()
        if self.schedules and self._schedulers.is_active:
            contradiction = f"{self.schedules[0]} and a scheduler of configure_optimizers contradict each other"
            raise ValueError(f"{contradiction}: use one of them")

    @property
    def current(self) -> float:
        """Learning rate of the current batch according to the options."""
        if not callable(self._coefficient):
            return self._module.lr
        return value_at("lr", self._coefficient, run_progress(self._module.trainer), check_not_negative)

    # ------------------------------------------------------------------------------------------------------ a run

    def start_run(self) -> None:
        """Forget the optimisers of the previous run."""
        self._options.start_run()
        self._rates = {}
        self._warned = False

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Add the settings of parameter groups to a checkpoint, to tell what others have changed.

        Args:
            checkpoint: The checkpoint.
        """
        if self._schedulers.is_active:  # they may change any option
            return
        every: list[list[GroupSettings]] = []
        for optimizer in self._module.trainer.optimizers:
            every.append([])
            for index, (_, options) in enumerate(self._groups_of_algorithm(optimizer)):
                rate = self._rates.get((id(optimizer), index), _GroupRate())
                every[-1].append({"rates": rate.saved, "options": dict(options)})
        add_to_checkpoint(checkpoint, group_settings=every)

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Prepare to continue from a checkpoint, before its state of the optimisers is loaded.

        Options that have another value in this configuration than in that of the checkpoint are
        changed in the checkpoint; others remain, as callbacks may have set them.

        Args:
            checkpoint: The checkpoint; empty for a new run.
        """
        states = checkpoint.get("optimizer_states", [])
        if not states or self._schedulers.is_active:
            return
        entry = checkpoint_entry(checkpoint) or {}
        every = entry.get("group_settings") or [[] for _ in states]
        for optimizer, state, saved in zip(self._module.trainer.optimizers, states, every, strict=False):
            self._options.restore_options(optimizer, state["param_groups"], [one["options"] for one in saved])
            for index, group in enumerate(optimizer.param_groups):
                rate = _GroupRate(**saved[index]["rates"]) if index < len(saved) else _GroupRate()
                if self._schedule_of(group) is not None:  # by the options of this run
                    rate.by_callback = None
                self._rates[id(optimizer), index] = rate

    # ---------------------------------------------------------------------------------------------------- a batch

    def start_batch(self) -> None:
        """Determine the learning rates of a batch, and record them."""
        self._of_batch = self.current
        self._schedulers.start_batch()
        if self._schedulers.is_active:
            self._record_first_groups()
        else:
            self._follow_options()
            self._record(self._of_batch)

    def _record_first_groups(self) -> None:
        """Record the rate that schedulers have set for the first group of each optimiser."""
        for index, optimizer in enumerate(self._module.trainer.optimizers):
            group = optimizer.param_groups[0]
            rate = group["lr"]
            if self._module.sets_learning_rates_of(optimizer):
                rate = self._of_group(group, rate)
            name = f"learning_rate_{group.get('name') or index}" if index else "learning_rate"
            self._module.record(name, rate)

    def _record(self, learning_rate: float) -> None:
        """Record the learning rate, and those of the parameters with separate options.

        `learning_rate` is that of the options, or the one that a callback has set for the first
        group, even while `learning_rate_of` returns 0 for it.
        """
        optimizers = self._module.trainer.optimizers
        by_callback = None
        if optimizers:
            by_callback = self._rates.get((id(optimizers[0]), 0), _GroupRate()).by_callback
        self._module.record("learning_rate", learning_rate if by_callback is None else by_callback)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                if "pattern" in group:
                    self._module.record(f"learning_rate_{group['name']}", group["lr"])

    def set_next(self) -> None:
        """Set the learning rates of the next batch, so that callbacks see them before it starts."""
        trainer = self._module.trainer
        if self.schedules and run_progress(trainer) == 1.0:  # they need no value for another batch
            return
        self._follow_options()

    def _follow_options(self) -> None:
        """Set the rates that the options determine, unless schedulers or callbacks do."""
        if self._schedulers.is_active:
            return
        for optimizer in self._module.trainer.optimizers:
            if self._module.sets_learning_rates_of(optimizer):
                self._set_groups(optimizer, self.current)

    def follow(self, optimizer: Optimizer) -> None:
        """Set the rates of an optimiser in any case; see `AlgorithmModule.follow_learning_rate`."""
        if self._schedulers.is_active:
            return
        if isinstance(optimizer, LightningOptimizer):
            optimizer = optimizer.optimizer
        is_ours = self._module.sets_learning_rates_of(optimizer)
        learning_rate = self.current
        for index, (group, _) in enumerate(self._groups_of_algorithm(optimizer)):
            group["lr"] = learning_rate
            if is_ours:
                group["lr"] = self._of_group(group, learning_rate)
                self._rates[id(optimizer), index] = _GroupRate(group["lr"])

    def set_rates(self, optimizer: Optimizer, index: int) -> None:
        """Set the learning rates of an optimiser's groups before its first step in a batch.

        Args:
            optimizer: The optimiser.
            index: Its index in the algorithm.
        """
        if not self._schedulers.is_active:
            self._set_groups(optimizer, self._of_batch)
            return
        pairs = zip(self._groups_of_algorithm(optimizer), self._schedulers.rates(index), strict=False)
        self._schedulers.assign(index, [self._of_group(group, rate) for (group, _), rate in pairs])

    def _set_groups(self, optimizer: Optimizer, learning_rate: float) -> None:
        """Set the learning rates of groups, except for those that a callback has set.

        Args:
            optimizer: The optimiser.
            learning_rate: Learning rate of the algorithm.
        """
        for index, (group, options) in enumerate(self._groups_of_algorithm(optimizer)):
            known = self._rates.setdefault((id(optimizer), index), _GroupRate(options.get("lr")))
            self._note_change(known, group)
            group["lr"] = known.assigned = known.chosen(self._of_group(group, learning_rate))

    def _groups_of_algorithm(self, optimizer: Optimizer) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the parameter groups that the algorithm has made, without groups that callbacks have added.

        Each comes with the options that it was made with, empty for an optimiser of the user.
        """
        groups = optimizer.param_groups
        made_with: Sequence[dict[str, Any]] = self._options.made_with(optimizer) or [{} for _ in groups]
        return list(zip(groups, made_with, strict=False))

    def _note_change(self, known: _GroupRate, group: dict[str, Any]) -> None:
        """Keep the rate that a callback has set for a group, or warn that it has no effect."""
        if not known.is_changed(group["lr"]):
            return
        schedule = self._schedule_of(group)
        if schedule is None:
            known.by_callback, known.by_options = group["lr"], None
        else:
            self._warn_of_change(group, schedule)

    def _schedule_of(self, group: dict[str, Any]) -> str | None:
        """Return the option that makes the rate of a group follow a schedule; None without one."""
        module = self._module
        lr_of_pattern = self._lr_of_pattern(group)
        if callable(lr_of_pattern):
            return f"optimizer_groups[{group['pattern']!r}].lr"
        if lr_of_pattern is None:
            option = module.learning_rate_option_of(_part_of(group))
            if module.follows_schedule(option):
                return f"{option}={module.hparams[option]}"
        return "lr_schedule=linear" if self._is_linear else None

    def _warn_of_change(self, group: dict[str, Any], schedule: str) -> None:
        """Warn once that a callback cannot set a rate."""
        if not self._warned:
            self._warned = True
            came = f"a learning rate of {group['lr']:g}, which a callback has set, has no effect"
            rank_zero_warn(f"{came}: the learning rate follows {schedule}, which sets it before each batch")

    def _lr_of_pattern(self, group: dict[str, Any]) -> Coefficient | None:
        """Return the learning rate that `optimizer_groups` has for a group; None if it has none."""
        return self._options.groups[group["pattern"]].lr if "pattern" in group else None

    def _of_group(self, group: dict[str, Any], rate: float) -> float:
        """Return the learning rate of a group in this batch.

        Args:
            group: Entry of `param_groups`.
            rate: Learning rate of the algorithm, or what schedulers have set for the group.
        """
        module = self._module
        part = _part_of(group)
        lr_of_pattern = self._lr_of_pattern(group)
        if lr_of_pattern is None:
            rate = module.default_learning_rate_of(part, rate)
        elif not self._schedulers.is_active:  # otherwise they have set the rate of the group
            factor = rate / module.lr if self._is_linear else 1.0
            progress = partial(run_progress, module.trainer)
            rate = self._options.rate(group["pattern"], lr_of_pattern, factor, progress)
        return module.learning_rate_of(part, rate)


def _part_of(group: dict[str, Any]) -> str:
    """Return the name of a group in `parameter_groups`."""
    part: str = group.get("part", group.get("name", ""))
    return part

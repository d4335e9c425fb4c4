"""Learning-rate schedulers of `configure_optimizers`, stepped as under automatic optimisation.

Under manual optimisation Lightning leaves stepping to the user's code, and drops the name of the
value that a scheduler monitors. Algorithms optimise manually, but schedules over batches or epochs
of a run do not depend on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.core.optimizer import (
    _configure_optimizers,
    _configure_schedulers_automatic_opt,
)
from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities import rank_zero_warn
from pytorch_lightning.utilities.types import LRSchedulerConfig
from torch.optim import Optimizer

from maze_pl.core.monitored_kpi import monitored_kpi, sources_of
from maze_pl.core.training_data import DeclaresKpis, DeclaresKpisOfEvaluators
from maze_pl.modules.published_values import PublishedValues, PublishesValues

_HOOK = "configure_optimizers"


class Schedulers:
    """Schedulers of an algorithm, stepped after batches, after epochs, or with a monitored value.

    A scheduler with `interval: step` is stepped after every `frequency` batches; one with
    `interval: epoch` after the last batch of every `frequency` epochs, before the evaluation.
    `ReduceLROnPlateau` is stepped with the value of `monitor` when the epoch ends, after its
    evaluation.

    Args:
        module: The algorithm.
    """

    def __init__(self, module: pl.LightningModule) -> None:
        self._module = module
        self._configs: list[LRSchedulerConfig] = []
        self._replaced: Any = None  # the hook set on this instance, if any
        self._rates: list[list[float]] = []  # by optimiser and group, in the current batch
        self._assigned: list[list[float]] = []  # those of the steps of this batch, where some may be 0
        self._in_batch = False
        self._finished_epoch: int | None = None  # the last one that was finished
        self._counts: list[int | None] = []  # step count of each scheduler after its last step
        self._restored: dict[str, float] = {}  # monitored values from a checkpoint, until there are later ones

    def __reduce__(self) -> Any:
        return Schedulers, (self._module,)  # schedulers belong to one run

    @property
    def is_active(self) -> bool:
        """True if schedulers determine the learning rates, not the options of the algorithm."""
        return bool(self._module.trainer.lr_scheduler_configs)

    # ------------------------------------------------------------------------------------------------ configuration

    def intercept(self) -> None:
        """Intercept what `configure_optimizers` will return to Lightning in this run."""
        if self._module.trainer.state.fn != TrainerFn.FITTING or self._module.automatic_optimization:
            return
        attributes = vars(self._module)
        if attributes.get(_HOOK) != self._configure:
            self._replaced = attributes.get(_HOOK)
        attributes[_HOOK] = self._configure

    def _configure(self) -> Any:
        """Return the optimisers, and the parts of schedulers that manual optimisation keeps."""
        attributes = vars(self._module)
        del attributes[_HOOK]
        if self._replaced is not None:
            attributes[_HOOK] = self._replaced
        self._configs = []
        returned: Any = self._module.configure_optimizers()
        if returned is None:
            return None
        optimizers, schedulers, monitor = _configure_optimizers(returned)
        if not schedulers:
            return returned
        self._configs = _configure_schedulers_automatic_opt(schedulers, monitor)
        return optimizers, list(map(_kept_parts, self._configs))

    # -------------------------------------------------------------------------------------------------------- steps

    def start(self) -> None:
        """Begin a run, after all state was restored.

        Raises:
            ValueError: A scheduler monitors a KPI that no episode has.
        """
        if self._module.trainer.ckpt_path is None:
            self._restored = {}
        self._refuse_undeclared_kpis()
        self._in_batch, self._finished_epoch = False, None
        self._counts = [_count(config) for config in self._configs]

    def _refuse_undeclared_kpis(self) -> None:
        data = getattr(self._module.trainer, "datamodule", None)
        for config in self._configs:
            kpi = monitored_kpi(str(config.monitor), sources_of(data))
            if kpi is None or not (config.reduce_on_plateau and config.strict) or not isinstance(data, DeclaresKpis):
                continue
            known = data.kpi_names_of(kpi.source) if isinstance(data, DeclaresKpisOfEvaluators) else data.kpi_names
            if known is None or kpi.name in known:
                continue
            monitors = f"{type(config.scheduler).__name__} monitors {config.monitor!r}, but the environment"
            if not known:
                raise ValueError(f"{monitors} has no KPI calculator: monitor {kpi.source}/return, for example")
            names = f"the KPIs {', '.join(known)}"
            raise ValueError(f"{monitors} has {names}: monitor {kpi.source}/kpi/ and one of these")

    def start_batch(self) -> None:
        """Save the learning rates, as the algorithm may set some to 0 while it learns from a batch."""
        optimizers = self._module.trainer.optimizers if self.is_active else []
        self._rates = [_rates_of(optimizer) for optimizer in optimizers]
        self._assigned = [list(rates) for rates in self._rates]
        self._in_batch = bool(self._configs)

    def rates(self, index: int) -> list[float]:
        """Return the learning rates that schedulers have set for the groups of an optimiser in this batch.

        Args:
            index: Index of the optimiser in the algorithm.
        """
        return self._rates[index]

    def assign(self, index: int, rates: Sequence[float]) -> None:
        """Set the learning rates of the groups of an optimiser for the steps of this batch.

        Args:
            index: Index of the optimiser in the algorithm.
            rates: Learning rates of its first groups.
        """
        groups = self._module.trainer.optimizers[index].param_groups
        for place, rate in enumerate(rates):
            groups[place]["lr"] = self._assigned[index][place] = rate

    def finish_batch(self) -> None:
        """Step the schedulers that are due after a batch, and after the last batch of an epoch.

        Raises:
            ValueError: Other code has stepped a scheduler, or a monitored value does not exist.
        """
        if not self._in_batch:
            return
        self._in_batch = False
        trainer = self._module.trainer
        for index, optimizer in enumerate(trainer.optimizers):
            self._give_back(index, optimizer.param_groups)
        if self._counts != [_count(config) for config in self._configs]:
            name = type(self._module).__name__
            remedy = "remove lr_schedulers().step(), or do not return the scheduler from configure_optimizers"
            raise ValueError(
                f"learning-rate schedulers of {name} are stepped automatically after their interval: {remedy}"
            )
        n_batches = trainer.fit_loop.batch_idx + 1
        self._step("step", n_batches)
        if trainer.is_last_batch or n_batches == trainer.num_training_batches:
            self._step("epoch", trainer.current_epoch + 1)

    def _give_back(self, index: int, groups: Sequence[dict[str, Any]]) -> None:
        """Give groups of an optimiser the rates from before the batch, unless a callback has set others since."""
        for group, rate, assigned in zip(groups, self._rates[index], self._assigned[index], strict=True):
            if group["lr"] == assigned:
                group["lr"] = rate

    def finish_epoch(self) -> None:
        """Step the schedulers that monitor a value, which may come from an evaluation.

        Raises:
            ValueError: The monitored value does not exist.
        """
        trainer = self._module.trainer
        if self._finished_epoch == trainer.current_epoch:  # by `save`
            return
        self._finished_epoch = trainer.current_epoch
        if trainer.is_last_batch or trainer.fit_loop.batch_idx + 1 == trainer.num_training_batches:
            self._step("epoch", trainer.current_epoch + 1, by_value=True)

    def _due(self, interval: str, number: int, by_value: bool = False) -> list[LRSchedulerConfig]:
        """Return the schedulers to be stepped after a number of batches or epochs."""
        due: list[LRSchedulerConfig] = []
        for config in self._configs:
            waits = config.reduce_on_plateau and config.interval == "epoch"
            if config.interval == interval and number % config.frequency == 0 and waits == by_value:
                due.append(config)
        return due

    def _step(self, interval: str, number: int, by_value: bool = False) -> None:
        for config in self._due(interval, number, by_value):
            value = self._monitored(config) if config.reduce_on_plateau else None
            if value is not None or not config.reduce_on_plateau:
                self._module.lr_scheduler_step(config.scheduler, value)
        self._counts = [_count(config) for config in self._configs]

    def _monitored(self, config: LRSchedulerConfig) -> Any:
        """Return the value that a scheduler monitors; None if it is missing but not required now."""
        name, metrics = str(config.monitor), self._latest()
        if name in metrics:
            return metrics[name]
        if name in self._restored:
            return self._restored[name]
        if self._published().awaits(name, metrics):
            return None
        known = ", ".join(sorted(metric for metric in metrics if "_" not in metric.partition("/")[0])) or "none"
        kind = type(config.scheduler).__name__
        message = f"{kind} monitors {name!r}, which has no value; there is {known}"
        if config.strict:
            raise ValueError(f"{message}: monitor one of these, or evaluate before it is stepped")
        rank_zero_warn(f"{message}: the learning rate stays as it is")
        return None

    def _published(self) -> PublishedValues:
        module: object = self._module
        assert isinstance(module, PublishesValues)  # all algorithms do
        return module.published

    def _latest(self) -> dict[str, Any]:
        """Return the metrics of the latest epoch and evaluation."""
        return self._published().latest(self._module.trainer.callback_metrics)

    # ---------------------------------------------------------------------------------------------------- checkpoints

    def save(self, checkpoint: dict[str, Any]) -> dict[str, float]:
        """Update the states in a checkpoint if the batch or the epoch has not been finished.

        Args:
            checkpoint: Checkpoint made by Lightning, on each rank.

        Returns:
            The monitored values.
        """
        if not self._configs:
            return {}
        trainer, states = self._module.trainer, checkpoint.get("optimizer_states", [])
        progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
        if self._in_batch and progress.processed == progress.ready:  # callbacks save before the module's own hook
            self.finish_batch()
            self._update_states(checkpoint)
        elif self._epoch_waits():
            self.finish_epoch()
            self._update_states(checkpoint)
        elif self._in_batch:
            for index, state in enumerate(states):
                self._give_back(index, state["param_groups"])
        known: dict[str, Any] = {**self._restored, **self._latest()}
        names = {str(config.monitor) for config in self._configs if config.reduce_on_plateau}
        return {name: float(known[name]) for name in names if name in known}

    def _epoch_waits(self) -> bool:
        """True between an epoch's end and `finish_epoch`, if the monitored values are known."""
        trainer = self._module.trainer
        epochs: Any = trainer.fit_loop.epoch_progress.current
        is_open = epochs.completed < epochs.processed == epochs.ready
        if not is_open or self._finished_epoch == trainer.current_epoch:
            return False
        due = self._due("epoch", trainer.current_epoch + 1, by_value=True)
        metrics = self._latest()
        names = [str(config.monitor) for config in due]
        return all(name in metrics or self._published().awaits(name, metrics) for name in names)

    def _update_states(self, checkpoint: dict[str, Any]) -> None:
        """Replace the states of optimisers and schedulers in a checkpoint, unless it has none."""
        trainer = self._module.trainer
        if checkpoint.get("optimizer_states"):
            states = [trainer.strategy.optimizer_state(one) for one in trainer.optimizers]
            schedulers = [config.scheduler.state_dict() for config in self._configs]
            checkpoint.update(optimizer_states=states, lr_schedulers=schedulers)

    def load(self, monitored: dict[str, float]) -> None:
        """Restore the monitored values of a checkpoint, which Lightning does not keep."""
        self._restored = monitored

    def forget(self, sources: Iterable[str]) -> None:
        """Forget restored values of "train" or of evaluators, which have new ones."""
        prefixes = tuple(f"{source}{mark}" for source in sources for mark in "/_")
        for name in [name for name in self._restored if name.startswith(prefixes)]:
            del self._restored[name]


def _kept_parts(config: LRSchedulerConfig) -> dict[str, Any]:
    """Return the parts of a scheduler's configuration that manual optimisation keeps."""
    return {
        "scheduler": config.scheduler,
        "name": config.name,
        "interval": config.interval,
        "frequency": config.frequency,
    }


def _rates_of(optimizer: Optimizer) -> list[float]:
    """Learning rate of each parameter group."""
    return [group["lr"] for group in optimizer.param_groups]


def _count(config: LRSchedulerConfig) -> int | None:
    """Number of steps of a scheduler, None if it does not count them."""
    return vars(config.scheduler).get("last_epoch")

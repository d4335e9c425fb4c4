"""Values of the latest epoch and evaluation, which callbacks and schedulers monitor."""

from collections.abc import Collection, Mapping, MutableMapping
from typing import Any, Final

import pytorch_lightning as pl
import torch

from maze_pl.modules.run_statistics import SourceStatistics

_TRAINING: Final = "train"
_EPISODES: Final = f"{_TRAINING}_BaseEnvEvents/reward/episode_count"


class PublishedValues:
    """Remembers which values that callbacks see are of the latest epoch and evaluation.

    Lightning keeps each value until the end of a run. If an evaluation lacks a value, callbacks
    would take the value of an earlier evaluation for it.
    """

    def __init__(self) -> None:
        self._latest: dict[bool, set[str]] = {True: set(), False: set()}  # of training or not
        self._earlier: set[str] = set()
        self._epoch: int | None = None  # whose values of training are the latest

    def begin(self, sources: Collection[str], epoch: int) -> None:
        """Begin an epoch or an evaluation: values of the previous one count as old.

        Args:
            sources: "train", or the evaluators whose values come next.
            epoch: Index of the epoch.
        """
        is_of_epoch = _TRAINING in sources
        if is_of_epoch:
            self._epoch = epoch
        self._earlier |= self._latest[is_of_epoch]
        self._latest[is_of_epoch] = set()

    def add(self, source: str, table: SourceStatistics, metrics: MutableMapping[str, Any]) -> dict[str, float]:
        """Add values under their long names and return them; the module logs those with short ones.

        Args:
            source: "train", or an evaluator.
            table: Its statistics.
            metrics: Metrics for callbacks.
        """
        scalars = table.scalars(source)
        metrics.update({name: torch.tensor(value) for name, value in scalars.items()})
        names = {*scalars, *table.short_values(source)}
        self._latest[source == _TRAINING] |= names
        self._earlier -= names
        return scalars

    def latest(self, metrics: Mapping[str, Any], epoch: int | None = None) -> dict[str, Any]:
        """Return the metrics without values of earlier epochs and evaluations.

        Args:
            metrics: Metrics for callbacks.
            epoch: Index of the only epoch whose values of training are returned; None for the latest.
        """
        left_out = set(self._earlier)
        if epoch not in (None, self._epoch):
            left_out |= self._latest[True]
        return {name: value for name, value in metrics.items() if name not in left_out}

    def awaits(self, monitor: str, metrics: Mapping[str, Any], epoch: int | None = None) -> bool:
        """Return whether training lacks a value only because the epoch, or an episode in it, has not ended.

        Args:
            monitor: Name of the value.
            metrics: Metrics for callbacks.
            epoch: Index of the epoch; None for the latest.
        """
        latest = self.latest(metrics, epoch)
        if not is_of_training(monitor) or monitor in latest:
            return False
        is_open = self._epoch is None or epoch not in (None, self._epoch)
        return is_open or bool(latest.get(_EPISODES) == 0)


class PublishesValues:
    """A module whose values callbacks monitor.

    Attributes:
        published: Remembers which of the values are the latest.
    """

    published: PublishedValues


def is_of_training(monitor: str) -> bool:
    """Return whether a monitored value is one of training.

    Args:
        monitor: Name of the value.
    """
    return monitor.startswith((f"{_TRAINING}/", f"{_TRAINING}_"))


def current_metrics(trainer: pl.Trainer) -> dict[str, Any]:
    """Return the metrics of the latest evaluation, and those of training once the current epoch has ended.

    Args:
        trainer: The trainer; values that its module does not publish remain as Lightning keeps them.
    """
    module: Any = trainer.lightning_module
    if not isinstance(module, PublishesValues):
        return dict(trainer.callback_metrics)
    return module.published.latest(trainer.callback_metrics, trainer.current_epoch)


def awaits_training(trainer: pl.Trainer, monitor: str) -> bool:
    """Return whether a value is missing only because the current epoch, or an episode in it, has not ended.

    Args:
        trainer: The trainer.
        monitor: Name of the value.
    """
    module: Any = trainer.lightning_module
    is_known = isinstance(module, PublishesValues)
    return is_known and module.published.awaits(monitor, trainer.callback_metrics, trainer.current_epoch)

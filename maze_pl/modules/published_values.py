"""Values of the latest epoch and evaluation that callbacks and schedulers monitor."""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final

import torch

from maze_pl.modules.run_statistics import SourceStatistics

_TRAINING: Final = "train"
_EPISODES: Final = f"{_TRAINING}_BaseEnvEvents/reward/episode_count"


class PublishedValues:
    """Names of the values that a module has given to callbacks.

    Lightning keeps each value until the end of a run. Earlier values are removed first, so that an
    evaluation without a value does not appear to have that of an earlier one.
    """

    def __init__(self) -> None:
        self._names: dict[bool, set[str]] = {True: set(), False: set()}  # of training or not

    def withdraw(self, sources: Iterable[str], metrics: MutableMapping[str, Any]) -> None:
        """Remove the values of the previous epoch, or of the previous evaluation by all evaluators.

        Args:
            sources: "train", or the evaluators whose values come next.
            metrics: Metrics for callbacks, in which they are removed.
        """
        names = self._names[_TRAINING in sources]
        for name in names:
            metrics.pop(name, None)
        names.clear()

    def add(self, source: str, table: SourceStatistics, metrics: MutableMapping[str, Any]) -> None:
        """Add values under their long names; the module logs those with short ones.

        Args:
            source: "train", or an evaluator.
            table: Its statistics.
            metrics: Metrics for callbacks.
        """
        scalars = table.scalars(source)
        metrics.update({name: torch.tensor(value) for name, value in scalars.items()})
        self._names[source == _TRAINING].update(scalars, table.short_values(source))


def awaits_episodes(monitor: str, metrics: Mapping[str, Any]) -> bool:
    """Return whether training lacks a value because no episode has ended in this epoch.

    Args:
        monitor: Name of the value.
        metrics: Existing values.
    """
    is_of_training = monitor.startswith((f"{_TRAINING}/", f"{_TRAINING}_"))
    return is_of_training and monitor not in metrics and metrics.get(_EPISODES) == 0

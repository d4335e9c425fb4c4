"""Check of the values that callbacks monitor."""

from collections.abc import Iterable

import pytorch_lightning as pl

from maze_pl.callbacks.early_stopping import EarlyStopping
from maze_pl.callbacks.stop_at_return import StopAtReturn
from maze_pl.config.messages import UNKNOWN_VALUE
from maze_pl.config.search_path import ConfigurationError, suggestion


def check_monitors(trainer: pl.Trainer, datamodule: object, module: object = None) -> None:
    """Refuse callbacks that monitor evaluators that do not exist, or values that no evaluator has.

    Args:
        trainer: The trainer, with all callbacks.
        datamodule: The data module.
        module: The module in training; None if it is not known which values it logs.

    Raises:
        ConfigurationError: A callback needs an evaluator that the data module does not have, or another value of it.
    """
    evaluators = list(getattr(datamodule, "evaluators", {}))
    only_shipped = _all_shipped([module, *trainer.callbacks])  # type: ignore[attr-defined]
    if getattr(datamodule, "validation_percentage", 0):  # held-out episodes
        evaluators.append("eval")
        only_shipped = False
    if not evaluators:
        return
    sources = ["train", *evaluators]
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        monitor = own_monitor(callback)
        source, slash, value = monitor.partition("/")
        is_known = source in sources or source.startswith(tuple(f"{name}_" for name in sources))
        if slash and not is_known:
            whose = f"{type(callback).__name__}(monitor={monitor!r})"
            known = f"data.evaluators has {evaluators}{suggestion(source, sources)}"
            raise ConfigurationError(f"{whose} needs an evaluator {source!r}; {known}")
        if slash and only_shipped and source in evaluators and value != "return" and not value.startswith("kpi/"):
            whose = f"{type(callback).__name__}(monitor={monitor!r})"
            exist = f"{source}/return, {source}/kpi/NAME, and the columns of metrics.csv, such as"
            near = suggestion(monitor, [f"{source}/return"])
            raise ConfigurationError(
                f"{whose}: {UNKNOWN_VALUE}; they have {exist} {source}_BaseEnvEvents/reward/max{near}"
            )


def _all_shipped(parts: Iterable[object]) -> bool:
    """True if no part has code outside of maze_pl and Lightning, which could log further values."""
    packages = {type(part).__module__.partition(".")[0] for part in parts}
    return packages <= {"maze_pl", "pytorch_lightning"}


def own_monitor(callback: pl.Callback) -> str:
    """Return the name of the value that a callback monitors by itself; empty if there is none.

    Args:
        callback: A callback; an idle `StopAtReturn` needs no value, and early stopping may follow `BestCheckpoint`.
    """
    is_idle = isinstance(callback, StopAtReturn) and callback.threshold is None
    is_follower = isinstance(callback, EarlyStopping) and callback.follows_best
    if is_idle or is_follower:
        return ""
    return getattr(callback, "monitor", None) or ""

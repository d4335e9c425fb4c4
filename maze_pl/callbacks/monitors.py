"""Check of the values that callbacks monitor."""

import pytorch_lightning as pl

from maze_pl.callbacks.early_stopping import EarlyStopping
from maze_pl.callbacks.stop_at_return import StopAtReturn
from maze_pl.config.search_path import ConfigurationError, suggestion


def check_monitors(trainer: pl.Trainer, datamodule: object) -> None:
    """Refuse callbacks that monitor evaluators that do not exist.

    Args:
        trainer: The trainer, with all callbacks.
        datamodule: The data module.

    Raises:
        ConfigurationError: A callback needs an evaluator that the data module does not have.
    """
    evaluators = list(getattr(datamodule, "evaluators", {}))
    if getattr(datamodule, "validation_percentage", 0):  # held-out episodes
        evaluators.append("eval")
    if not evaluators:
        return
    sources = ["train", *evaluators]
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        monitor = own_monitor(callback)
        source, slash, _ = monitor.partition("/")
        is_known = source in sources or source.startswith(tuple(f"{name}_" for name in sources))
        if slash and not is_known:
            whose = f"{type(callback).__name__}(monitor={monitor!r})"
            known = f"data.evaluators has {evaluators}{suggestion(source, sources)}"
            raise ConfigurationError(f"{whose} needs an evaluator {source!r}; {known}")


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

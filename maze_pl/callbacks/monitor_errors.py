"""Errors of callbacks that monitor a value."""

from collections.abc import Mapping
from typing import Any

from pytorch_lightning import callbacks

from maze_pl.config.messages import UNKNOWN_VALUE
from maze_pl.config.search_path import suggestion


def unknown_value(callback: callbacks.Callback, monitor: str, metrics: Mapping[str, Any]) -> ValueError:
    """Return the error of a callback that monitors a value, such as a KPI, that evaluations lack.

    Args:
        callback: The callback.
        monitor: Name of the value.
        metrics: Existing values.
    """
    short = sorted(name for name in metrics if "_" not in name.partition("/")[0])
    name = f"{type(callback).__name__}(monitor={monitor!r})"
    known = f"{', '.join(short)}, and the columns of metrics.csv"
    fault = f"{UNKNOWN_VALUE}; they have {known}"
    return ValueError(f"{name}: {fault}{suggestion(monitor, metrics)}")

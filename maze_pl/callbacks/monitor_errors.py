"""Errors of callbacks that monitor a value."""

from collections.abc import Mapping
from typing import Any

from pytorch_lightning import callbacks

from maze_pl.config.messages import UNKNOWN_VALUE
from maze_pl.config.search_path import suggestion


def unknown_value(
    callback: callbacks.Callback, monitor: str, metrics: Mapping[str, Any], *, has_been_known: bool
) -> ValueError:
    """Return the error of a callback that monitors a value, such as a KPI, that evaluations lack.

    Args:
        callback: The callback.
        monitor: Name of the value.
        metrics: Existing values.
        has_been_known: Whether an earlier evaluation had the value.
    """
    name = f"{type(callback).__name__}(monitor={monitor!r})"
    if has_been_known:
        fault = "earlier evaluations had this value, but no episode of the last one has it"
        return ValueError(f"{name}: {fault}; monitor a value that each evaluation has")
    short = sorted(metric for metric in metrics if "_" not in metric.partition("/")[0])
    known = f"{', '.join(short)}, and the columns of metrics.csv"
    fault = f"{UNKNOWN_VALUE}; they have {known}"
    return ValueError(f"{name}: {fault}{suggestion(monitor, metrics)}")

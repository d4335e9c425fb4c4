"""KPIs among the values that callbacks and schedulers monitor."""

from collections.abc import Iterable
from typing import Final, NamedTuple

_SHORT: Final = "/kpi/"
_COLUMN: Final = "_BaseEnvEvents/kpi/"  # then a statistic, such as the mean, and the name


class MonitoredKpi(NamedTuple):
    """A KPI of an evaluator.

    Attributes:
        source: The evaluator, or `train`.
        name: Name of the KPI.
    """

    source: str
    name: str


def monitored_kpi(monitor: str, sources: Iterable[str]) -> MonitoredKpi | None:
    """Return the KPI that a value is a statistic of; None for values of other events.

    Args:
        monitor: Name of the value: `<source>/kpi/<name>`, or a column of `metrics.csv`.
        sources: Names of the evaluators, and `train`.

    Example:
        >>> monitored_kpi("eval/kpi/makespan", ["eval"])
        MonitoredKpi(source='eval', name='makespan')
        >>> monitored_kpi("eval_BaseEnvEvents/kpi/mean/makespan", ["eval"])
        MonitoredKpi(source='eval', name='makespan')
        >>> monitored_kpi("eval_OtherEvents/kpi/mean", ["eval"])
    """
    for source in sources:
        short = f"{source}{_SHORT}"
        column = f"{source}{_COLUMN}"
        if monitor.startswith(short):
            return MonitoredKpi(source, monitor.removeprefix(short))
        if monitor.startswith(column):
            return MonitoredKpi(source, monitor.removeprefix(column).partition("/")[2])
    return None


def sources_of(data: object) -> list[str]:
    """Return the names of the evaluators of a data module, and `train`.

    Args:
        data: The data module; one without evaluators may have a single evaluation, `eval`.
    """
    return ["train", *(getattr(data, "evaluators", None) or ["eval"])]

"""Learning curves: a statistic of runs over env steps or wall clock, with the runs of a group as one band."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from maze_pl.config.search_path import ConfigurationError, suggestion
from maze_pl.core.exact_sums import exact_mean
from maze_pl.core.metrics_table import STEP_COLUMN, WALL_CLOCK_COLUMN
from maze_pl.reports.run_groups import RunGroup
from maze_pl.runs.intervals import bootstrap_interval, interquartile_mean
from maze_pl.runs.metrics import Column, read_columns, wall_clock
from maze_pl.runs.step_units import ENV_STEPS, step_units_of

XAxis = Literal["env_steps", "wall_clock"]
Line = np.ndarray[Any, np.dtype[np.float64]]
"""[n] numbers."""

_RETURN: Final = "_BaseEnvEvents/reward/mean"
_SHORT: Final = {"return": "BaseEnvEvents/reward/mean", "kpi/": "BaseEnvEvents/kpi/mean/"}
_LARGEST: Final = 1e300  # beyond it, the scales of matplotlib overflow
_MOST_POINTS: Final = 200
_N_RESAMPLES: Final = 2_000


@dataclass(frozen=True)
class Curve:
    """A statistic of one run.

    Attributes:
        run: The run directory.
        x: [n] steps or seconds, ascending.
        y: [n] values.
    """

    run: Path
    x: Line
    y: Line


@dataclass(frozen=True)
class Band:
    """A statistic of the runs of a group.

    Attributes:
        name: Name of the group.
        curves: The curve of each run that has logged the statistic.
        x: [m] common grid, where all of these curves are defined; empty for fewer than two.
        middle: [m] interquartile mean over the runs.
        low: [m] lower end of its 95% interval.
        high: [m] upper end.
    """

    name: str
    curves: list[Curve]
    x: Line
    middle: Line
    low: Line
    high: Line


@dataclass(frozen=True)
class Chart:
    """A statistic of all groups.

    Attributes:
        statistic: Its name.
        x_axis: Meaning of the horizontal axis.
        bands: One for each group that has logged it.
        step_unit: Unit of the steps of their runs.
    """

    statistic: str
    x_axis: XAxis
    bands: list[Band]
    step_unit: str = ENV_STEPS


Metrics = dict[Path, dict[str, Column]]
"""Columns of each run, by run directory."""


def read_all(runs: Iterable[Path]) -> tuple[Metrics, dict[Path, ConfigurationError]]:
    """Read the metrics of runs.

    Args:
        runs: Run directories.

    Returns:
        The metrics of runs that have any, and the fault of each of the others: a `NoMetricsError` if a
        run has not logged any yet, else its file is damaged.
    """
    metrics: Metrics = {}
    faults: dict[Path, ConfigurationError] = {}
    for run in runs:
        try:
            metrics[run] = read_columns(run)
        except ConfigurationError as error:
            faults[run] = error
    return metrics, faults


def default_statistics(metrics: Metrics) -> list[str]:
    """Return the mean returns of all evaluators; without evaluators, the mean return of training.

    Without episodes, as in imitation, these are the losses of evaluations or of training.
    """
    names = known_statistics(metrics)
    for candidates in (
        [name for name in names if name.endswith(_RETURN) and not name.startswith("train_")],
        [name for name in names if name.endswith(_RETURN)],
        [name for name in names if "loss" in name and not name.startswith("train_")],
        [name for name in names if "loss" in name],
    ):
        if candidates:
            return candidates
    return names[:1]


def known_statistics(metrics: Metrics) -> list[str]:
    """Return the names of all statistics that a run has logged, in order."""
    names = [name for columns in metrics.values() for name in columns]
    return [name for name in dict.fromkeys(names) if name not in (STEP_COLUMN, WALL_CLOCK_COLUMN)]


def full_name(statistic: str, metrics: Metrics) -> str:
    """Return the name of a statistic in `metrics.csv`, also for `eval/return` and `eval/kpi/NAME`.

    Raises:
        ConfigurationError: No run has logged it; the message names similar ones.
    """
    known = known_statistics(metrics)
    for name in (statistic, spelled_out(statistic)):
        if name in known:
            return name
    short_names = [name for full in known if (name := short_name(full)) != full]
    hint = (
        suggestion(statistic, [*known, *short_names])
        or f"; they have {', '.join(known[:5])} and {max(0, len(known) - 5)} more"
    )
    raise ConfigurationError(f"no run has logged the statistic {statistic!r}{hint}")


def spelled_out(statistic: str) -> str:
    """Return the full name of `<source>/return` or `<source>/kpi/NAME`; other names unchanged."""
    source, _, rest = statistic.partition("/")
    for short, long in _SHORT.items():
        if rest.startswith(short):
            return f"{source}_{rest.replace(short, long, 1)}"
    return statistic


def short_name(statistic: str) -> str:
    """Return the short name of a statistic, such as `eval/return`; its full name if it has none."""
    for short, long in _SHORT.items():
        source, found, rest = statistic.partition(f"_{long}")
        if found and bool(rest) == short.endswith("/"):
            return f"{source}/{short}{rest}"
    return statistic


def chart(groups: Sequence[RunGroup], metrics: Metrics, statistic: str, x_axis: XAxis, smooth: int = 1) -> Chart:
    """Make the chart of a statistic.

    Args:
        groups: Groups of runs.
        metrics: Metrics of their runs.
        statistic: Name of the statistic, as in `metrics.csv`.
        x_axis: Meaning of the horizontal axis.
        smooth: Number of values that a value is averaged over, itself in the middle.

    Raises:
        ConfigurationError: A run has logged no times for a chart over wall clock, or a number beyond
            1e300.
    """
    bands = []
    for group in groups:
        curves = []
        for run in group.runs:
            curve = _curve(run, metrics[run], statistic, x_axis, smooth)
            if len(curve.x):
                curves.append(curve)
        if curves:
            bands.append(band(group.name, curves))
    runs = [run for group in groups for run in group.runs]
    return Chart(statistic, x_axis, bands, step_units_of(runs))


def _curve(run: Path, columns: dict[str, Column], statistic: str, x_axis: XAxis, smooth: int) -> Curve:
    """Return the points of a run at which the statistic was logged."""
    x = columns[STEP_COLUMN] if x_axis == "env_steps" else wall_clock(columns)
    if x is None:
        raise ConfigurationError(f"{run} has logged no times: plot it over env_steps")
    y = columns.get(statistic, np.full_like(x, np.nan))
    is_known = np.isfinite(x) & np.isfinite(y)
    largest = float(np.abs(y[is_known]).max(initial=0.0))
    if largest > _LARGEST:
        fault = f"{run} has logged a number of size {largest:.3g} as {statistic!r}"
        raise ConfigurationError(f"{fault}, which is too large to be drawn: at most {_LARGEST:g}")
    order = np.argsort(x[is_known], kind="stable")
    return Curve(run, x[is_known][order], smoothed(y[is_known][order], smooth))


def smoothed(values: Line, n: int) -> Line:
    """Average each value with its neighbours: (n - 1) // 2 before it and n // 2 after it, as far as there are any."""
    if n <= 1 or not len(values):
        return values
    numbers = values.tolist()
    means = []
    for place in range(len(numbers)):
        # Not a difference of cumulative sums, which would lose what follows a very large value.
        means.append(exact_mean(numbers[max(0, place - (n - 1) // 2) : place + n // 2 + 1]))
    return np.array(means)


def band(name: str, curves: Sequence[Curve]) -> Band:
    """Return the interquartile mean of curves on a common grid, with its bootstrap interval.

    The grid holds all points at which any of the curves has a value, from the latest start to the
    earliest end, at most 200 of them. Curves are interpolated linearly.

    Args:
        name: Name of the band.
        curves: Curves with at least one point each.
    """
    empty = np.empty(0)
    if len(curves) < 2:
        return Band(name, list(curves), empty, empty, empty, empty)
    start = max(curve.x[0] for curve in curves)
    end = min(curve.x[-1] for curve in curves)
    points = np.unique(np.concatenate([curve.x for curve in curves]))
    grid = points[(points >= start) & (points <= end)]
    if len(grid) > _MOST_POINTS:
        grid = grid[np.linspace(0, len(grid) - 1, _MOST_POINTS).round().astype(int)]
    values = np.array([np.interp(grid, curve.x, curve.y) for curve in curves])  # [runs, m]
    middle = [interquartile_mean(column.tolist()) for column in values.T]
    intervals = [bootstrap_interval(column.tolist(), n_resamples=_N_RESAMPLES) for column in values.T]
    low = [interval[0] for interval in intervals]
    high = [interval[1] for interval in intervals]
    return Band(name, list(curves), grid, np.array(middle), np.array(low), np.array(high))

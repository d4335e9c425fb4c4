"""The picture of a comparison: means and interquartile means with their intervals."""

import math
from pathlib import Path
from typing import Any

from maze_pl.comparison.results import Comparison, MetricSummary
from maze_pl.reports.chart_drawing import write_thousands
from maze_pl.runs.intervals import CONFIDENCE, Interval
from maze_pl.runs.short_names import shortened
from maze_pl.system.atomic_files import replaced

_MOST_METRICS = 12
_COLUMNS = 3
_MOST_INTERVALS = 5  # between the numbers of an axis


def save_picture(path: Path, comparison: Comparison) -> None:
    """Draw a comparison, and save it as PNG.

    Args:
        path: The file.
        comparison: The table.
    """
    figure = draw_comparison(comparison)
    with replaced(path) as part:
        figure.savefig(part, format="png", dpi=120)


def draw_comparison(comparison: Comparison) -> Any:
    """Draw up to 12 metrics, the metric of the winner first.

    Args:
        comparison: The table.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.figure import Figure  # optional; not pyplot's, which would keep a reference to it

    first = [comparison.metric, *(name for name in comparison.metrics if name != comparison.metric)]
    metrics = first[:_MOST_METRICS]
    n_columns = min(_COLUMNS, len(metrics))
    n_rows = math.ceil(len(metrics) / n_columns)
    height = 1.2 + 0.45 * len(comparison.entries)
    figure = Figure(figsize=(5.0 * n_columns, height * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False).ravel()
    for place, metric in enumerate(metrics):
        _draw(axes[place], comparison, metric)
    for unused in axes[len(metrics) :]:
        unused.set_visible(False)
    return figure


def _draw(axes: Any, comparison: Comparison, metric: str) -> None:
    """Draw the entries by one metric, the first one at the top."""
    names = [shortened(entry.name, 40) for entry in comparison.entries]
    for place, entry in enumerate(comparison.entries):
        summary: MetricSummary = entry.metrics[metric]
        label = place == 0
        _point(axes, place - 0.12, summary.mean, summary.mean_interval, "o", "C0", "mean" if label else None)
        _point(axes, place + 0.12, summary.iqm, summary.iqm_interval, "s", "C1", "IQM" if label else None)
    axes.set_yticks(range(len(names)), [name.replace("$", r"\$") for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_title(metric.replace("$", r"\$"))
    axes.set_xlabel(f"with {CONFIDENCE:.0%} intervals")
    axes.grid(axis="x", alpha=0.3)
    axes.locator_params(axis="x", nbins=_MOST_INTERVALS)
    axes.tick_params(axis="x", labelsize="small")
    write_thousands(axes.xaxis)
    axes.legend(fontsize="small")


def _point(
    axes: Any, height: float, value: float, interval: Interval | None, marker: str, color: str, label: str | None
) -> None:
    """Draw a value with its interval."""
    axes.plot([value], [height], marker, color=color, label=label)
    if interval is not None:
        axes.plot(interval, [height, height], "-", color=color)

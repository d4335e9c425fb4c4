"""Display of statistics: epochs as console tables, actions and observations as figures.

Matplotlib is optional and imported only for drawing.
"""

import importlib.util
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maze_pl.core.class_path import import_object

WIDTH = 100
_STEP_WIDTH = 5


def render(title: str, step: int, statistics: Mapping[str, Mapping[str, Any]]) -> str:
    """Statistics as a table `step|path|value`, at most 100 columns wide; names that are too long are shortened.

    Args:
        title: Title of the table.
        step: Epoch of the statistics.
        statistics: Stage, such as `train` or `eval` -> `<Topic>/<event>/<statistic>` -> value.
    """
    rows = []
    for stage, values in statistics.items():
        for key in sorted(values):
            topic, _, name = key.partition("/")
            event, _, rest = name.partition("/")
            is_count = rest in ("episode_count", "total_step_count", "total_episode_count")
            value = format_value(int(values[key]) if is_count else values[key])
            rows.append(([f"{stage} {topic}", event, rest], value))
    if not rows:
        return f"\n{title}"
    wide = max(len("value"), *(len(value) for _, value in rows))
    paths = _fit([names for names, _ in rows], WIDTH - _STEP_WIDTH - wide - 3)
    head = f"{'step':>{_STEP_WIDTH}}|{'path':{len(paths[0])}}| {'value':>{wide}}"
    ruler = f"{'=' * _STEP_WIDTH}|{'=' * len(paths[0])}|{'=' * (wide + 1)}"
    lines = (f"{step:>{_STEP_WIDTH}}|{path}| {value:>{wide}}" for path, (_, value) in zip(paths, rows, strict=True))
    return "\n".join(["", title, head, ruler, *lines])


def render_descriptions(statistics: Mapping[str, Mapping[str, Any]], descriptions: Mapping[str, str]) -> str:
    """Describe the statistics of a table, one line each; an empty text if none has a description.

    Args:
        statistics: As for `render`.
        descriptions: "<Topic>/<event>" -> description.
    """
    shown: dict[str, str] = {}
    for values in statistics.values():
        for key in sorted(values):
            topic, _, name = key.partition("/")
            event = name.partition("/")[0]
            if f"{topic}/{event}" in descriptions:
                shown[event] = descriptions[f"{topic}/{event}"]
    if not shown:
        return ""
    width = max(map(len, shown))
    lines = [f"  {event:{width}}  {shown[event]}" for event in sorted(shown)]
    return "\n".join(["statistics of the algorithm:", *lines])


def _fit(rows: list[list[str]], width: int) -> list[str]:
    """Align rows of three names to lines of at most `width` characters."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        widths[widths.index(max(widths))] -= 1
    lines = []
    for row in rows:
        cells = [shortened(name, n).ljust(n) for name, n in zip(row, widths, strict=True)]
        lines.append("  ".join(cells))
    return lines


def shortened(name: str, width: int) -> str:
    """Shorten a name to `width` characters: its beginning and end, with `..` in between."""
    return name if len(name) <= width else f"{name[: width - width // 2 - 2]}..{name[-(width // 2) :]}"


def format_value(value: Any) -> str:
    """Format a value: integers in groups of three digits, small numbers never rounded to zero."""
    if isinstance(value, bool | int):
        return f"{value:,}"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if not math.isfinite(number) or abs(number) >= 1e12 or 0 < abs(number) < 0.1:
        return f"{number:.3g}"
    return f"{number:,.0f}" if number.is_integer() and abs(number) >= 1000 else f"{number:,.3f}"


def require_matplotlib(feature: str) -> None:
    """Raise ImportError if matplotlib is missing.

    Args:
        feature: Name of the feature that needs it.

    Raises:
        ImportError: It is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError(f'{feature} needs matplotlib: pip install "maze-pl[rendering]"')


def create_bar_plot(values: Sequence[Any], groups: tuple[str, ...]) -> Any:
    """Draw the frequency of each choice as a matplotlib figure.

    Args:
        values: [V] choices; or [V, n] yes/no choices, of which the share of yes is drawn.
        groups: Title; for single choices, its last part is their range, such as "0_to_3". More than
            256 choices are drawn in 256 ranges.
    """
    array = np.asarray(values)
    if array.ndim == 1:
        first, last = map(int, groups[-1].split("_to_"))
        groups = groups[:-1]
        counts, edges = np.histogram(array, min(last - first + 1, 256), (first - 0.5, last + 0.5))
    else:
        counts = array.reshape(len(array), -1).sum(axis=0)
        edges = np.arange(len(counts) + 1) - 0.5
    shares = counts / len(array)
    figure, axes = _axes(len(shares), groups, f"share of {len(array)} sampled acts")
    if len(shares) <= 16:
        choices = np.round(edges[:-1] + 0.5).astype(int)
        axes.bar_label(axes.bar(choices, shares), [f"{share:.0%}" for share in shares])
        axes.set_xticks(choices)
    else:
        axes.stairs(shares, edges, fill=True)
    return figure


def create_violin_plot(values: Sequence[Any], groups: tuple[str, ...]) -> Any:
    """Draw the first 32 components of continuous values as violins, in a matplotlib figure.

    Args:
        values: [V, ...] the values.
        groups: Title.
    """
    array = np.reshape(np.asarray(values, np.float64), (len(values), -1))[:, :32]
    places = np.arange(array.shape[1])
    figure, axes = _axes(len(places), groups, f"value in {len(array)} sampled acts")
    axes.violinplot(array, places, widths=0.8, showmedians=True)
    axes.set_xticks(places)
    axes.grid(axis="y", alpha=0.3)
    return figure


def create_own_plot(values: Sequence[Any], groups: tuple[str, ...]) -> Any:
    """Draw observations with a user-defined function.

    Args:
        values: [V, ...] the observations.
        groups: Path of the function, then the groups that it receives: step key and name of the
            observation.
    """
    return import_object(groups[0])(list(values), groups[1:])


def _axes(n_places: int, groups: tuple[str, ...], label: str) -> tuple[Any, Any]:
    """A figure and its only axes."""
    from matplotlib.figure import Figure  # not pyplot's, which would keep a reference to it

    figure = Figure(figsize=(min(4 + 0.3 * n_places, 14), 4), layout="constrained")
    axes = figure.add_subplot(title=" / ".join(groups), xlabel="index of the action", ylabel=label)
    return figure, axes

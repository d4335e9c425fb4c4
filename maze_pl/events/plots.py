"""Pictures of what agents do, drawn once per epoch: what is chosen how often, and how continuous actions spread.

Matplotlib is optional, and imported when something is drawn.
"""

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from maze_pl.core.class_path import import_object


def require_matplotlib(whose: str) -> None:
    """Refuse to go on without matplotlib.

    Args:
        whose: What needs it.

    Raises:
        ImportError: It is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError(f'{whose} needs matplotlib: pip install "maze-pl[rendering]"')


def create_bar_plot(values: Sequence[Any], groups: tuple[str, ...]) -> Any:
    """Draw how often each choice was made, as a figure of matplotlib.

    Args:
        values: [V] what was chosen; or [V, n] choices between yes and no, of which the share of yes is drawn.
        groups: Title; of single choices the last part is their range, such as "0_to_3". More than 256
            choices are drawn in 256 ranges.
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
    """Draw how the components of continuous values spread, the first 32 of them, as a figure of matplotlib.

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
    """Draw observations by a function of the user's own.

    Args:
        values: [V, ...] the observations.
        groups: Path of the function, and what it gets as its own groups: step key and name of the observation.
    """
    return import_object(groups[0])(list(values), groups[1:])


def _axes(n_places: int, groups: tuple[str, ...], label: str) -> tuple[Any, Any]:
    """A figure and its only axes."""
    from matplotlib.figure import Figure  # not of pyplot, which would keep it

    figure = Figure(figsize=(min(4 + 0.3 * n_places, 14), 4), layout="constrained")
    axes = figure.add_subplot(title=" / ".join(groups), xlabel="index of the action", ylabel=label)
    return figure, axes

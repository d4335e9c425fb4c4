"""Pictures of a sweep: history, importances, slices and parallel coordinates, drawn with matplotlib."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from maze_pl.config.search_path import dump
from maze_pl.events.display import require_matplotlib
from maze_pl.reports.chart_drawing import COLOURS, rendered
from maze_pl.sweeps.progress import value_text
from maze_pl.sweeps.result import SweepResult, Trial
from maze_pl.sweeps.search_space import Choice, Parameter, Range
from maze_pl.system.atomic_files import write_file

PICTURES: Final = "pictures"
"""Folder of the pictures in the folder of a sweep."""
_COLOUR_MAP: Final = "viridis"
_INK: Final = "#1a1a19"
_MISSING: Final = "(missing)"
_SLICE_WIDTH: Final = 3.1
_MOST_LETTERS: Final = 30
_MOST_TICKS: Final = 8
_PARTS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_SHIFTS: Final = 0.06
"""Height of the band over which trials with equal choices are spread."""
_TEXT_BOX: Final = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8}
"""Background of texts that lines run through."""


def write_pictures(result: SweepResult) -> list[Path]:
    """Draw all pictures for which there are enough trials, as PNG files.

    Args:
        result: The sweep.

    Returns:
        The files.
    """
    finished = [trial for trial in result.trials if trial.status == "finished"]
    if not finished:
        return []
    require_matplotlib("maze-pl sweep")
    drawings: dict[str, Callable[[SweepResult, list[Trial]], Any]] = {
        "history": draw_history,
        "slices": draw_slices,
        "parallel_coordinates": draw_parallel_coordinates,
    }
    if importances := result.importances:
        drawings["importances"] = partial(draw_importances, importances)
    folder = result.folder / PICTURES
    folder.mkdir(exist_ok=True)
    files = []
    for name, draw in drawings.items():
        path = folder / f"{name}.png"
        write_file(path, rendered(draw(result, finished), "png"))
        files.append(path)
    return files


def draw_history(result: SweepResult, finished: list[Trial]) -> Any:
    """Draw the values of all trials in order, and the best value so far; one chart for each objective."""
    objectives = result.plan.objectives
    figure = _figure(6.4, 3.4 * len(objectives))
    pruned = [trial for trial in result.trials if trial.status == "pruned" and trial.steps]
    for index, objective in enumerate(objectives):
        axes = figure.add_subplot(len(objectives), 1, index + 1)
        numbers = [trial.number for trial in finished]
        values = [trial.values[index] for trial in finished]
        axes.scatter(numbers, values, s=22, color=COLOURS[0], label="finished", zorder=3)
        if pruned and index == 0:
            last = [trial.steps[max(trial.steps)] for trial in pruned]
            places = [trial.number for trial in pruned]
            axes.scatter(places, last, s=22, marker="x", color=COLOURS[1], label="pruned, last value", zorder=3)
        better = max if objective.direction == "maximize" else min
        so_far = [better(values[: n + 1]) for n in range(len(values))]
        axes.step(numbers, so_far, where="post", color=COLOURS[2], linewidth=1.6, label="best so far")
        _label(axes, "trial", objective.metric)
        axes.locator_params(axis="x", integer=True)
        axes.legend(fontsize=8, frameon=False)
    return figure


def draw_importances(importances: dict[str, float], result: SweepResult, _: list[Trial]) -> Any:
    """Draw the importance of each option as a bar, on an axis from 0 to 1."""
    figure = _figure(6.4, 1.1 + 0.38 * len(importances))
    axes = figure.add_subplot(1, 1, 1)
    names = [_shortened(name) for name in reversed(importances)]
    shares = [importances[name] for name in reversed(importances)]
    bars = axes.barh(names, shares, color=COLOURS[0], height=0.65)
    axes.bar_label(bars, [f"{share:.2f}" for share in shares], padding=3, fontsize=8)
    _label(axes, f"importance for {result.plan.objectives[0].metric}", "")
    axes.set_xlim(0, 1.1)  # with room for labels
    axes.grid(visible=False, axis="y")
    return figure


def draw_slices(result: SweepResult, finished: list[Trial]) -> Any:
    """Draw the first objective over each searched option; later trials are brighter."""
    parameters = _used(result.plan.parameters, finished)
    n_columns = min(3, len(parameters))
    n_rows = math.ceil(len(parameters) / n_columns)
    figure = _figure(max(4.2, _SLICE_WIDTH * n_columns), 2.9 * n_rows)
    figure.suptitle("later trials are brighter", fontsize=8, color=_INK, x=0.99, ha="right")
    axes = None
    for index, parameter in enumerate(parameters):
        axes = figure.add_subplot(n_rows, n_columns, index + 1, sharey=axes)
        trials = [trial for trial in finished if parameter.option in trial.assignment]
        scale = _Scale(parameter, trials)
        places = [scale.place(trial.assignment[parameter.option]) for trial in trials]
        values = [trial.values[0] for trial in trials]
        order = [trial.number for trial in trials]
        axes.scatter(places, values, s=22, c=order, cmap=_COLOUR_MAP, edgecolors=_INK, linewidths=0.3, zorder=3)
        _label(axes, _shortened(parameter.option), result.plan.objectives[0].metric if index % n_columns == 0 else "")
        scale.set_axis(axes)
    return figure


def draw_parallel_coordinates(result: SweepResult, finished: list[Trial]) -> Any:
    """Draw each finished trial as a line through its values; the colour is the first objective."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    parameters = _used(result.plan.parameters, finished)
    objective = result.plan.objectives[0]
    figure = _figure(max(5.0, 1.7 * (len(parameters) + 1) + 1.2), 4.2)
    axes = figure.add_subplot(1, 1, 1)
    scales = [_Scale(parameter, finished) for parameter in parameters]
    values = [trial.values[0] for trial in finished]
    span = (max(values) - min(values)) or 1.0
    norm = Normalize(min(values), max(values) if max(values) > min(values) else min(values) + 1.0)
    is_worst_first = objective.direction == "maximize"
    drawn = sorted(finished, key=lambda one: one.values[0], reverse=not is_worst_first)
    for number, trial in enumerate(drawn):
        heights = [(trial.values[0] - min(values)) / span]
        for parameter, scale in zip(parameters, scales, strict=True):
            height = scale.height(trial.assignment.get(parameter.option, _MISSING))
            heights.append(height + scale.shift(number, len(drawn)))
        colour = colormaps[_COLOUR_MAP](norm(trial.values[0]))
        axes.plot(range(len(heights)), heights, color=colour, linewidth=1.4, alpha=0.85, clip_on=False)
    for place, ticks in enumerate([_value_ticks(values), *(scale.ticks() for scale in scales)]):
        axes.axvline(place, color=_INK, linewidth=0.8)
        for height, text in ticks:
            style = {"fontsize": 7, "color": _INK, "va": "center", "bbox": _TEXT_BOX, "zorder": 4}
            axes.annotate(text, (place, height), (3, 0), textcoords="offset points", **style)
    names = [objective.metric, *[_shortened(parameter.option) for parameter in parameters]]
    axes.set_xticks(range(len(names)), names, fontsize=8, rotation=15, ha="right")
    axes.set_xlim(-0.1, len(names) - 1 + 0.5)
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(ScalarMappable(norm, _COLOUR_MAP), ax=axes, pad=0.01)
    bar.set_label(objective.metric, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


class _Scale:
    """The axis of a searched option.

    Args:
        parameter: The option.
        trials: The trials that are drawn.
    """

    def __init__(self, parameter: Parameter, trials: Sequence[Trial]) -> None:
        self._log = isinstance(parameter, Range) and parameter.log
        self._is_int = isinstance(parameter, Range) and parameter.is_int
        self._labels: list[str] = []
        self._step: float | None = None
        if isinstance(parameter, Range):
            self._low, self._high = float(parameter.low), float(parameter.high)
            self._step = parameter.step or (1 if parameter.is_int and not parameter.log else None)
        elif isinstance(parameter, Choice):
            self._labels = [dump(value) for value in parameter.values]
        self._is_missing = any(parameter.option not in trial.assignment for trial in trials)

    def place(self, value: Any) -> float:
        """Return the position of a value on a horizontal axis."""
        return float(self._labels.index(dump(value))) if self._labels else float(value)

    def height(self, value: Any) -> float:
        """Return the position of a value in 0 to 1; below it for options that a trial does not have."""
        if isinstance(value, str) and value == _MISSING:
            return -0.12
        if self._labels:
            return self._labels.index(dump(value)) / max(1, len(self._labels) - 1)
        if self._log:
            return math.log(value / self._low) / math.log(self._high / self._low)
        return (float(value) - self._low) / (self._high - self._low)

    def shift(self, number: int, n_trials: int) -> float:
        """Return the height by which a trial is moved, as equal choices would hide each other.

        Args:
            number: Number of the trial among the drawn ones.
            n_trials: How many are drawn.
        """
        if not self._labels or n_trials < 2:
            return 0.0
        return (number / (n_trials - 1) - 0.5) * min(_SHIFTS, 0.5 / len(self._labels))

    def ticks(self) -> list[tuple[float, str]]:
        """Return heights and texts of ticks."""
        missing = [(-0.12, "not searched")] if self._is_missing else []
        if self._labels:
            last = max(1, len(self._labels) - 1)
            step = math.ceil(len(self._labels) / _MOST_TICKS)
            shown = list(enumerate(self._labels))[::step]
            return [*missing, *((place / last, _shortened(label)) for place, label in shown)]
        values = self._range_ticks(_PARTS)
        return [*missing, *((self.height(value), text) for value, text in values)]

    def _range_ticks(self, parts: Sequence[float]) -> list[tuple[float, str]]:
        """Return values of a range at parts of its length, and their texts."""
        values = []
        for part in parts:
            if self._log:
                values.append(self._low * (self._high / self._low) ** part)
            elif self._step is None:
                values.append(self._low + part * (self._high - self._low))
            else:  # only values that are tried
                n_steps = round((self._high - self._low) / self._step)
                values.append(self._low + round(part * n_steps) * self._step)
        if self._is_int:
            values = [float(round(value)) for value in values]
        text = ".0f" if self._is_int else ".3g"
        return [(value, f"{value:{text}}") for value in dict.fromkeys(values)]

    def set_axis(self, axes: Any) -> None:
        """Set scale and ticks of a horizontal axis."""
        if self._log:
            from matplotlib.ticker import NullLocator

            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())  # its labels overlap within a decade
            places, texts = zip(*self._range_ticks((0.0, 0.5, 1.0)), strict=True)
            axes.set_xticks(places, texts)
            margin = (self._high / self._low) ** 0.05
            axes.set_xlim(self._low / margin, self._high * margin)
        elif self._is_int:
            axes.locator_params(axis="x", integer=True)
        if self._labels:
            labels = [_shortened(label) for label in self._labels]
            is_long = max(map(len, labels)) * len(labels) > _MOST_LETTERS
            axes.set_xticks(range(len(labels)), labels, fontsize=8, rotation=30 if is_long else 0)
            axes.set_xlim(-0.5, len(labels) - 0.5)


def _used(parameters: Sequence[Parameter], trials: Sequence[Trial]) -> list[Parameter]:
    """Return the options that at least one trial has."""
    return [parameter for parameter in parameters if any(parameter.option in trial.assignment for trial in trials)]


def _value_ticks(values: Sequence[float]) -> list[tuple[float, str]]:
    """Return heights and texts of the ticks of the objective."""
    low, high = min(values), max(values)
    if high == low:
        return [(0.0, value_text(float(low)))]
    return [(part, f"{low + part * (high - low):.3g}") for part in _PARTS]


def _figure(width: float, height: float) -> Any:
    """Return an empty figure of a size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _label(axes: Any, x: str, y: str) -> None:
    """Set the labels and the looks of a chart."""
    axes.set_xlabel(x, color=_INK, fontsize=9)
    axes.set_ylabel(y, color=_INK, fontsize=9)
    axes.tick_params(colors=_INK, labelsize=8)
    axes.grid(visible=True, alpha=0.25, color=_INK, linewidth=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _shortened(text: str) -> str:
    """Return a text of limited length."""
    return text if len(text) <= _MOST_LETTERS else f"…{text[-_MOST_LETTERS + 1 :]}"

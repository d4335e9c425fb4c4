"""Gantt charts of the job shop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from maze_pl.envs.job_shop.instance import Array
from maze_pl.envs.job_shop.objects import JobShopMazeAction, JobShopMazeState
from maze_pl.envs.rendering import Renderer
from maze_pl.events.display import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#2b2d33"
_FAINT = "#8a8f99"
_STRIPE = "#f4f5f7"
_BOUND = "#c0392b"
_NARROWEST = 0.014
"""Width of a bar that still has a label, relative to the axis."""


class JobShopRenderer(Renderer):
    """Draws the schedule as a Gantt chart: a row per machine, a colour per job.

    The operation of the step is drawn over its job's colour with a dark outline; after the last
    step, the one that was scheduled last is outlined. Dashed lines show the lower bound of the
    makespan and, if it is published, the best known makespan. Needs the extra `rendering`.
    """

    def render(self, maze_state: JobShopMazeState, maze_action: Any = None, events: Any = (), **_: Any) -> Figure:
        """Draw one step; see `Renderer.render`.

        Raises:
            ImportError: matplotlib is not installed.
        """
        require_matplotlib(type(self).__name__)
        from matplotlib.figure import Figure

        instance = maze_state.instance
        height = min(max(2.2 + 0.27 * instance.n_machines, 3.6), 9.0)
        figure = Figure(figsize=(12, height))  # without a layout engine, which would take as long as the drawing
        axes = figure.add_axes((0.06, 0.85 / height, 0.925, 1 - 1.6 / height))
        bars = _bars(maze_state, maze_action)
        last = max((start + duration for _, _, _, start, duration in bars), default=0)
        end = 1.03 * max(last, maze_state.bound, instance.best_known or 0, 1)
        _draw_rows(axes, instance.n_machines, end)
        _draw_bars(axes, bars, instance.n_jobs, end)
        _draw_lines(axes, maze_state)
        _write_title(axes, maze_state, bars, maze_action)
        return figure


Bar = tuple[int, int, int, int, int]
"""Job, operation, machine, start and duration."""


def _bars(state: JobShopMazeState, action: JobShopMazeAction | None) -> list[Bar]:
    """Scheduled operations; the one to be highlighted is the last."""
    instance = state.instance
    bars: list[Bar] = []
    highlighted: Bar | None = None
    for job, operation in zip(*np.nonzero(state.operation_starts >= 0), strict=True):
        machine = int(state.operation_machines[job, operation])
        duration = dict(instance.alternatives(job, operation))[machine]
        bar = (int(job), int(operation), machine, int(state.operation_starts[job, operation]), duration)
        if action is None and (bar[0], bar[1]) == state.last:
            highlighted = bar
        else:
            bars.append(bar)
    if action is not None and _is_option(state, action):
        job, alternative = action.job, action.alternative
        start = int(state.starts[job, alternative])
        duration = int(state.option_durations[job, alternative])
        machine = int(state.option_machines[job, alternative])
        highlighted = (job, int(state.next_operation[job]), machine, start, duration)
    if highlighted is not None:
        bars.append(highlighted)
    return bars


def _is_option(state: JobShopMazeState, action: JobShopMazeAction) -> bool:
    """True for an option that may be chosen."""
    n, k = state.allowed.shape
    is_inside = 0 <= action.job < n and 0 <= action.alternative < k
    return is_inside and bool(state.allowed[action.job, action.alternative])


def _colours(n_jobs: int) -> Array:
    """[n_jobs, 4] colours; neighbours differ in hue, and rounds through the hues in brightness."""
    from matplotlib.colors import hsv_to_rgb

    jobs = np.arange(n_jobs)
    hue = (0.58 + jobs * 0.61803398875) % 1.0  # golden ratio: any number of hues lie far apart
    saturation = np.array([0.42, 0.58, 0.34])[jobs % 3]
    value = np.array([0.93, 0.80, 0.86])[jobs % 3]
    return np.asarray(hsv_to_rgb(np.stack([hue, saturation, value], axis=1)))


def _draw_rows(axes: Axes, n_machines: int, end: float) -> None:
    """Draw stripes for machines, and the axes."""
    for machine in range(0, n_machines, 2):
        axes.axhspan(machine - 0.5, machine + 0.5, color=_STRIPE, linewidth=0, zorder=0)
    axes.set(xlim=(0, end), ylim=(n_machines - 0.5, -0.5))
    step = -(-n_machines // 20)
    axes.set_yticks(range(0, n_machines, step), [f"M{machine}" for machine in range(0, n_machines, step)])
    axes.tick_params(length=0, colors=_INK, labelsize=9)
    axes.tick_params(axis="x", length=4, color=_FAINT)
    axes.grid(axis="x", color="#e3e5e9", linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.set_xlabel("time", color=_INK, fontsize=9)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)


def _draw_bars(axes: Axes, bars: list[Bar], n_jobs: int, end: float) -> None:
    """Draw all operations, with the number of the job where there is room."""
    from matplotlib.collections import PolyCollection

    if not bars:
        return
    colours = _colours(n_jobs)
    corners = []
    for _, _, machine, start, duration in bars:
        bottom, top = machine - 0.4, machine + 0.4
        corners.append([(start, bottom), (start + duration, bottom), (start + duration, top), (start, top)])
    faces = colours[[job for job, *_ in bars]]
    axes.add_collection(PolyCollection(corners, facecolors=faces, edgecolors="white", linewidths=0.9, zorder=2))
    outline = PolyCollection(corners[-1:], facecolors=faces[-1:], edgecolors=_INK, linewidths=2.2, zorder=4)
    axes.add_collection(outline)
    for place, (job, _, machine, start, duration) in enumerate(bars):
        is_last = place == len(bars) - 1
        if duration >= _NARROWEST * end:
            weight = "bold" if is_last else "normal"
            text = axes.text(start + duration / 2, machine, f"{job}", ha="center", va="center", fontsize=8)
            text.set(color=_INK, zorder=5, fontweight=weight)


def _draw_lines(axes: Axes, state: JobShopMazeState) -> None:
    """Draw the lower bound and the best known makespan."""
    best = state.instance.best_known
    axes.axvline(state.bound, color=_INK, linestyle=(0, (4, 3)), linewidth=1.2, zorder=3)
    bound = "makespan" if state.is_complete else "bound"
    right = best is None or state.bound >= best
    _label(axes, state.bound, f"{bound} {state.bound}", _INK, right)
    if best is not None:
        axes.axvline(best, color=_BOUND, linestyle=(0, (1, 2)), linewidth=1.4, zorder=3)
        _label(axes, best, f"best known {best}", _BOUND, not right)


def _label(axes: Axes, time: float, text: str, colour: str, is_right: bool) -> None:
    """Write the meaning of a line above it, on its outer side."""
    axes.annotate(
        text,
        (time, 1),
        (3 if is_right else -3, 3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="right" if not is_right else "center",
        color=colour,
        fontsize=8,
    )


def _write_title(axes: Axes, state: JobShopMazeState, bars: list[Bar], action: JobShopMazeAction | None) -> None:
    """Write the instance, the progress and the operation of the step."""
    instance = state.instance
    title = f"{instance.name}: {instance.n_jobs} jobs, {instance.n_machines} machines"
    title += f"   {state.n_scheduled} of {instance.total_operations} operations scheduled"
    if action is not None and not _is_option(state, action):
        title += f"   job {action.job} chosen, which is not allowed"
    elif bars and (action is not None or state.last[0] >= 0):
        job, operation, machine, start, duration = bars[-1]
        verb = "next" if action is not None else "last"
        title += f"   {verb}: operation {operation} of job {job} on M{machine}, {start} to {start + duration}"
    axes.set_title(title, loc="left", fontsize=10, color=_INK, pad=20)

"""Maps of ride hailing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from maze_pl.envs.rendering import Renderer
from maze_pl.envs.ride_hailing.objects import (
    APPEARED,
    DEADLINE,
    DESTINATION,
    ORIGIN,
    Array,
    RideHailingMazeAction,
    RideHailingMazeState,
)
from maze_pl.envs.ride_hailing.simulation import drives
from maze_pl.events.display import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#2b2d33"
_IDLE = "#1f77b4"
_BUSY = "#9aa7b8"
_CALM = "#f2b134"
_URGENT = "#c0392b"


class RideHailingRenderer(Renderer):
    """Draws the map: forecast, waiting passengers, vehicles, and the decision of the step.

    The more requests are expected, the darker the zone. Passengers are circles, red if their
    patience is nearly over. Vehicles that have to decide are blue, the one that decides is
    outlined; those on a trip are grey, with a line to their destination. The arrow is the decision:
    to the pick-up and on to the destination, or to another zone. Needs the extra `rendering`.
    """

    def render(self, maze_state: RideHailingMazeState, maze_action: Any = None, events: Any = (), **_: Any) -> Figure:
        """Draw one step; see `Renderer.render`.

        Raises:
            ImportError: matplotlib is not installed.
        """
        require_matplotlib(type(self).__name__)
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.2, 7.4))  # without a layout engine, which would take as long as the drawing
        axes = figure.add_axes((0.06, 0.1, 0.86, 0.82))
        _draw_forecast(axes, maze_state)
        _draw_trips(axes, maze_state)
        _draw_requests(axes, maze_state)
        _draw_idle(axes, maze_state)
        decision = _draw_decision(axes, maze_state, maze_action)
        _write(axes, maze_state, decision)
        return figure


def _draw_forecast(axes: Axes, state: RideHailingMazeState) -> None:
    """Draw the zones with the expected requests."""
    from matplotlib.patheffects import withStroke

    city = state.city
    n = city.n_zones
    forecast = city.forecast[city.period_of(state.now)]
    extent = (0.0, city.size, 0.0, city.size)
    most = max(float(city.forecast.max()), 1e-9)
    image = forecast.reshape(n, n)
    axes.imshow(image, extent=extent, origin="lower", cmap="Greens", vmin=0, vmax=1.4 * most, zorder=0)
    for edge in np.linspace(0, city.size, n + 1):
        axes.axhline(edge, color="white", linewidth=1.5, zorder=1)
        axes.axvline(edge, color="white", linewidth=1.5, zorder=1)
    outlined: Any = {"path_effects": [withStroke(linewidth=2.5, foreground="white")]}  # above lines of trips
    for centre, expected in zip(city.centres, forecast, strict=True):
        corner = centre + 0.46 * city.size / n * np.array([-1, 1])
        number = f"{expected:.1f}"
        axes.text(corner[0], corner[1], number, ha="left", va="top", fontsize=9, color=_INK, zorder=3.5, **outlined)
    axes.set(xlim=(0, city.size), ylim=(0, city.size), aspect="equal")
    axes.set_xlabel("km", color=_INK, fontsize=9)
    axes.tick_params(length=0, colors=_INK, labelsize=8)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_trips(axes: Axes, state: RideHailingMazeState) -> None:
    """Draw vehicles that are on their way, at their destinations, with a line from the origin."""
    is_busy = (state.free_at > state.now) & (state.shift_start <= state.now) & ~np.isnan(state.trips[:, 0])
    for vehicle in np.flatnonzero(is_busy):
        _manhattan(axes, state.trips[vehicle, :2], state.positions[vehicle], _BUSY, 1.2, ":")
    places = state.positions[is_busy]
    axes.scatter(
        places[:, 0],
        places[:, 1],
        s=60,
        marker="s",
        color=_BUSY,
        edgecolors="white",
        zorder=3,
        label="destinations of trips",
    )


def _draw_requests(axes: Axes, state: RideHailingMazeState) -> None:
    """Draw waiting passengers, red where the patience is nearly over."""
    waiting = state.waiting
    used = (state.now - waiting[:, APPEARED]) / (waiting[:, DEADLINE] - waiting[:, APPEARED])
    for colour, chosen, label in ((_CALM, used <= 0.6, "waiting"), (_URGENT, used > 0.6, "waiting, will leave soon")):
        places = waiting[chosen][:, ORIGIN]
        axes.scatter(
            places[:, 0], places[:, 1], s=46, color=colour, edgecolors="white", linewidths=0.9, zorder=4, label=label
        )


def _draw_idle(axes: Axes, state: RideHailingMazeState) -> None:
    """Draw the vehicles that have to decide."""
    places = state.positions[list(state.undecided)].reshape(-1, 2)
    axes.scatter(
        places[:, 0],
        places[:, 1],
        s=80,
        marker="s",
        color=_IDLE,
        edgecolors="white",
        zorder=5,
        label="vehicles that decide",
    )


def _draw_decision(axes: Axes, state: RideHailingMazeState, action: RideHailingMazeAction | None) -> str:
    """Draw what a vehicle does; return it in words."""
    if action is None or not 0 <= action.place < len(state.undecided):
        return ""
    vehicle = state.undecided[action.place]
    start = state.positions[vehicle]
    axes.scatter(start[0], start[1], s=190, marker="s", facecolors="none", edgecolors=_INK, linewidths=1.8, zorder=6)
    requests = state.nearest(vehicle)
    if 0 <= action.option < len(requests):
        row = state.waiting[requests[action.option]]
        _manhattan(axes, start, row[ORIGIN], _INK, 1.8, "--")
        _manhattan(axes, row[ORIGIN], row[DESTINATION], _INK, 2.2, "-")
        return f"vehicle {vehicle} accepts a trip of {np.abs(row[DESTINATION] - row[ORIGIN]).sum():.1f} km"
    side = action.option - state.n_nearest - 1
    if 0 <= side < 4:
        _manhattan(axes, start, drives(state.city, start)[side], _INK, 2.2, "--")
        return f"vehicle {vehicle} drives {('west', 'east', 'south', 'north')[side]}"
    return f"vehicle {vehicle} stays"


def _manhattan(axes: Axes, start: Array, end: Array, colour: str, width: float, style: str) -> None:
    """Draw the way between two places, along streets, with an arrowhead at its end."""
    corner = (end[0], start[1])
    xs = [start[0], corner[0], end[0]]
    ys = [start[1], corner[1], end[1]]
    axes.plot(xs, ys, color=colour, linewidth=width, linestyle=style, zorder=2.5)
    before = corner if abs(end[1] - start[1]) > 1e-9 else (start[0], start[1])
    arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 0, "shrinkA": 0, "shrinkB": 2}
    axes.annotate("", (end[0], end[1]), before, arrowprops=arrow, zorder=2.6)


def _write(axes: Axes, state: RideHailingMazeState, decision: str) -> None:
    """Write the time, the numbers and the decision."""
    hour, minute = divmod(round(60 * state.city.hour_of(state.now)), 60)
    n_on_duty = int(((state.shift_start <= state.now) & (state.now < state.shift_end)).sum())
    title = f"{hour:02}:{minute:02}   {n_on_duty} vehicles on duty   {len(state.waiting)} passengers waiting"
    axes.set_title(f"{title}   {decision}", loc="left", fontsize=10, color=_INK, pad=10)
    legend = axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.07), ncol=4, fontsize=8, frameon=False)
    for text in legend.get_texts():
        text.set_color(_INK)

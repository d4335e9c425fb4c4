"""Maps of vehicle routing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from maze_pl.envs.rendering import Renderer
from maze_pl.envs.vehicle_routing.instance import Array
from maze_pl.envs.vehicle_routing.objects import RoutingMazeAction, RoutingMazeState
from maze_pl.events.display import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#2b2d33"
_FAINT = "#8a8f99"
_GROUND = "#f7f8fa"
_WAITING = "#d5d9e0"
_SMALLEST = 16.0
"""Area of a customer without demand, in square points."""
_DEMAND = 110.0
"""Further area of the customer with the largest demand."""


class VehicleRoutingRenderer(Renderer):
    """Draws a map: the depot, customers whose area is their demand, and a colour for each route.

    Customers that wait are grey. Drives to the depot are thin, vehicles under way are marked by
    rings, and the drive of the step is a dark arrow. Bars show the load of each vehicle. Needs the extra `rendering`.
    """

    def render(self, maze_state: RoutingMazeState, maze_action: Any = None, events: Any = (), **_: Any) -> Figure:
        """Draw one step; see `Renderer.render`.

        Raises:
            ImportError: matplotlib is not installed.
        """
        require_matplotlib(type(self).__name__)
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.8, 8.0))  # without a layout engine, which would take as long as the drawing
        axes = figure.add_axes((0.02, 0.02, 0.78, 0.9))
        routes = maze_state.routes
        colours = _colours(max(len(routes), 1))
        _draw_frame(axes, maze_state.instance.coordinates)
        _draw_routes(axes, maze_state, routes, colours)
        _draw_customers(axes, maze_state, routes, colours)
        move = _allowed_move(maze_state, maze_action)
        _draw_vehicles(axes, maze_state, move)
        _draw_loads(figure.add_axes((0.84, 0.05, 0.14, 0.84)), maze_state, routes, colours)
        axes.set_title(_title(maze_state, maze_action, move), loc="left", fontsize=10, color=_INK)
        return figure


def _colours(n: int) -> Array:
    """[n, 4] colours of routes; neighbours differ in hue."""
    from matplotlib.colors import hsv_to_rgb

    routes = np.arange(n)
    hue = (0.58 + routes * 0.61803398875) % 1.0  # golden ratio: any number of hues lie far apart
    saturation = np.array([0.62, 0.75, 0.55])[routes % 3]
    value = np.array([0.82, 0.68, 0.74])[routes % 3]
    return np.asarray(hsv_to_rgb(np.stack([hue, saturation, value], axis=1)))


def _draw_frame(axes: Axes, coordinates: Array) -> None:
    """Set the limits, equal in both directions, and draw the ground."""
    low = coordinates.min(axis=0)
    high = coordinates.max(axis=0)
    margin = 0.04 * max(float((high - low).max()), 1e-9)
    axes.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin))
    axes.set_aspect("equal")
    axes.set_facecolor(_GROUND)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _is_running(state: RoutingMazeState, route: list[int]) -> bool:
    """True for a route whose vehicle is under way."""
    return bool((state.position == route[-1]).any())


def _draw_routes(axes: Axes, state: RoutingMazeState, routes: list[list[int]], colours: Array) -> None:
    """Draw the drives between customers, and thin ones from and to the depot."""
    from matplotlib.collections import LineCollection

    places = state.instance.coordinates
    inner: list[Array] = []
    inner_colours: list[Array] = []
    outer: list[Array] = []
    outer_colours: list[Array] = []
    for route, colour in zip(routes, colours, strict=False):
        inner.append(places[route])
        inner_colours.append(colour)
        outer.append(places[[0, route[0]]])
        outer_colours.append(colour)
        if not _is_running(state, route):
            outer.append(places[[route[-1], 0]])
            outer_colours.append(colour)
    if routes:
        axes.add_collection(LineCollection(inner, colors=inner_colours, linewidths=2.4, capstyle="round", zorder=2))
        axes.add_collection(LineCollection(outer, colors=outer_colours, linewidths=0.9, alpha=0.55, zorder=1))


def _draw_customers(axes: Axes, state: RoutingMazeState, routes: list[list[int]], colours: Array) -> None:
    """Draw customers in the colour of their route, and the depot."""
    instance = state.instance
    faces = np.tile(_rgb(_WAITING), (instance.n_customers + 1, 1))
    for route, colour in zip(routes, colours, strict=False):
        faces[route] = colour
    demands = instance.demands[1:]
    areas = _SMALLEST + _DEMAND * demands / max(int(demands.max()), 1)
    x, y = instance.coordinates[1:].T
    axes.scatter(x, y, s=areas, c=faces[1:], edgecolors="white", linewidths=1.0, zorder=3)
    depot_x, depot_y = instance.coordinates[0]
    axes.scatter([depot_x], [depot_y], s=150, c=_INK, marker="s", edgecolors="white", linewidths=1.4, zorder=5)


def _rgb(colour: str) -> Array:
    """[3] red, green and blue."""
    from matplotlib.colors import to_rgb

    return np.array(to_rgb(colour))


def _allowed_move(state: RoutingMazeState, action: RoutingMazeAction | None) -> tuple[int, int] | None:
    """Origin and target of an allowed action."""
    if action is None:
        return None
    n_vehicles, n_nodes = state.allowed.shape
    is_inside = 0 <= action.vehicle < n_vehicles and 0 <= action.node < n_nodes
    if not (is_inside and state.allowed[action.vehicle, action.node]):
        return None
    return int(state.position[action.vehicle]), action.node


def _draw_vehicles(axes: Axes, state: RoutingMazeState, move: tuple[int, int] | None) -> None:
    """Draw a ring for each vehicle under way, and the drive of the step."""
    from matplotlib.patches import FancyArrowPatch

    places = state.instance.coordinates
    away = state.position[state.position > 0]
    if len(away):
        x, y = places[away].T
        axes.scatter(x, y, s=260, facecolors="none", edgecolors=_INK, linewidths=1.8, zorder=6)
    if move is not None:
        start, end = places[list(move)].tolist()
        arrow = FancyArrowPatch(tuple(start), tuple(end), arrowstyle="-|>", mutation_scale=14, shrinkA=6, shrinkB=6)
        arrow.set(color=_INK, linewidth=1.8, zorder=7)
        axes.add_patch(arrow)


def _draw_loads(axes: Axes, state: RoutingMazeState, routes: list[list[int]], colours: Array) -> None:
    """Draw the load of each route as a bar, the first one at the top."""
    instance = state.instance
    loads = [int(instance.demands[route].sum()) / instance.capacity for route in routes]
    n_rows = max(len(routes), instance.n_vehicles_bound)
    axes.barh(range(n_rows), [1.0] * n_rows, height=0.7, color="#e9ebef")
    axes.barh(range(len(routes)), loads, height=0.7, color=colours[: len(routes)])
    axes.set(xlim=(0, 1), ylim=(n_rows - 0.4, -0.6))
    axes.set_xticks([0, 1], ["0", f"{instance.capacity}"])
    axes.set_yticks([])
    axes.tick_params(length=0, colors=_FAINT, labelsize=8)
    axes.set_title("load", fontsize=9, color=_FAINT)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _title(state: RoutingMazeState, action: RoutingMazeAction | None, move: tuple[int, int] | None) -> str:
    """Instance, progress, distance, and the move of the step."""
    instance = state.instance
    n_served = instance.n_customers - int(np.count_nonzero(state.unserved))
    title = f"{instance.name}: {n_served} of {instance.n_customers} customers served"
    title += f"   distance {state.length:.4g}"
    if instance.best_known is not None:
        title += f"   best known {instance.best_known:.4g}"
    if move is not None:
        origin, target = (f"customer {node}" if node else "the depot" for node in move)
        title += f"   next: from {origin} to {target}"
    elif action is not None:
        title += f"   node {action.node} chosen, which is not allowed"
    return title

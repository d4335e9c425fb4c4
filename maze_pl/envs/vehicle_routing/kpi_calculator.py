"""Performance indicators of vehicle routing."""

from typing import Any

from maze_pl.envs.vehicle_routing.objects import RoutingMazeState
from maze_pl.events import RunningKpiCalculator, StepEventLog

KPI_NAMES = ("distance", "gap_percent", "bound_gap_percent", "n_routes", "mean_load")


class RoutingKpiCalculator(RunningKpiCalculator):
    """Total distance, its gaps, the number of routes, and their mean load.

        gap_percent = 100 (distance / best known distance - 1)       instances with a solution only
        bound_gap_percent = 100 (distance / lower bound - 1)
        mean_load = sum of demands / (number of routes * capacity)

    An episode that was cut off has no KPIs, since customers remain.
    """

    kpi_names = KPI_NAMES

    def new_totals(self) -> dict[str, Any]:
        """Return nothing: the last state has everything."""
        return {}

    def add_step(self, totals: dict[str, Any], step: StepEventLog) -> None:
        """Do nothing: the last state has everything."""

    def kpis_of(self, totals: dict[str, Any], last_maze_state: Any) -> dict[str, float]:
        """Compute the performance indicators of an episode."""
        state: RoutingMazeState = last_maze_state
        if not state.is_complete:
            return {}
        instance = state.instance
        kpis = {
            "distance": state.length,
            "bound_gap_percent": 100 * (state.length / instance.bound - 1),
            "n_routes": float(state.n_routes),
            "mean_load": float(instance.demands.sum() / (state.n_routes * instance.capacity)),
        }
        if instance.best_known is not None:
            kpis["gap_percent"] = 100 * (state.length / max(instance.best_known, 1e-9) - 1)
        return kpis

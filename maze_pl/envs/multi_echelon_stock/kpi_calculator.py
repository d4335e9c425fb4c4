"""Performance indicators of the chain of stocks."""

from typing import Any

from maze_pl.envs.multi_echelon_stock.events import StockEvents
from maze_pl.events import RunningKpiCalculator, StepEventLog

KPI_NAMES = ("cost_per_period", "fill_rate", "mean_stock")


class StockKpiCalculator(RunningKpiCalculator):
    """Cost per period, fill rate and mean stock.

    cost_per_period = costs of all echelons / periods
    fill_rate = demand that was served at once / demand; 1 if there was none
    mean_stock = units in stock at the ends of periods, in all echelons together / periods
    """

    kpi_names = KPI_NAMES

    def new_totals(self) -> dict[str, Any]:
        """Totals of an episode without periods."""
        return {"cost": 0.0, "periods": 0, "demand": 0, "served": 0, "stock": 0}

    def add_step(self, totals: dict[str, Any], step: StepEventLog) -> None:
        """Add the events of a period."""
        cost = 0.0
        for event in step.query_events(StockEvents.echelon_period):
            values = event.attributes
            cost += values["holding"] + values["shortage"] + values["fixed"]
            totals["stock"] += values["stock"]
        totals["cost"] += cost
        totals["periods"] += 1
        for event in step.query_events(StockEvents.customer_demand):
            totals["demand"] += event.attributes["demand"]
            totals["served"] += event.attributes["served"]

    def kpis_of(self, totals: dict[str, Any], last_maze_state: Any) -> dict[str, float]:
        """Compute the performance indicators of an episode."""
        periods = max(totals["periods"], 1)
        demand = totals["demand"]
        return {
            "cost_per_period": totals["cost"] / periods,
            "fill_rate": totals["served"] / demand if demand else 1.0,
            "mean_stock": totals["stock"] / periods,
        }

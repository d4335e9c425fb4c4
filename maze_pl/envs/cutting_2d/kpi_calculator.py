"""Performance indicators of the cutting problem."""

from typing import Any

from maze_pl.envs.cutting_2d.events import CuttingEvents, InventoryEvents
from maze_pl.events import RunningKpiCalculator, StepEventLog


class Cutting2dKpiCalculator(RunningKpiCalculator):
    """Raw pieces put in stock, including the initial one, per step and per order served.

    `raw_piece_usage_per_step` is also low for an agent that serves few orders. In
    `raw_pieces_per_order_served`, an unserved order counts as one raw piece, because serving it
    would have taken at most one.
    """

    kpi_names = ("raw_piece_usage_per_step", "raw_pieces_per_order_served")

    def new_totals(self) -> dict[str, Any]:
        """Counts of an episode without steps."""
        return {"raw_pieces": 0, "orders": 0, "served": 0}

    def add_step(self, totals: dict[str, Any], step: StepEventLog) -> None:
        """Count the events of a step, which is one order."""
        totals["raw_pieces"] += len(step.query_events(InventoryEvents.piece_replenished))
        totals["orders"] += 1
        totals["served"] += len(step.query_events(CuttingEvents.valid_cut))

    def kpis_of(self, totals: dict[str, Any], last_maze_state: Any) -> dict[str, float]:
        """Compute the performance indicators of an episode."""
        n_raw_pieces, n_orders = totals["raw_pieces"], totals["orders"]
        n_served = totals["served"]
        n_unserved = n_orders - n_served
        return {
            "raw_piece_usage_per_step": n_raw_pieces / n_orders,
            "raw_pieces_per_order_served": (n_raw_pieces + n_unserved) / max(n_served, 1),
        }

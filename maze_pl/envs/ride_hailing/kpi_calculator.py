"""Performance indicators of ride hailing."""

from typing import Any

from maze_pl.envs.ride_hailing.events import RideEvents
from maze_pl.envs.ride_hailing.objects import RideHailingMazeState
from maze_pl.events import RunningKpiCalculator, StepEventLog


class RideHailingKpiCalculator(RunningKpiCalculator):
    """Passengers, their waiting, and the work of the vehicles.

        served_share = accepted requests / (accepted + lost requests)
        mean_waiting_time = minutes from the request to the pick-up, mean of accepted requests
        income_per_vehicle_hour = (fares - cost of all km) / hours of shifts and overtime so far
        empty_share = km without a passenger / all km

    Requests that still wait at the end are neither accepted nor lost. Indicators without a
    denominator are left out.
    """

    kpi_names = ("served_share", "mean_waiting_time", "income_per_vehicle_hour", "empty_share")

    def new_totals(self) -> dict[str, Any]:
        """Totals of an episode without steps."""
        names = ("accepted", "lost", "waiting_time", "fares", "trip_km", "empty_km", "overtime")
        return dict.fromkeys(names, 0.0)

    def add_step(self, totals: dict[str, Any], step: StepEventLog) -> None:
        """Add the events of a step."""
        for record in step.query_events(RideEvents.request_accepted):
            totals["accepted"] += 1
            totals["waiting_time"] += record.attributes["waiting_time"]
            totals["fares"] += record.attributes["fare"]
            totals["trip_km"] += record.attributes["distance"]
        for record in step.query_events(RideEvents.requests_lost):
            totals["lost"] += record.attributes["count"]
        for record in step.query_events(RideEvents.driven_empty):
            totals["empty_km"] += record.attributes["distance"]
        for record in step.query_events(RideEvents.overtime):
            totals["overtime"] += record.attributes["minutes"]

    def kpis_of(self, totals: dict[str, Any], last_maze_state: Any) -> dict[str, float]:
        """Compute the performance indicators of an episode."""
        state: RideHailingMazeState = last_maze_state
        on_duty = (state.shift_end.clip(max=state.now) - state.shift_start).clip(min=0).sum()
        hours = (float(on_duty) + totals["overtime"]) / 60
        km = totals["trip_km"] + totals["empty_km"]
        income = totals["fares"] - state.city.cost_per_km * km
        kpis = {"income_per_vehicle_hour": income / hours} if hours else {}
        if requests := totals["accepted"] + totals["lost"]:
            kpis["served_share"] = totals["accepted"] / requests
        if totals["accepted"]:
            kpis["mean_waiting_time"] = totals["waiting_time"] / totals["accepted"]
        if km:
            kpis["empty_share"] = totals["empty_km"] / km
        return kpis

"""Performance indicators of ride hailing."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.envs.ride_hailing.events import RideEvents
from maze_pl.envs.ride_hailing.objects import Array, RideHailingMazeState
from maze_pl.events import RunningKpiCalculator, StepEventLog

KPI_NAMES = ("served_share", "mean_waiting_time", "income_per_vehicle_hour", "empty_share")
TOTALS = ("accepted", "lost", "waiting_time", "fares", "trip_km", "empty_km", "overtime")
"""Numbers of an episode that KPIs are computed from."""


class RideHailingKpiCalculator(RunningKpiCalculator):
    """Passengers, their waiting, and the work of the vehicles.

        served_share = accepted requests / (accepted + lost requests)
        mean_waiting_time = minutes from the request to the pick-up, mean of accepted requests
        income_per_vehicle_hour = (fares - cost of all km) / hours of shifts and overtime so far
        empty_share = km without a passenger / all km

    Requests that still wait at the end are neither accepted nor lost. Indicators without a
    denominator are left out.
    """

    kpi_names = KPI_NAMES

    def new_totals(self) -> dict[str, Any]:
        """Totals of an episode without steps."""
        return dict.fromkeys(TOTALS, 0.0)

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
        on_duty = minutes_on_duty(state.shift_start, state.shift_end, state.now)
        numbers = {name: np.float64(total) for name, total in totals.items()}
        kpis = fleet_kpis(numbers, on_duty, state.city.cost_per_km)
        return {name: float(value) for name, value in kpis.items() if not np.isnan(value)}


def minutes_on_duty(shift_start: Array, shift_end: Array, now: Any) -> Any:
    """Return the sum of the minutes of shifts until now.

    Args:
        shift_start: [V] minutes at which shifts begin, or [n, V] of n episodes.
        shift_end: Minutes at which they end, in the same form.
        now: Minutes since the start of the day, or [n, 1].
    """
    return (np.minimum(shift_end, now) - shift_start).clip(min=0).sum(axis=-1)


def fleet_kpis(totals: Mapping[str, Any], on_duty: Any, cost_per_km: float) -> dict[str, Any]:
    """Return the KPIs of episodes, NaN without a denominator; see `RideHailingKpiCalculator`.

    Args:
        totals: Each total of `TOTALS`: NumPy's number of one episode, or an array [n] of n episodes.
        on_duty: Result of `minutes_on_duty`.
        cost_per_km: Cost of driving.
    """
    hours = (on_duty + totals["overtime"]) / 60
    km = totals["trip_km"] + totals["empty_km"]
    income = totals["fares"] - cost_per_km * km
    return {
        "served_share": _ratio(totals["accepted"], totals["accepted"] + totals["lost"]),
        "mean_waiting_time": _ratio(totals["waiting_time"], totals["accepted"]),
        "income_per_vehicle_hour": _ratio(income, hours),
        "empty_share": _ratio(totals["empty_km"], km),
    }


def _ratio(numerator: Any, denominator: Any) -> Any:
    """Ratio, NaN where the denominator is 0."""
    return numerator / np.where(denominator == 0, np.nan, denominator)

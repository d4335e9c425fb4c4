"""Performance indicators of the job shop."""

import math
from typing import Any

from maze_pl.envs.job_shop.objects import JobShopMazeState
from maze_pl.events import RunningKpiCalculator, StepEventLog

KPI_NAMES = ("makespan", "gap_percent", "bound_gap_percent", "machine_utilisation")


class JobShopKpiCalculator(RunningKpiCalculator):
    """Makespan, its gap to the best known one, and the utilisation of machines.

        gap_percent = 100 (makespan / best known makespan - 1)            published instances only
        bound_gap_percent = 100 (makespan / start bound - 1)
        machine_utilisation = sum of durations / (number of machines * makespan)

    An episode that was cut off has no KPIs, since its schedule is incomplete.
    """

    kpi_names = KPI_NAMES

    def new_totals(self) -> dict[str, Any]:
        """Return nothing: the last state has everything."""
        return {}

    def add_step(self, totals: dict[str, Any], step: StepEventLog) -> None:
        """Do nothing: the last state has everything."""

    def kpis_of(self, totals: dict[str, Any], last_maze_state: Any) -> dict[str, float]:
        """Compute the performance indicators of an episode."""
        state: JobShopMazeState = last_maze_state
        if not state.is_complete:
            return {}
        instance = state.instance
        makespan = state.makespan
        work = 0
        for job in range(instance.n_jobs):
            for operation in range(int(instance.n_operations[job])):
                machine = int(state.operation_machines[job, operation])
                work += dict(instance.alternatives(job, operation))[machine]
        machine_time = max(instance.n_machines * makespan, 1)
        best_known = math.nan if instance.best_known is None else instance.best_known
        kpis = schedule_kpis(float(makespan), max(instance.start_bound, 1), best_known, work, machine_time)
        return {name: value for name, value in kpis.items() if not math.isnan(value)}


def schedule_kpis(makespan: Any, start_bound: Any, best_known: Any, work: Any, machine_time: Any) -> dict[str, Any]:
    """Return the KPIs of complete schedules; see `JobShopKpiCalculator`.

    Each argument is a number of one episode, or an array [n] of the numbers of n episodes.

    Args:
        makespan: Makespan, floating point.
        start_bound: Lower bound of the makespan before anything is scheduled, at least 1.
        best_known: Best published makespan, NaN if there is none.
        work: Sum of durations.
        machine_time: Number of machines * makespan, at least 1.
    """
    return {
        "makespan": makespan,
        "gap_percent": 100 * (makespan / best_known - 1),
        "bound_gap_percent": 100 * (makespan / start_bound - 1),
        "machine_utilisation": work / machine_time,
    }

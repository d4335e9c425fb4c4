"""Performance indicators of the job shop."""

from typing import Any

from maze_pl.envs.job_shop.objects import JobShopMazeState
from maze_pl.events import RunningKpiCalculator, StepEventLog


class JobShopKpiCalculator(RunningKpiCalculator):
    """Makespan, its gap to the best known one, and the utilisation of machines.

        gap_percent = 100 (makespan / best known makespan - 1)            published instances only
        bound_gap_percent = 100 (makespan / start bound - 1)
        machine_utilisation = sum of durations / (number of machines * makespan)

    An episode that was cut off has no KPIs, since its schedule is incomplete.
    """

    kpi_names = ("makespan", "gap_percent", "bound_gap_percent", "machine_utilisation")

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
        kpis = {
            "makespan": float(makespan),
            "bound_gap_percent": 100 * (makespan / max(instance.start_bound, 1) - 1),
            "machine_utilisation": work / max(instance.n_machines * makespan, 1),
        }
        if instance.best_known is not None:
            kpis["gap_percent"] = 100 * (makespan / instance.best_known - 1)
        return kpis

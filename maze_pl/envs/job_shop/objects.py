"""States and actions of the job shop."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from maze_pl.envs.job_shop.instance import Array, JobShopInstance


@dataclass(frozen=True, slots=True)
class JobShopMazeAction:
    """Action of the simulation: the job whose next operation is scheduled, and the alternative.

    Attributes:
        job: Index of the job.
        alternative: Index of one of the operation's alternatives, which have a machine each.
    """

    job: int
    alternative: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class JobShopMazeState:
    """State of the simulation; arrays are copies of those of `JobShopSimulation`, see there.

    Attributes:
        instance: The instance of the episode.
        next_operation: [N] index of each job's next operation.
        job_ready: [N] completion of the last operation of each job.
        machine_ready: [M] completion of the last operation on each machine.
        remaining_work: [N] unscheduled work of each job.
        remaining_operations: [N] number of unscheduled operations of each job.
        successor_durations: [N] shortest duration of the operation after the next one, or 0.
        successor_machines: [N] first machine of that operation, M if there is none.
        machine_load: [M] expected unscheduled work of each machine.
        option_machines: [N, K] machine of each option.
        option_durations: [N, K] duration of each option.
        exists: [N, K] whether there is such an option.
        starts: [N, K] start of each option.
        completions: [N, K] completion of each option.
        allowed: [N, K] whether the option may be chosen.
        operation_starts: [J, O] start of scheduled operations, -1 for others.
        operation_machines: [J, O] machine of scheduled operations, -1 for others.
        bound: Lower bound of the makespan; the makespan if everything is scheduled.
        n_scheduled: Number of scheduled operations.
        last: Job and operation that were scheduled last; (-1, -1) before.
        total_remaining_work: Unscheduled work of all jobs.
        n_unfinished: Number of jobs with unscheduled operations.
        earliest_start: Earliest start of all options.
        earliest_completion: Earliest completion of all options.
    """

    instance: JobShopInstance
    next_operation: Array
    job_ready: Array
    machine_ready: Array
    remaining_work: Array
    remaining_operations: Array
    successor_durations: Array
    successor_machines: Array
    machine_load: Array
    option_machines: Array
    option_durations: Array
    exists: Array
    starts: Array
    completions: Array
    allowed: Array
    operation_starts: Array
    operation_machines: Array
    bound: int
    n_scheduled: int
    last: tuple[int, int]
    total_remaining_work: int
    n_unfinished: int
    earliest_start: int
    earliest_completion: int

    @property
    def is_complete(self) -> bool:
        """True if all operations are scheduled."""
        return not self.exists.any()

    @property
    def makespan(self) -> int:
        """Completion of the operation that ends last, of those scheduled so far."""
        return int(self.machine_ready.max())

    def of_job(self, job: int) -> JobShopMazeState:
        """Return the state after the first of two actors has chosen a job.

        Only options of the job may be chosen. If none of them may be, or there is no such job, the
        state stays as it is: whatever the second actor chooses is replaced.

        Args:
            job: Index of the job.
        """
        is_chosen = np.arange(len(self.allowed))[:, np.newaxis] == job
        allowed = self.allowed & is_chosen
        return replace(self, allowed=allowed) if allowed.any() else self

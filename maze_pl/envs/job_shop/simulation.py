"""Semi-active schedules that are built one operation after the other, on preallocated arrays."""

from __future__ import annotations

from typing import Literal

import numpy as np

from maze_pl.envs.job_shop.instance import JobShopInstance

Choices = Literal["active", "non_delay", "all"]
"""Options that may be chosen; see `JobShopSimulation`."""

NEVER = 1 << 40
"""Start and completion of options that do not exist."""


class JobShopSimulation:
    """State of a schedule, and the options for extending it.

    An option is an alternative of the next operation of a job. It starts when both the job and the
    machine are ready, after the last operation that was put on the machine:

        start = max(job_ready, machine_ready),   completion = start + duration

    With the earliest start s* and the earliest completion c* of all options, these are allowed:

        all:        every option, as in Zhang et al. 2020 (arXiv:2010.12367)
        active:     start < c*, or completion = c* (or start = s*; both matter for durations of 0)
        non_delay:  start = s*

    `active` includes the conflict set of Giffler and Thompson 1960 (Operations Research 8(4), pp.
    487-503), so that an optimal schedule can be built. Nothing can be inserted before an operation
    that it allows, since everything else completes at c* or later; operations are therefore never
    inserted into gaps. `non_delay` keeps no machine idle that could work, and may exclude all
    optimal schedules. `all` reaches every semi-active schedule.

    Arrays have N = `max_jobs` rows and K = `max_alternatives` columns; jobs and alternatives that
    do not exist have `exists` False. Times are whole numbers.

    Args:
        max_jobs: N.
        max_alternatives: K.
        choices: Options that are allowed.

    Attributes:
        next_operation: [N] index of the next operation, the number of operations if there is none.
        job_ready: [N] completion of the last operation of each job.
        machine_ready: [M] completion of the last operation on each machine.
        remaining_work: [N] sum of the shortest durations of unscheduled operations.
        remaining_operations: [N] number of unscheduled operations.
        successor_durations: [N] shortest duration of the operation after the next one; 0 if there is none.
        successor_machines: [N] first machine of that operation; M if there is none.
        machine_load: [M] expected unscheduled work of each machine: durations divided by the number
            of alternatives of their operation.
        forced_load: [M] unscheduled work that only this machine can do.
        option_machines: [N, K] machine of each option; padding repeats the first one.
        option_durations: [N, K] duration; `NEVER` in padding.
        exists: [N, K] whether there is such an option.
        starts: [N, K] start of each option.
        completions: [N, K] completion of each option; at least `NEVER` in padding.
        allowed: [N, K] whether the option may be chosen.
        operation_starts: [J, O] start of scheduled operations, -1 for others.
        operation_machines: [J, O] machine of scheduled operations, -1 for others.
        bound: Lower bound of the makespan of any completion of the schedule; the makespan in the end.
        n_scheduled: Number of scheduled operations.
        last: Job and operation that were scheduled last; (-1, -1) before.
        total_remaining_work: Sum of `remaining_work`.
        n_unfinished: Number of jobs with unscheduled operations.
        earliest_start: s*; `NEVER` if everything is scheduled.
        earliest_completion: c*; `NEVER` or more if everything is scheduled.
    """

    def __init__(self, max_jobs: int, max_alternatives: int, choices: Choices = "active") -> None:
        n, k = max_jobs, max_alternatives
        self.max_jobs = max_jobs
        self.max_alternatives = max_alternatives
        self.choices = choices
        self.next_operation = np.zeros(n, np.int64)
        self.job_ready = np.zeros(n, np.int64)
        self.remaining_work = np.zeros(n, np.int64)
        self.remaining_operations = np.zeros(n, np.int64)
        self.successor_durations = np.zeros(n, np.int64)
        self.successor_machines = np.zeros(n, np.int64)
        self.option_machines = np.zeros((n, k), np.int64)
        self.option_durations = np.zeros((n, k), np.int64)
        self.exists = np.zeros((n, k), np.bool_)
        self.starts = np.zeros((n, k), np.int64)
        self.completions = np.zeros((n, k), np.int64)
        self.allowed = np.zeros((n, k), np.bool_)
        self._penalty = np.zeros((n, k), np.int64)  # NEVER where an option does not exist
        self._scratch = np.zeros((n, k), np.int64)
        self._column = np.zeros(n, np.int64)

    def reset(self, instance: JobShopInstance) -> None:
        """Start an empty schedule.

        Args:
            instance: The instance, with at most `max_jobs` jobs and `max_alternatives` alternatives.

        Raises:
            ValueError: The instance is larger.
        """
        n, k = instance.n_jobs, instance.max_alternatives
        if n > self.max_jobs or k > self.max_alternatives:
            size = f"{n} jobs and at most {k} alternatives"
            places = f"max_jobs={self.max_jobs} and max_alternatives={self.max_alternatives}"
            raise ValueError(f"{instance.name} has {size}, more than {places}; increase them")
        self.instance = instance
        self.n_scheduled = 0
        self.last = (-1, -1)
        self.operation_starts = np.full((n, instance.max_operations), -1, np.int64)
        self.operation_machines = np.full((n, instance.max_operations), -1, np.int64)
        self.machine_ready = np.zeros(instance.n_machines, np.int64)
        self.forced_load = instance.forced_load.copy()
        self.machine_load = instance.expected_load.copy()
        for array in (self.next_operation, self.job_ready, self.remaining_work, self.remaining_operations):
            array.fill(0)
        self.remaining_work[:n] = instance.shortest.sum(axis=1)
        self.total_remaining_work = int(instance.shortest.sum())
        self.n_unfinished = n
        self.successor_durations.fill(0)
        self.successor_machines.fill(instance.n_machines)
        self.remaining_operations[:n] = instance.n_operations
        self.option_machines.fill(0)
        self.option_durations.fill(NEVER)
        self._penalty.fill(NEVER)
        self.exists.fill(False)
        for job in range(n):
            self._show_next(job)
        self._update()

    def schedule(self, job: int, alternative: int) -> tuple[int, int, int]:
        """Schedule the next operation of a job.

        Args:
            job: The job.
            alternative: Index of the alternative, which must exist; `allowed` is not checked.

        Returns:
            Machine, start and duration.
        """
        instance = self.instance
        operation = int(self.next_operation[job])
        machine = int(self.option_machines[job, alternative])
        start = int(self.starts[job, alternative])
        duration = int(self.option_durations[job, alternative])
        completion = start + duration
        self.operation_starts[job, operation] = start
        self.operation_machines[job, operation] = machine
        self.job_ready[job] = completion
        self.machine_ready[machine] = completion
        shortest = int(instance.shortest[job, operation])
        self.remaining_work[job] -= shortest
        self.total_remaining_work -= shortest
        self.remaining_operations[job] -= 1
        n_alternatives = int(instance.n_alternatives[job, operation])
        if n_alternatives == 1:
            self.forced_load[machine] -= duration
            self.machine_load[machine] -= duration
        else:
            for other, length in instance.alternatives(job, operation):
                self.machine_load[other] -= length / n_alternatives
        self.next_operation[job] = operation + 1
        self.n_scheduled += 1
        self.last = (job, operation)
        self._show_next(job)
        self._update()
        return machine, start, duration

    @property
    def is_complete(self) -> bool:
        """True if all operations are scheduled."""
        return self.n_scheduled == self.instance.total_operations

    @property
    def makespan(self) -> int:
        """Completion of the operation that ends last, of those scheduled so far."""
        return int(self.machine_ready.max())

    def _show_next(self, job: int) -> None:
        """Set the options of a job to the alternatives of its next operation."""
        instance = self.instance
        operation = int(self.next_operation[job])
        self.successor_durations[job] = instance.successor_durations[job, operation]
        self.successor_machines[job] = instance.successor_machines[job, operation]
        if operation == int(instance.n_operations[job]):
            self.n_unfinished -= 1
            self.option_machines[job] = 0
            self.option_durations[job] = NEVER
            self._penalty[job] = NEVER
            self.exists[job] = False
            return
        n = int(instance.n_alternatives[job, operation])
        machines = instance.machines[job, operation]
        self.option_machines[job, : len(machines)] = machines
        if self.max_alternatives == 1:
            self.option_durations[job, 0] = instance.durations[job, operation, 0]
            self._penalty[job, 0] = 0
            self.exists[job, 0] = True
            return
        self.option_machines[job, len(machines) :] = machines[0]
        self.option_durations[job, :n] = instance.durations[job, operation, :n]
        self.option_durations[job, n:] = NEVER
        self._penalty[job, :n] = 0
        self._penalty[job, n:] = NEVER
        self.exists[job, :n] = True
        self.exists[job, n:] = False

    def _update(self) -> None:
        """Compute starts, completions, the allowed options and the bound.

        The bound is the maximum of, for each job, its earliest start plus its remaining work, and,
        for each machine, the time when it is ready plus the work that only it can do. Options
        that do not exist start at a time that a machine is ready, and cannot exceed the others.
        """
        self.machine_ready.take(self.option_machines, out=self.starts, mode="clip")
        np.maximum(self.starts, self.job_ready[:, np.newaxis], out=self.starts)
        np.add(self.starts, self.option_durations, out=self.completions)
        if self.max_alternatives == 1:  # a reduction along one element takes as long as everything else
            np.add(self.starts[:, 0], self.remaining_work, out=self._column)
        else:
            np.minimum.reduce(self.starts, axis=1, out=self._column)
            self._column += self.remaining_work
        machine_bounds = self.machine_ready + self.forced_load
        self.bound = int(max(self._column.max(), machine_bounds.max()))
        np.add(self.starts, self._penalty, out=self._scratch)
        self.earliest_start = int(self._scratch.min())
        self.earliest_completion = int(self.completions.min())
        if self.choices == "all":
            self.allowed[...] = self.exists
            return
        limit = self.earliest_start
        if self.choices == "active":
            limit = max(limit, self.earliest_completion - 1)
        np.less_equal(self._scratch, min(limit, NEVER - 1), out=self.allowed)
        if self.choices == "active" and self.instance.has_instant_work:
            self.allowed |= self.completions <= min(self.earliest_completion, NEVER - 1)

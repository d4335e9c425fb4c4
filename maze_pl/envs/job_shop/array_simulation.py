"""Semi-active schedules of many episodes that are built together, in arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maze_pl.envs.job_shop.instance import Array, JobShopInstance
from maze_pl.envs.job_shop.instance_arrays import InstanceArrays, InstanceSizes
from maze_pl.envs.job_shop.simulation import NEVER, Choices


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleResult:
    """Results of scheduling one operation in each of n episodes.

    Attributes:
        is_valid: [n] whether the choice was allowed.
        job: [n] the job.
        operation: [n] its operation.
        machine: [n] the machine.
        start: [n] when the operation starts.
        duration: [n] how long it takes.
        idle_time: [n] time that the machine waits for it.
        bound_increase: [n] increase of the lower bound of the makespan.
        is_complete: [n] whether everything is scheduled.
    """

    is_valid: Array
    job: Array
    operation: Array
    machine: Array
    start: Array
    duration: Array
    idle_time: Array
    bound_increase: Array
    is_complete: Array


class ArrayJobShopSimulation:
    """N schedules, each equal to that of a `JobShopSimulation`, whose rules are described there.

    Machines that do not exist in an episode, from its number of machines to M - 1, have no work.

    Args:
        n_envs: N.
        sizes: Largest sizes of instances: jobs J, operations O, alternatives K and machines M.
        choices: Options that are allowed.

    Attributes:
        instances: The instances.
        next_operation: [N, J] index of the next operation of each job.
        job_ready: [N, J] completion of the last operation of each job.
        machine_ready: [N, M] completion of the last operation on each machine.
        remaining_work: [N, J] sum of the shortest durations of unscheduled operations.
        remaining_operations: [N, J] number of unscheduled operations.
        successor_durations: [N, J] shortest duration of the operation after the next one, or 0.
        successor_machines: [N, J] first machine of that operation; M if there is none.
        machine_load: [N, M] expected unscheduled work of each machine.
        forced_load: [N, M] unscheduled work that only this machine can do.
        option_machines: [N, J, K] machine of each option; padding repeats the first one.
        option_durations: [N, J, K] duration; `NEVER` in padding.
        exists: [N, J, K] whether there is such an option.
        starts: [N, J, K] start of each option.
        completions: [N, J, K] completion of each option.
        allowed: [N, J, K] whether the option may be chosen.
        operation_starts: [N, J, O] start of scheduled operations, -1 for others.
        operation_machines: [N, J, O] machine of scheduled operations, -1 for others.
        bound: [N] lower bound of the makespan.
        n_scheduled: [N] number of scheduled operations.
        scheduled_work: [N] sum of the durations of scheduled operations.
        last: [N, 2] job and operation that were scheduled last; -1 before.
        total_remaining_work: [N] sum of `remaining_work`.
        n_unfinished: [N] number of jobs with unscheduled operations.
        earliest_start: [N] earliest start of all options.
        earliest_completion: [N] earliest completion of all options.
    """

    def __init__(self, n_envs: int, sizes: InstanceSizes, choices: Choices = "active") -> None:
        self.n_envs = n_envs
        self.sizes = sizes
        self.choices = choices
        self.instances = InstanceArrays(n_envs, sizes)
        of_jobs = (n_envs, sizes.jobs)
        of_options = (*of_jobs, sizes.alternatives)
        of_operations = (*of_jobs, sizes.operations)
        self.next_operation = np.zeros(of_jobs, np.int64)
        self.job_ready = np.zeros(of_jobs, np.int64)
        self.machine_ready = np.zeros((n_envs, sizes.machines), np.int64)
        self.remaining_work = np.zeros(of_jobs, np.int64)
        self.remaining_operations = np.zeros(of_jobs, np.int64)
        self.successor_durations = np.zeros(of_jobs, np.int64)
        self.successor_machines = np.zeros(of_jobs, np.int64)
        self.machine_load = np.zeros((n_envs, sizes.machines))
        self.forced_load = np.zeros((n_envs, sizes.machines), np.int64)
        self.option_machines = np.zeros(of_options, np.int64)
        self.option_durations = np.full(of_options, NEVER)
        self.exists = np.zeros(of_options, np.bool_)
        self.starts = np.zeros(of_options, np.int64)
        self.completions = np.zeros(of_options, np.int64)
        self.allowed = np.zeros(of_options, np.bool_)
        self.operation_starts = np.full(of_operations, -1, np.int64)
        self.operation_machines = np.full(of_operations, -1, np.int32)
        self.bound = np.zeros(n_envs, np.int64)
        self.n_scheduled = np.zeros(n_envs, np.int64)
        self.scheduled_work = np.zeros(n_envs, np.int64)
        self.last = np.full((n_envs, 2), -1, np.int64)
        self.total_remaining_work = np.zeros(n_envs, np.int64)
        self.n_unfinished = np.zeros(n_envs, np.int64)
        self.earliest_start = np.full(n_envs, NEVER)
        self.earliest_completion = np.full(n_envs, NEVER)
        self._alternatives = np.arange(sizes.alternatives)
        self._n_options = sizes.jobs * sizes.alternatives

    def reset(self, which: Array, instances: Sequence[JobShopInstance]) -> None:
        """Start empty schedules.

        Args:
            which: [n] numbers of the episodes.
            instances: Their instances.

        Raises:
            ValueError: An instance is larger than the arrays.
        """
        for env, instance in zip(which.tolist(), instances, strict=True):
            self.instances.put(env, instance)
        started = self.instances
        for array in (self.next_operation, self.job_ready, self.machine_ready, self.n_scheduled, self.scheduled_work):
            array[which] = 0
        self.operation_starts[which] = -1
        self.operation_machines[which] = -1
        self.last[which] = -1
        self.remaining_work[which] = started.shortest[which].sum(axis=2, dtype=np.int64)
        self.total_remaining_work[which] = self.remaining_work[which].sum(axis=1)
        self.remaining_operations[which] = started.n_operations[which]
        self.n_unfinished[which] = started.n_jobs[which]
        self.forced_load[which] = started.forced_load[which]
        self.machine_load[which] = started.expected_load[which]
        n_jobs = self.sizes.jobs
        self._show_next(which.repeat(n_jobs), np.tile(np.arange(n_jobs), len(which)))
        self._update(which)

    def schedule(self, which: Array, job: Array, alternative: Array) -> ScheduleResult:
        """Schedule the next operation of a job in some episodes.

        An option that is not allowed is replaced by the allowed one that completes first, the first
        one in a tie.

        Args:
            which: [n] numbers of the episodes.
            job: [n] the jobs.
            alternative: [n] the alternatives.

        Raises:
            ValueError: A schedule is complete; start another episode.
        """
        if not self.n_unfinished[which].all():
            complete = which[self.n_unfinished[which] == 0].tolist()
            raise ValueError(f"the schedules of environments {complete} are complete; call reset first")
        job, alternative, is_valid = self._replaced(which, job, alternative)
        operation = self.next_operation[which, job]
        machine = self.option_machines[which, job, alternative]
        start = self.starts[which, job, alternative]
        duration = self.option_durations[which, job, alternative]
        idle_time = start - self.machine_ready[which, machine]
        self.operation_starts[which, job, operation] = start
        self.operation_machines[which, job, operation] = machine
        self.job_ready[which, job] = start + duration
        self.machine_ready[which, machine] = start + duration
        self._remove_work(which, job, operation)
        self.next_operation[which, job] = operation + 1
        self.n_unfinished[which] -= operation + 1 == self.instances.n_operations[which, job]
        self.n_scheduled[which] += 1
        self.scheduled_work[which] += duration
        self.last[which, 0] = job
        self.last[which, 1] = operation
        bound = self.bound[which]
        self._show_next(which, job)
        self._update(which)
        bound_increase = self.bound[which] - bound
        is_complete = self.n_unfinished[which] == 0
        return ScheduleResult(
            is_valid=is_valid,
            job=job,
            operation=operation,
            machine=machine,
            start=start,
            duration=duration,
            idle_time=idle_time,
            bound_increase=bound_increase,
            is_complete=is_complete,
        )

    def rows_of(self, which: Array) -> Any:
        """Return the index of episodes, a slice if they are all, so that arrays are not copied."""
        return slice(None) if len(which) == self.n_envs else which

    def _replaced(self, which: Array, job: Array, alternative: Array) -> tuple[Array, Array, Array]:
        """Return the job and the alternative of each choice, and whether they were the chosen ones."""
        is_inside = (job >= 0) & (job < self.sizes.jobs) & (alternative >= 0) & (alternative < self.sizes.alternatives)
        job = np.where(is_inside, job, 0)
        alternative = np.where(is_inside, alternative, 0)
        is_valid = is_inside & self.allowed[which, job, alternative]
        places = np.flatnonzero(~is_valid)
        if len(places):
            envs = which[places]
            completions = np.where(self.allowed[envs], self.completions[envs], np.iinfo(np.int64).max)
            first = completions.reshape(len(envs), -1).argmin(axis=1)
            job[places], alternative[places] = np.divmod(first, self.sizes.alternatives)
        return job, alternative, is_valid

    def _remove_work(self, which: Array, job: Array, operation: Array) -> None:
        """Remove operations from the work that is left; the alternatives of one have different machines."""
        instances = self.instances
        shortest = instances.shortest[which, job, operation]
        self.remaining_work[which, job] -= shortest
        self.total_remaining_work[which] -= shortest
        self.remaining_operations[which, job] -= 1
        n_alternatives = instances.n_alternatives[which, job, operation]
        machines = instances.machines[which, job, operation]
        durations = instances.durations[which, job, operation]
        self.forced_load[which, machines[:, 0]] -= np.where(n_alternatives == 1, durations[:, 0], 0)
        shares = durations / n_alternatives[:, np.newaxis]  # 0 in padding
        for alternative in range(self.sizes.alternatives):
            self.machine_load[which, machines[:, alternative]] -= shares[:, alternative]

    def _show_next(self, which: Array, job: Array) -> None:
        """Set the options of jobs [m] of episodes [m] to the alternatives of their next operations."""
        instances = self.instances
        operation = self.next_operation[which, job]
        exists = self._alternatives < instances.n_alternatives[which, job, operation][:, np.newaxis]
        self.exists[which, job] = exists
        self.option_machines[which, job] = instances.machines[which, job, operation]
        durations = instances.durations[which, job, operation].astype(np.int64)  # `NEVER` has more than 32 bits
        self.option_durations[which, job] = np.where(exists, durations, NEVER)
        self.successor_durations[which, job] = instances.shortest[which, job, operation + 1]
        is_last = operation + 1 >= instances.n_operations[which, job]
        successors = instances.machines[which, job, operation + 1, 0]
        self.successor_machines[which, job] = np.where(is_last, self.sizes.machines, successors)

    def _update(self, which: Array) -> None:
        """Compute starts, completions, the allowed options and the bound of some episodes."""
        rows = self.rows_of(which)
        ready = self.machine_ready[rows]
        first = np.arange(len(which)) * self.sizes.machines
        starts = ready.ravel().take(self.option_machines[rows] + first[:, np.newaxis, np.newaxis])
        np.maximum(starts, self.job_ready[rows][:, :, np.newaxis], out=starts)
        completions = starts + self.option_durations[rows]
        exists = self.exists[rows]
        existing = starts + np.where(exists, 0, NEVER)
        # a reduction along one element takes as long as everything else
        ends = starts[:, :, 0] if self.sizes.alternatives == 1 else starts.min(axis=2)
        ends = ends + self.remaining_work[rows]
        machine_bounds = ready + self.forced_load[rows]
        self.starts[rows] = starts
        self.completions[rows] = completions
        self.bound[rows] = np.maximum(ends.max(axis=1), machine_bounds.max(axis=1))
        earliest_start = existing.reshape(len(which), self._n_options).min(axis=1)
        earliest_completion = completions.reshape(len(which), self._n_options).min(axis=1)
        self.earliest_start[rows] = earliest_start
        self.earliest_completion[rows] = earliest_completion
        if self.choices == "all":
            self.allowed[rows] = exists
            return
        limit = earliest_start
        if self.choices == "active":
            limit = np.maximum(limit, earliest_completion - 1)
        limit = np.minimum(limit, NEVER - 1)
        allowed = existing <= limit[:, np.newaxis, np.newaxis]
        if self.choices == "active":  # what takes no time may start at the earliest completion
            limit = np.minimum(earliest_completion, NEVER - 1)
            allowed |= completions <= limit[:, np.newaxis, np.newaxis]
        self.allowed[rows] = allowed

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield the arrays of the state [N, ...], by name."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and name != "_alternatives":
                yield name, value
        for name, value in self.instances.arrays():
            yield f"instances_{name}", value

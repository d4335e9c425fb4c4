"""Complete schedules, their verification, and their replay by the simulation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from maze_pl.envs.job_shop.instance import Array, JobShopInstance
from maze_pl.envs.job_shop.simulation import JobShopSimulation


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A complete schedule.

    Attributes:
        starts: [J, O] start of each operation; anything where a job has fewer operations.
        machines: [J, O] machine of each operation.
        makespan: Completion of the operation that ends last.
        lower_bound: Proved lower bound of the makespan of any schedule.
        is_optimal: Whether the makespan is proved to be the smallest one.
    """

    starts: Array
    machines: Array
    makespan: int
    lower_bound: int = 0
    is_optimal: bool = False


def check_schedule(instance: JobShopInstance, schedule: Schedule) -> None:
    """Verify that a schedule is one of an instance.

    Args:
        instance: The instance.
        schedule: The schedule.

    Raises:
        ValueError: An operation runs on a machine that is not one of its alternatives, or before
            its predecessor has ended, or two operations overlap on a machine, or the makespan is wrong.
    """
    on_machine: dict[int, list[tuple[int, int, int, int]]] = {}
    makespan = 0
    for job in range(instance.n_jobs):
        ready = 0
        for operation in range(int(instance.n_operations[job])):
            where = f"{instance.name}: operation {operation} of job {job}"
            start = int(schedule.starts[job, operation])
            machine = int(schedule.machines[job, operation])
            durations = dict(instance.alternatives(job, operation))
            if machine not in durations:
                raise ValueError(f"{where} is on machine {machine}; its machines are {sorted(durations)}")
            if start < ready:
                raise ValueError(f"{where} starts at {start}, before {ready}, when the job is ready for it")
            ready = start + durations[machine]
            on_machine.setdefault(machine, []).append((start, ready, job, operation))
            makespan = max(makespan, ready)
    for machine, intervals in on_machine.items():
        intervals.sort()
        for before, after in pairwise(intervals):
            if after[0] < before[1]:
                pair = f"operations {before[2:]} and {after[2:]} (job, operation)"
                raise ValueError(f"{instance.name}: {pair} overlap on machine {machine} at {after[0]}")
    if makespan != schedule.makespan:
        raise ValueError(f"{instance.name}: the makespan is {makespan}, not {schedule.makespan} as stated")


def order_of(instance: JobShopInstance, schedule: Schedule) -> Array:
    """Return the place of each operation in an order in which the schedule can be built.

    Operations are ordered by their starts, then by their ends: one that takes no time precedes
    those that start at the same time on its machine. Further ties go to the lowest job, then in the
    order of the job.

    Args:
        instance: The instance.
        schedule: A schedule that `check_schedule` accepts.

    Returns:
        [J, O] places from 0; meaningless where a job has fewer operations.
    """
    exists = np.arange(instance.max_alternatives) < instance.n_alternatives[..., np.newaxis]
    is_used = exists & (instance.machines == schedule.machines[..., np.newaxis])
    ends = schedule.starts + np.where(is_used, instance.durations, 0).max(axis=2)
    order = np.lexsort((ends.ravel(), schedule.starts.ravel()))  # stable
    places = np.empty(ends.size, np.int64)
    places[order] = np.arange(ends.size)
    return places.reshape(ends.shape)


def replay_schedule(instance: JobShopInstance, schedule: Schedule) -> int:
    """Schedule all operations with the simulation, in the order of `order_of`.

    Args:
        instance: The instance.
        schedule: A schedule that `check_schedule` accepts.

    Returns:
        Makespan of the simulation, which is at most that of the schedule, since every operation
        starts as early as the order allows.
    """
    simulation = JobShopSimulation(instance.n_jobs, instance.max_alternatives, "all")
    simulation.reset(instance)
    exists = np.arange(instance.max_operations) < instance.n_operations[:, np.newaxis]
    jobs, operations = np.nonzero(exists)
    for place in np.argsort(order_of(instance, schedule)[jobs, operations]):
        job = int(jobs[place])
        operation = int(operations[place])
        machines = [machine for machine, _ in instance.alternatives(job, operation)]
        simulation.schedule(job, machines.index(int(schedule.machines[job, operation])))
    return simulation.makespan

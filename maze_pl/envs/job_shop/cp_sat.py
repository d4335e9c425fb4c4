"""Schedules by the constraint solver CP-SAT of OR-tools."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from maze_pl.envs.job_shop.instance import JobShopInstance
from maze_pl.envs.job_shop.schedule import Schedule, check_schedule


def solve_with_cp_sat(
    instance: JobShopInstance, time_limit: float = 60.0, n_workers: int = 1, seed: int = 0
) -> Schedule:
    """Minimise the makespan with CP-SAT; needs the extra `problems`.

    The model has an interval for each operation, an optional one for each alternative, precedences
    within jobs and no overlap on machines. The schedule is verified before it is returned. With one
    worker, and a limit that is not reached, the same seed gives the same schedule.

    Args:
        instance: The instance.
        time_limit: Seconds.
        n_workers: Number of threads of the solver.
        seed: Seed of the solver.

    Returns:
        The best schedule that was found, with the proved lower bound.

    Raises:
        ImportError: OR-tools is not installed.
        TimeoutError: No schedule was found within the time limit.
        ValueError: The time limit or the number of threads is not positive.
    """
    if importlib.util.find_spec("ortools") is None:
        raise ImportError("CP-SAT needs OR-tools; install it with pip install 'maze-pl[problems]'")
    if not time_limit > 0 or n_workers < 1:
        raise ValueError(f"{time_limit=} (seconds) and {n_workers=} must be above 0")
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    operations = _add_operations(model, instance)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = float(time_limit)
    solver.parameters.num_workers = int(n_workers)
    solver.parameters.random_seed = int(seed)
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise TimeoutError(f"CP-SAT found no schedule of {instance.name} in {time_limit} s; allow more time")
    starts = np.zeros(instance.shortest.shape, np.int64)
    machines = instance.machines[:, :, 0].copy()
    for (job, operation), (start, presences) in operations.items():
        starts[job, operation] = solver.value(start)
        for machine, is_present in presences.items():
            if solver.value(is_present):
                machines[job, operation] = machine
    makespan = round(solver.objective_value)
    bound = int(np.ceil(solver.best_objective_bound - 1e-6))
    schedule = Schedule(starts, machines, makespan, bound, status == cp_model.OPTIMAL)
    check_schedule(instance, schedule)
    return schedule


def _add_operations(model: Any, instance: JobShopInstance) -> dict[tuple[int, int], tuple[Any, dict[int, Any]]]:
    """Add all variables and constraints to a model.

    Returns:
        (job, operation) -> variable of the start, and machine -> literal of its alternative.
    """
    exists = np.arange(instance.max_alternatives) < instance.n_alternatives[..., np.newaxis]
    horizon = int(np.where(exists, instance.durations, 0).max(axis=2).sum())
    makespan = model.new_int_var(instance.start_bound, horizon, "makespan")
    on_machine: list[list[Any]] = [[] for _ in range(instance.n_machines)]
    operations: dict[tuple[int, int], tuple[Any, dict[int, Any]]] = {}
    for job in range(instance.n_jobs):
        ready: Any = 0
        for operation in range(int(instance.n_operations[job])):
            name = f"{job}/{operation}"
            start = model.new_int_var(0, horizon, f"start {name}")
            end = model.new_int_var(0, horizon, f"end {name}")
            presences = {}
            for machine, duration in instance.alternatives(job, operation):
                is_present = model.new_bool_var(f"on {name}/{machine}")
                interval = model.new_optional_interval_var(start, duration, end, is_present, f"{name}/{machine}")
                on_machine[machine].append(interval)
                presences[machine] = is_present
            model.add_exactly_one(presences.values())
            model.add(start >= ready)
            operations[job, operation] = start, presences
            ready = end
        model.add(makespan >= ready)
    for intervals in on_machine:
        model.add_no_overlap(intervals)
    model.minimize(makespan)
    return operations

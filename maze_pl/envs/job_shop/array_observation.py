"""Observations and states of job shops in arrays."""

from __future__ import annotations

import numpy as np

from maze_pl.envs.job_shop.array_simulation import ArrayJobShopSimulation
from maze_pl.envs.job_shop.instance import Array, JobShopInstance
from maze_pl.envs.job_shop.objects import JobShopMazeState
from maze_pl.envs.job_shop.option_features import (
    offsets_and_scales,
    option_numbers,
    scaled_features,
    summary_numbers,
)


def schedule_observation(simulation: ArrayJobShopSimulation, which: Array) -> dict[str, Array]:
    """Return the observations of some episodes; see `ObservationConversion`.

    Args:
        simulation: The simulation of N episodes.
        which: [n] numbers of the episodes.

    Returns:
        `options` [n, J * K, 15], `option_mask` [n, J * K], `exists` [n, J * K] and `summary` [n, 7].
    """
    n = len(which)
    rows = simulation.rows_of(which)
    exists = simulation.exists[rows].reshape(n, -1).astype(np.float32)
    return {
        "options": _features(simulation, which, exists),
        "option_mask": simulation.allowed[rows].reshape(n, -1).astype(np.float32),
        "exists": exists,
        "summary": _summary(simulation, which),
    }


def _features(simulation: ArrayJobShopSimulation, which: Array, exists: Array) -> Array:
    """Features of all options [n, J * K, 15], zeros where there is none."""
    n = len(which)
    rows = simulation.rows_of(which)
    n_machines = simulation.sizes.machines
    by_machine = np.empty((2, n, n_machines + 1))  # ready and load; nothing for the machine M
    by_machine[0, :, :n_machines] = simulation.machine_ready[rows]
    by_machine[1, :, :n_machines] = simulation.machine_load[rows]
    by_machine[0, :, n_machines] = simulation.earliest_start[rows]
    by_machine[1, :, n_machines] = 0.0
    flat = by_machine.reshape(2, -1)
    first = (np.arange(n) * (n_machines + 1))[:, np.newaxis]
    k = simulation.sizes.alternatives

    def spread(values: Array) -> Array:
        return values if k == 1 else values.repeat(k, axis=1)

    numbers = option_numbers(
        starts=simulation.starts[rows].reshape(n, -1),
        completions=simulation.completions[rows].reshape(n, -1),
        work=spread(simulation.remaining_work[rows]),
        operations=spread(simulation.remaining_operations[rows]),
        job_ready=spread(simulation.job_ready[rows]),
        successor_durations=spread(simulation.successor_durations[rows]),
        of_machine=flat.take(simulation.option_machines[rows].reshape(n, -1) + first, axis=1),
        of_successor=flat.take(spread(simulation.successor_machines[rows] + first), axis=1),
    )
    instances = simulation.instances
    offsets_scales = offsets_and_scales(
        mean_duration=instances.mean_duration[rows],
        start_bound=np.maximum(instances.start_bound[rows], 1),
        bound=simulation.bound[rows],
        earliest_start=simulation.earliest_start[rows],
        earliest_completion=simulation.earliest_completion[rows],
        total_work=np.maximum(simulation.total_remaining_work[rows], 1),
        n_operations=np.maximum(instances.total_operations[rows] - simulation.n_scheduled[rows], 1),
        n_unfinished=simulation.n_unfinished[rows],
        n_machines=instances.n_machines[rows],
    )
    table = np.empty((2, len(numbers), n))
    for place, values in enumerate(offsets_scales):
        for feature, value in enumerate(values):
            table[place, feature] = value
    return scaled_features(numbers, table[0, ..., np.newaxis], table[1, ..., np.newaxis], exists)


def _summary(simulation: ArrayJobShopSimulation, which: Array) -> Array:
    """Numbers of the whole state [n, 7]."""
    rows = simulation.rows_of(which)
    instances = simulation.instances
    bound = simulation.bound[rows]
    numbers = summary_numbers(
        start_bound=np.maximum(instances.start_bound[rows], 1),
        bound=bound,
        earliest_start=np.minimum(simulation.earliest_start[rows], bound),
        n_scheduled=simulation.n_scheduled[rows],
        n_operations=instances.total_operations[rows],
        n_allowed=np.count_nonzero(simulation.allowed[rows], axis=(1, 2)),
        n_unfinished=simulation.n_unfinished[rows],
        n_jobs=instances.n_jobs[rows],
        log_jobs=instances.log_jobs[rows],
        log_machines=instances.log_machines[rows],
    )
    return np.stack(numbers, axis=1).astype(np.float32)


def state_of(simulation: ArrayJobShopSimulation, env: int, instance: JobShopInstance) -> JobShopMazeState:
    """Return a copy of the state of one episode.

    Args:
        simulation: The simulation.
        env: Number of the episode.
        instance: Its instance.
    """
    n_machines = instance.n_machines
    operations = (env, slice(instance.n_jobs), slice(instance.max_operations))
    successors = simulation.successor_machines[env]
    job, operation = simulation.last[env].tolist()
    return JobShopMazeState(
        instance=instance,
        next_operation=simulation.next_operation[env].copy(),
        job_ready=simulation.job_ready[env].copy(),
        machine_ready=simulation.machine_ready[env, :n_machines].copy(),
        remaining_work=simulation.remaining_work[env].copy(),
        remaining_operations=simulation.remaining_operations[env].copy(),
        successor_durations=simulation.successor_durations[env].copy(),
        successor_machines=np.where(successors == simulation.sizes.machines, n_machines, successors),
        machine_load=simulation.machine_load[env, :n_machines].copy(),
        option_machines=simulation.option_machines[env].copy(),
        option_durations=simulation.option_durations[env].copy(),
        exists=simulation.exists[env].copy(),
        starts=simulation.starts[env].copy(),
        completions=simulation.completions[env].copy(),
        allowed=simulation.allowed[env].copy(),
        operation_starts=simulation.operation_starts[operations].copy(),
        operation_machines=simulation.operation_machines[operations].astype(np.int64),
        bound=int(simulation.bound[env]),
        n_scheduled=int(simulation.n_scheduled[env]),
        last=(job, operation),
        total_remaining_work=int(simulation.total_remaining_work[env]),
        n_unfinished=int(simulation.n_unfinished[env]),
        earliest_start=int(simulation.earliest_start[env]),
        earliest_completion=int(simulation.earliest_completion[env]),
    )

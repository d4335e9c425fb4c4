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
        simulation.starts[rows].reshape(n, -1),
        simulation.completions[rows].reshape(n, -1),
        spread(simulation.remaining_work[rows]),
        spread(simulation.remaining_operations[rows]),
        spread(simulation.job_ready[rows]),
        spread(simulation.successor_durations[rows]),
        flat.take(simulation.option_machines[rows].reshape(n, -1) + first, axis=1),
        flat.take(spread(simulation.successor_machines[rows] + first), axis=1),
    )
    instances = simulation.instances
    offsets_scales = offsets_and_scales(
        instances.mean_duration[rows],
        np.maximum(instances.start_bound[rows], 1),
        simulation.bound[rows],
        simulation.earliest_start[rows],
        simulation.earliest_completion[rows],
        np.maximum(simulation.total_remaining_work[rows], 1),
        np.maximum(instances.total_operations[rows] - simulation.n_scheduled[rows], 1),
        simulation.n_unfinished[rows],
        instances.n_machines[rows],
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
        np.maximum(instances.start_bound[rows], 1),
        bound,
        np.minimum(simulation.earliest_start[rows], bound),
        simulation.n_scheduled[rows],
        instances.total_operations[rows],
        np.count_nonzero(simulation.allowed[rows], axis=(1, 2)),
        simulation.n_unfinished[rows],
        instances.n_jobs[rows],
        instances.log_jobs[rows],
        instances.log_machines[rows],
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
        instance,
        simulation.next_operation[env].copy(),
        simulation.job_ready[env].copy(),
        simulation.machine_ready[env, :n_machines].copy(),
        simulation.remaining_work[env].copy(),
        simulation.remaining_operations[env].copy(),
        simulation.successor_durations[env].copy(),
        np.where(successors == simulation.sizes.machines, n_machines, successors),
        simulation.machine_load[env, :n_machines].copy(),
        simulation.option_machines[env].copy(),
        simulation.option_durations[env].copy(),
        simulation.exists[env].copy(),
        simulation.starts[env].copy(),
        simulation.completions[env].copy(),
        simulation.allowed[env].copy(),
        simulation.operation_starts[operations].copy(),
        simulation.operation_machines[operations].astype(np.int64),
        int(simulation.bound[env]),
        int(simulation.n_scheduled[env]),
        (job, operation),
        int(simulation.total_remaining_work[env]),
        int(simulation.n_unfinished[env]),
        int(simulation.earliest_start[env]),
        int(simulation.earliest_completion[env]),
    )

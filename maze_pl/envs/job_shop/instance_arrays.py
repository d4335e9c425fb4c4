"""Instances of many episodes in arrays of the same size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from maze_pl.envs.job_shop.instance import Array, JobShopInstance


@dataclass(frozen=True, slots=True)
class InstanceSizes:
    """Largest sizes of instances.

    Attributes:
        jobs: Number of jobs, J.
        operations: Number of operations of a job, O.
        alternatives: Number of alternatives of an operation, K.
        machines: Number of machines, M.
    """

    jobs: int
    operations: int
    alternatives: int
    machines: int

    def check(self, instance: JobShopInstance) -> None:
        """Refuse an instance that is larger.

        Raises:
            ValueError: The instance is larger.
        """
        sizes = {
            "jobs": (instance.n_jobs, self.jobs),
            "operations of a job": (instance.max_operations, self.operations),
            "alternatives of an operation": (instance.max_alternatives, self.alternatives),
            "machines": (instance.n_machines, self.machines),
        }
        for name, (size, largest) in sizes.items():
            if size > largest:
                remedy = "a source must declare the largest sizes of its instances"
                raise ValueError(f"{instance.name} has {size} {name}, more than the largest, {largest}; {remedy}")


class InstanceArrays:
    """Instances of N episodes.

    Operations have two more places than there are operations, in which everything is 0: a finished
    job has a next operation, and an operation after that, which take no time and have no alternatives.

    Args:
        n_envs: N.
        sizes: Largest sizes of the instances.

    Attributes:
        machines: [N, J, O + 2, K] machine of each alternative; padding repeats the first one.
        durations: [N, J, O + 2, K] duration of each alternative; 0 in padding.
        n_alternatives: [N, J, O + 2] number of alternatives; 0 in padding.
        shortest: [N, J, O + 2] shortest duration of each operation; 0 in padding.
        n_operations: [N, J] number of operations of each job; 0 for jobs that do not exist.
        forced_load: [N, M] work that only this machine can do.
        expected_load: [N, M] durations, each divided by the number of alternatives.
        n_jobs: [N] number of jobs.
        n_machines: [N] number of machines.
        total_operations: [N] number of operations of all jobs.
        start_bound: [N] lower bound of the makespan before anything is scheduled.
        mean_duration: [N] mean of the shortest durations, at least 1.
        log_jobs: [N] logarithm of the number of jobs.
        log_machines: [N] logarithm of the number of machines.
        lower_bound: [N] proved lower bound of the makespan; NaN if none is published.
        best_known: [N] best published makespan; NaN if there is none.
    """

    def __init__(self, n_envs: int, sizes: InstanceSizes) -> None:
        operations = (n_envs, sizes.jobs, sizes.operations + 2)
        self.sizes = sizes
        self.machines = np.zeros((*operations, sizes.alternatives), np.int32)
        self.durations = np.zeros((*operations, sizes.alternatives), np.int32)
        self.n_alternatives = np.zeros(operations, np.int32)
        self.shortest = np.zeros(operations, np.int32)
        self.n_operations = np.zeros((n_envs, sizes.jobs), np.int64)
        self.forced_load = np.zeros((n_envs, sizes.machines), np.int64)
        self.expected_load = np.zeros((n_envs, sizes.machines))
        self.n_jobs = np.ones(n_envs, np.int64)
        self.n_machines = np.ones(n_envs, np.int64)
        self.total_operations = np.ones(n_envs, np.int64)
        self.start_bound = np.zeros(n_envs, np.int64)
        self.mean_duration = np.ones(n_envs)
        self.log_jobs = np.zeros(n_envs)
        self.log_machines = np.zeros(n_envs)
        self.lower_bound = np.full(n_envs, np.nan)
        self.best_known = np.full(n_envs, np.nan)

    def put(self, env: int, instance: JobShopInstance) -> None:
        """Set the instance of an episode.

        Args:
            env: Number of the episode.
            instance: The instance.

        Raises:
            ValueError: The instance is larger than the arrays.
        """
        self.sizes.check(instance)
        for array in (self.machines, self.durations, self.n_alternatives, self.shortest, self.n_operations):
            array[env] = 0
        self.forced_load[env] = 0
        self.expected_load[env] = 0
        n_jobs = instance.n_jobs
        n_operations = instance.max_operations
        k = instance.max_alternatives
        self.machines[env, :n_jobs, :n_operations, :k] = instance.machines
        self.machines[env, :n_jobs, :n_operations, k:] = instance.machines[..., :1]
        self.durations[env, :n_jobs, :n_operations, :k] = instance.durations
        self.n_alternatives[env, :n_jobs, :n_operations] = instance.n_alternatives
        self.shortest[env, :n_jobs, :n_operations] = instance.shortest
        self.n_operations[env, :n_jobs] = instance.n_operations
        self.forced_load[env, : instance.n_machines] = instance.forced_load
        self.expected_load[env, : instance.n_machines] = instance.expected_load
        self.n_jobs[env] = n_jobs
        self.n_machines[env] = instance.n_machines
        self.total_operations[env] = instance.total_operations
        self.start_bound[env] = instance.start_bound
        self.mean_duration[env] = instance.mean_duration
        self.log_jobs[env] = math.log(n_jobs)
        self.log_machines[env] = math.log(instance.n_machines)
        self.lower_bound[env] = np.nan if instance.lower_bound is None else instance.lower_bound
        self.best_known[env] = np.nan if instance.best_known is None else instance.best_known

    def instance(self, env: int, name: str) -> JobShopInstance:
        """Return the instance of an episode.

        Args:
            env: Number of the episode.
            name: Name in messages and pictures.
        """
        n_jobs = int(self.n_jobs[env])
        n_operations = self.n_operations[env, :n_jobs].copy()
        operations = slice(int(n_operations.max()))
        n_alternatives = self.n_alternatives[env, :n_jobs, operations].astype(np.int64)
        alternatives = slice(int(n_alternatives.max()))
        return JobShopInstance(
            name=name,
            n_machines=int(self.n_machines[env]),
            machines=self.machines[env, :n_jobs, operations, alternatives].astype(np.int64),
            durations=self.durations[env, :n_jobs, operations, alternatives].astype(np.int64),
            n_operations=n_operations,
            n_alternatives=n_alternatives,
            lower_bound=_whole(self.lower_bound[env]),
            best_known=_whole(self.best_known[env]),
        )

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield all arrays [N, ...], by name."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                yield name, value


def _whole(number: float) -> int | None:
    """Return a whole number, None for NaN."""
    return None if math.isnan(number) else int(number)

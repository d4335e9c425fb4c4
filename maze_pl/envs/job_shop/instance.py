"""Instances of the job shop and the flexible job shop as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from maze_pl.core.checks import is_whole

Array = np.ndarray[Any, np.dtype[Any]]

Operation = Sequence[tuple[int, int]]
"""Alternatives of an operation: pairs of a machine and a duration."""

_LONGEST = 1_000_000_000
"""Largest duration; sums of durations remain exact in 64 bits."""

_MOST_MACHINES = 100_000


@dataclass(frozen=True, eq=False)
class JobShopInstance:
    """Jobs, each a chain of operations, each of which has one or several alternative machines.

    Arrays are padded, and read-only since many states refer to them. J jobs, at most O operations
    per job, at most K alternatives per operation, M machines.

    Args:
        name: Name in messages and pictures.
        n_machines: M.
        machines: [J, O, K] machine of each alternative; padding repeats the first alternative.
        durations: [J, O, K] duration of each alternative, in whole time units; 0 in padding.
        n_operations: [J] number of operations of each job.
        n_alternatives: [J, O] number of alternatives of each operation; 0 in padding.
        lower_bound: Proved lower bound of the makespan, if one is published.
        best_known: Best published makespan.

    Raises:
        ValueError: An array does not have whole numbers.
    """

    name: str
    n_machines: int
    machines: Array
    durations: Array
    n_operations: Array
    n_alternatives: Array
    lower_bound: int | None = None
    best_known: int | None = None
    shortest: Array = field(init=False)
    """[J, O] shortest duration of each operation."""
    mean_duration: float = field(init=False)
    """Mean of the shortest durations, at least 1."""
    successor_durations: Array = field(init=False)
    """[J, O + 1] shortest duration of the operation after each one; 0 if there is none."""
    successor_machines: Array = field(init=False)
    """[J, O + 1] first machine of the operation after each one; M if there is none."""

    def __post_init__(self) -> None:
        for part in ("machines", "durations", "n_operations", "n_alternatives"):
            kind = getattr(self, part).dtype
            if kind.kind not in "iu":
                remedy = "give whole numbers, such as int64"
                raise ValueError(f"{self.name}: {part} have the type {kind}; {remedy}")
        exists = np.arange(self.machines.shape[2]) < self.n_alternatives[..., np.newaxis]
        shortest = np.where(exists, self.durations, _LONGEST + 1).min(axis=2)
        shortest[self.n_alternatives == 0] = 0
        mean = shortest.sum() / max(int(self.n_operations.sum()), 1)
        object.__setattr__(self, "shortest", shortest)
        object.__setattr__(self, "mean_duration", max(float(mean), 1.0))
        has_successor = np.arange(1, self.max_operations) < self.n_operations[:, np.newaxis]
        successor_durations = np.zeros((self.n_jobs, self.max_operations + 1), np.int64)
        successor_durations[:, :-2] = shortest[:, 1:]
        successor_machines = np.full(successor_durations.shape, self.n_machines)
        successor_machines[:, :-2] = np.where(has_successor, self.machines[:, 1:, 0], self.n_machines)
        object.__setattr__(self, "successor_durations", successor_durations)
        object.__setattr__(self, "successor_machines", successor_machines)
        for array in vars(self).values():
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> JobShopInstance:
        """Return the same object, which never changes."""
        return self

    @classmethod
    def of(
        cls,
        name: str,
        n_machines: int,
        jobs: Sequence[Sequence[Operation]],
        lower_bound: int | None = None,
        best_known: int | None = None,
    ) -> JobShopInstance:
        """Make an instance of nested sequences.

        Args:
            name: Name in messages and pictures.
            n_machines: Number of machines, which are numbered from 0.
            jobs: Operations of each job in order.
            lower_bound: Proved lower bound of the makespan.
            best_known: Best published makespan.

        Raises:
            ValueError: There is no job, a job has no operation, an operation has no machine or the
                same one twice, or a machine or a duration is a fraction or out of range.

        Example:
            >>> instance = JobShopInstance.of("pair", 2, [[[(0, 3)], [(1, 2)]], [[(1, 4), (0, 5)]]])
            >>> instance.n_jobs, instance.max_operations, instance.max_alternatives
            (2, 2, 2)
            >>> instance.start_bound
            5
        """
        _check(name, n_machines, jobs)
        operations = [operation for job in jobs for operation in job]
        shape = (len(jobs), max(map(len, jobs)), max(map(len, operations)))
        machines = np.zeros(shape, np.int64)
        durations = np.zeros(shape, np.int64)
        n_alternatives = np.zeros(shape[:2], np.int64)
        for j, job in enumerate(jobs):
            for o, operation in enumerate(job):
                n_alternatives[j, o] = len(operation)
                machines[j, o] = operation[0][0]
                for k, (machine, duration) in enumerate(operation):
                    machines[j, o, k] = machine
                    durations[j, o, k] = duration
        n_operations = np.array([len(job) for job in jobs], np.int64)
        arrays = (machines, durations, n_operations, n_alternatives)
        return cls(name, int(n_machines), *arrays, lower_bound, best_known)

    @property
    def n_jobs(self) -> int:
        """Number of jobs, J."""
        return int(self.machines.shape[0])

    @property
    def max_operations(self) -> int:
        """Largest number of operations of a job, O."""
        return int(self.machines.shape[1])

    @property
    def max_alternatives(self) -> int:
        """Largest number of alternatives of an operation, K; 1 in a job shop."""
        return int(self.machines.shape[2])

    @cached_property
    def total_operations(self) -> int:
        """Number of operations of all jobs, which is the number of steps of an episode."""
        return int(self.n_operations.sum())

    @cached_property
    def has_instant_work(self) -> bool:
        """True if an operation takes no time on one of its machines."""
        exists = np.arange(self.max_alternatives) < self.n_alternatives[..., np.newaxis]
        return bool((exists & (self.durations == 0)).any())

    @cached_property
    def forced_load(self) -> Array:
        """[M] work that only this machine can do, in time units; read-only."""
        forced = self.n_alternatives == 1
        load = np.bincount(self.machines[forced, 0], self.durations[forced, 0], self.n_machines).astype(np.int64)
        load.setflags(write=False)
        return load

    @cached_property
    def expected_load(self) -> Array:
        """[M] durations of all alternatives, each divided by their number; read-only."""
        exists = np.arange(self.max_alternatives) < self.n_alternatives[..., np.newaxis]
        share = self.durations / np.maximum(self.n_alternatives, 1)[..., np.newaxis]
        load = np.bincount(self.machines[exists], share[exists], self.n_machines)
        load.setflags(write=False)
        return load

    @cached_property
    def content(self) -> bytes:
        """Digest of machines and durations, equal for instances that have the same schedules."""
        sizes = repr((self.n_machines, self.machines.shape))
        digest = hashlib.blake2b(sizes.encode(), digest_size=16)
        for array in (self.machines, self.durations, self.n_operations, self.n_alternatives):
            digest.update(np.ascontiguousarray(array, np.int64).tobytes())
        return digest.digest()

    @cached_property
    def start_bound(self) -> int:
        """Lower bound of the makespan before anything is scheduled.

        The longest job with its shortest durations, or the largest work that a single machine must
        do, whichever is larger.
        """
        return int(max(self.shortest.sum(axis=1).max(), self.forced_load.max()))

    def alternatives(self, job: int, operation: int) -> list[tuple[int, int]]:
        """Pairs of machine and duration of an operation."""
        n = int(self.n_alternatives[job, operation])
        pairs = zip(
            self.machines[job, operation, :n].tolist(), self.durations[job, operation, :n].tolist(), strict=True
        )
        return list(pairs)


def _check(name: str, n_machines: int, jobs: Sequence[Sequence[Operation]]) -> None:
    """Refuse what is not an instance."""
    if not is_whole(n_machines):
        raise ValueError(f"{name}: got {n_machines} machines; their number must be whole")
    if n_machines < 1 or not jobs:
        raise ValueError(f"{name}: got {len(jobs)} jobs and {n_machines} machines; there must be at least 1 of each")
    if n_machines > _MOST_MACHINES:
        raise ValueError(f"{name}: got {n_machines} machines; there may be at most {_MOST_MACHINES}")
    for j, job in enumerate(jobs):
        if not job:
            raise ValueError(f"{name}: job {j} has no operations; remove it")
        for o, operation in enumerate(job):
            where = f"{name}: operation {o} of job {j}"
            machines = [machine for machine, _ in operation]
            if not all(map(is_whole, machines)):
                expected = "machines are whole numbers from 0"
                raise ValueError(f"{where} has the machines {machines}; {expected}")
            if not machines or len(set(machines)) < len(machines):
                raise ValueError(f"{where} has the machines {machines}; give at least one, and none twice")
            if min(machines) < 0 or max(machines) >= n_machines:
                raise ValueError(f"{where} needs the machines {machines}, but there are only 0 to {n_machines - 1}")
            durations = [duration for _, duration in operation]
            if not all(map(is_whole, durations)):
                expected = "durations are whole numbers: multiply all of them by the same factor"
                raise ValueError(f"{where} takes {durations}; {expected}")
            if min(durations) < 0 or max(durations) > _LONGEST:
                raise ValueError(f"{where} takes {durations}; durations are whole numbers from 0 to {_LONGEST}")

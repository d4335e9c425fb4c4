"""Sources of instances."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from maze_pl.envs.job_shop.instance import JobShopInstance
from maze_pl.envs.job_shop.instance_arrays import InstanceArrays, InstanceSizes


class InstanceSource(ABC):
    """Supplies the instance of an episode.

    Attributes:
        max_jobs: Largest number of jobs of its instances.
        max_alternatives: Largest number of alternatives of an operation.
        max_operations: Largest number of operations of a job; arrays need it.
        max_machines: Largest number of machines; arrays need it.
    """

    max_jobs: int
    max_alternatives: int
    max_operations: int | None = None
    max_machines: int | None = None

    @abstractmethod
    def draw(self, generator: np.random.Generator) -> JobShopInstance:
        """Return an instance.

        Args:
            generator: Source of all randomness.
        """

    def instance_in(self, arrays: InstanceArrays, env: int) -> JobShopInstance:
        """Return an instance that was drawn, from the arrays that hold it.

        Args:
            arrays: Holds the instance.
            env: Number of its episode.
        """
        return arrays.instance(env, f"{int(arrays.n_jobs[env])}x{int(arrays.n_machines[env])}")


class FixedInstance(InstanceSource):
    """Supplies the same instance in every episode.

    Args:
        instance: The instance.
    """

    def __init__(self, instance: JobShopInstance) -> None:
        self.instance = instance
        self.max_jobs = instance.n_jobs
        self.max_alternatives = instance.max_alternatives
        self.max_operations = instance.max_operations
        self.max_machines = instance.n_machines

    def draw(self, generator: np.random.Generator) -> JobShopInstance:
        """Return the instance; the generator is not used."""
        return self.instance

    def instance_in(self, arrays: InstanceArrays, env: int) -> JobShopInstance:
        """Return the instance."""
        return self.instance


def draw_one(sources: Sequence[InstanceSource], generator: np.random.Generator) -> tuple[JobShopInstance, int]:
    """Return an instance of one of several sources, each of which is as likely, and the number of the source.

    Args:
        sources: The sources.
        generator: Source of all randomness.
    """
    index = int(generator.integers(len(sources))) if len(sources) > 1 else 0
    return sources[index].draw(generator), index


def sizes_of(sources: Sequence[InstanceSource], max_jobs: int, max_alternatives: int) -> InstanceSizes:
    """Return the sizes of arrays that hold all instances of some sources.

    Args:
        sources: The sources.
        max_jobs: Maximum number of jobs.
        max_alternatives: Maximum number of alternatives of an operation.

    Raises:
        ValueError: A source does not declare its sizes.
    """
    max_operations = 1
    max_machines = 1
    for source in sources:
        if source.max_operations is None or source.max_machines is None:
            remedy = "max_operations and max_machines, the sizes of arrays; set both, or use the sequential environment"
            raise ValueError(f"{type(source).__name__} does not declare {remedy}")
        max_operations = max(max_operations, source.max_operations)
        max_machines = max(max_machines, source.max_machines)
    return InstanceSizes(max_jobs, max_operations, max_alternatives, max_machines)

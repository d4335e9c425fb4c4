"""Sources of instances."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from maze_pl.envs.job_shop.instance import JobShopInstance


class InstanceSource(ABC):
    """Supplies the instance of an episode.

    Attributes:
        max_jobs: Largest number of jobs of its instances.
        max_alternatives: Largest number of alternatives of an operation.
    """

    max_jobs: int
    max_alternatives: int

    @abstractmethod
    def draw(self, generator: np.random.Generator) -> JobShopInstance:
        """Return an instance.

        Args:
            generator: Source of all randomness.
        """


class FixedInstance(InstanceSource):
    """Supplies the same instance in every episode.

    Args:
        instance: The instance.
    """

    def __init__(self, instance: JobShopInstance) -> None:
        self.instance = instance
        self.max_jobs = instance.n_jobs
        self.max_alternatives = instance.max_alternatives

    def draw(self, generator: np.random.Generator) -> JobShopInstance:
        """Return the instance; the generator is not used."""
        return self.instance

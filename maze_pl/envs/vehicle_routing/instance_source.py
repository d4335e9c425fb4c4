"""Sources of instances."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.vehicle_routing.instance import Array, InstanceArrays, RoutingInstance


class InstanceSource(ABC):
    """Supplies the instance of an episode.

    Attributes:
        max_customers: Largest number of customers of its instances.
    """

    max_customers: int

    @abstractmethod
    def draw(self, generator: np.random.Generator) -> RoutingInstance:
        """Return an instance.

        Args:
            generator: Source of all randomness.
        """

    def draw_arrays(self, streams: RandomStreams, which: Array) -> InstanceArrays:
        """Return instances of several episodes, the same that `draw` returns for each of them.

        By default, they are drawn one after the other.

        Args:
            streams: Generators of all episodes.
            which: [n] the episodes.
        """
        instances = [self.draw(streams.generator(int(stream))) for stream in which]
        return InstanceArrays.of(instances, self.max_customers)

    def instance_in(self, arrays: InstanceArrays, place: int) -> RoutingInstance:
        """Return an instance that `draw_arrays` has returned.

        Args:
            arrays: Holds the instance.
            place: Its place.
        """
        return arrays.instance(place, f"random {int(arrays.n_customers[place])}")


class FixedInstance(InstanceSource):
    """Supplies the same instance in every episode.

    Args:
        instance: The instance.
    """

    def __init__(self, instance: RoutingInstance) -> None:
        self.instance = instance
        self.max_customers = instance.n_customers

    def draw(self, generator: np.random.Generator) -> RoutingInstance:
        """Return the instance; the generator is not used."""
        return self.instance

    def draw_arrays(self, streams: RandomStreams, which: Array) -> InstanceArrays:
        """Return the instance several times."""
        return InstanceArrays.of([self.instance] * len(which), self.max_customers)

    def instance_in(self, arrays: InstanceArrays, place: int) -> RoutingInstance:
        """Return the instance."""
        return self.instance


def draw_one(sources: list[InstanceSource], generator: np.random.Generator) -> RoutingInstance:
    """Return an instance of one of several sources, each of which is as likely.

    Args:
        sources: The sources.
        generator: Source of all randomness.
    """
    index = int(generator.integers(len(sources))) if len(sources) > 1 else 0
    return sources[index].draw(generator)


def draw_many(
    sources: list[InstanceSource], streams: RandomStreams, which: Array, max_customers: int
) -> tuple[InstanceArrays, Array]:
    """Return the instances of several episodes, the same as those of `draw_one`.

    Args:
        sources: The sources.
        streams: Generators of all episodes.
        which: [n] the episodes.
        max_customers: Size of the arrays.

    Returns:
        The instances, and the index [n] of the source of each.
    """
    if len(sources) == 1:
        return sources[0].draw_arrays(streams, which), np.zeros(len(which), np.int64)
    drawn = InstanceArrays.empty(len(which), max_customers)
    indices = streams.integers(len(sources), which=which)
    for index in np.unique(indices).tolist():
        places = np.flatnonzero(indices == index)
        drawn.put(places, sources[index].draw_arrays(streams, which[places]))
    return drawn, indices

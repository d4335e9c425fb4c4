"""Random instances, drawn for each episode."""

from __future__ import annotations

import re

import numpy as np

from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.vehicle_routing.instance import (
    Array,
    InstanceArrays,
    RoutingInstance,
    mean_distances,
    radial_bounds,
    straight_distances,
)
from maze_pl.envs.vehicle_routing.instance_source import InstanceSource

_CAPACITIES = {10: 20, 20: 30, 50: 40, 100: 50}
"""Number of customers -> capacity of vehicles, as in the literature."""

_RANGE = r"(\d{1,4})(?:-(\d{1,4}))?"
_PATTERN = re.compile(rf"random\( *{_RANGE} *((?:, *\w+ *= *[\d.-]+ *)*)\)")
_EXPECTED = "random(50), random(20-100, capacity=40) or random(30, capacity=35, demands=1-9)"


class RandomInstances(InstanceSource):
    """Draws depot and customers uniformly in the unit square, with uniform demands.

    The distribution of Nazari et al. 2018 (arXiv:1802.04240) and Kool et al. 2019
    (arXiv:1803.08475): demands from 1 to 9, and capacities of 20, 30, 40 and 50 for 10, 20, 50 and
    100 customers.

    Args:
        n_customers: Smallest and largest number of customers.
        capacity: Capacity of vehicles; that of the literature if None.
        demands: Smallest and largest demand.

    Raises:
        ValueError: A range is empty, a demand may exceed the capacity, the capacity is a fraction,
            or the literature has none for this number of customers.
    """

    def __init__(
        self, n_customers: tuple[int, int], capacity: int | None = None, demands: tuple[int, int] = (1, 9)
    ) -> None:
        for name, (low, high) in {"n_customers": n_customers, "demands": demands}.items():
            if not 1 <= low <= high:
                raise ValueError(f"{name}={low}-{high} of random instances must be a range from at least 1")
        if capacity is None:
            if n_customers[0] != n_customers[1] or n_customers[0] not in _CAPACITIES:
                fault = f"random instances of {n_customers[0]}-{n_customers[1]} customers have no usual capacity"
                raise ValueError(f"{fault}; give one, such as random(30, capacity=35)")
            capacity = _CAPACITIES[n_customers[0]]
        if capacity != int(capacity):
            raise ValueError(f"{capacity=} of random instances must be a whole number")
        if capacity < demands[1]:
            raise ValueError(f"{capacity=} of random instances must be at least the largest demand, {demands[1]}")
        self.n_customers = n_customers
        self.capacity = int(capacity)
        self.demands = demands
        self.max_customers = n_customers[1]

    @classmethod
    def parse(cls, text: str) -> RandomInstances:
        """Make a source of a text such as `random(50)`.

        Raises:
            ValueError: The text has another form.

        Example:
            >>> RandomInstances.parse("random(50)").capacity
            40
            >>> RandomInstances.parse("random(20-30, capacity=35)").n_customers
            (20, 30)
        """
        match = _PATTERN.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a description of random instances; write {_EXPECTED}")
        options: dict[str, str | None] = {"capacity": None, "demands": "1-9"}
        for option in filter(None, match[3].replace(" ", "").split(",")):
            name, value = option.split("=")
            if name not in options or not re.fullmatch(_RANGE if name == "demands" else r"\d{1,9}", value):
                raise ValueError(f"{option!r} in {text!r} is unknown; write {_EXPECTED}")
            options[name] = value
        low, _, high = str(options["demands"]).partition("-")
        capacity = None if options["capacity"] is None else int(options["capacity"])
        return cls((int(match[1]), int(match[2] or match[1])), capacity, (int(low), int(high or low)))

    def draw(self, generator: np.random.Generator) -> RoutingInstance:
        """Draw an instance."""
        low, high = self.n_customers
        n = int(generator.integers(low, high + 1)) if high > low else low
        coordinates = generator.random((n + 1, 2))
        demands = np.zeros(n + 1, np.int64)
        demands[1:] = generator.integers(self.demands[0], self.demands[1] + 1, n)
        return RoutingInstance(f"random {n}", coordinates, demands, self.capacity)

    def draw_arrays(self, streams: RandomStreams, which: Array) -> InstanceArrays:
        """Draw instances, all of one size together."""
        low, high = self.n_customers
        if high == low:
            return self._drawn(low, streams, which)
        sizes = streams.integers(low, high + 1, which=which)
        drawn = InstanceArrays.empty(len(which), high)
        for n in np.unique(sizes).tolist():
            places = np.flatnonzero(sizes == n)
            drawn.put(places, self._drawn(n, streams, which[places]))
        return drawn

    def _drawn(self, n: int, streams: RandomStreams, which: Array) -> InstanceArrays:
        """Draw instances of n customers."""
        coordinates = streams.random((n + 1, 2), which)
        demands = np.zeros((len(which), n + 1), np.int64)
        demands[:, 1:] = streams.integers(self.demands[0], self.demands[1] + 1, size=n, which=which)
        distances = straight_distances(coordinates)
        size = np.full(len(which), n)
        capacity = np.full(len(which), self.capacity)
        scale = mean_distances(distances, size + 1)
        bound = radial_bounds(distances[:, 0], demands, capacity)
        return InstanceArrays(
            coordinates=coordinates,
            demands=demands,
            distances=distances,
            capacity=capacity,
            n_customers=size,
            scale=scale,
            bound=bound,
            best_known=np.full(len(which), np.nan),
        )

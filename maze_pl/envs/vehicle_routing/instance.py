"""Instances of the capacitated vehicle routing problem, alone and stacked in arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_LARGEST = 1_000_000_000
"""Largest coordinate, demand and capacity; sums remain exact in 64 bits."""


@dataclass(frozen=True, eq=False)
class RoutingInstance:
    """A depot, customers with demands, and an unlimited number of vehicles of equal capacity.

    Node 0 is the depot, nodes 1 to C are the customers. Arrays are read-only, since many states
    refer to them.

    Args:
        name: Name in messages and pictures.
        coordinates: [C + 1, 2] place of each node.
        demands: [C + 1] whole numbers; 0 for the depot.
        capacity: Capacity of each vehicle, a whole number.
        distances: [C + 1, C + 1] symmetric distances; straight lines between the places if None.
        best_known: Shortest published total distance.

    Raises:
        ValueError: Shapes do not fit, a number is out of range, a demand exceeds the capacity, or a
            demand or the capacity is a fraction.

    Example:
        >>> instance = RoutingInstance("three", [(0, 0), (3, 4), (0, 4), (3, 0)], [0, 2, 2, 1], 3)
        >>> instance.n_customers, instance.distances[0].tolist(), instance.n_vehicles_bound
        (3, [0.0, 5.0, 4.0, 3.0], 2)
    """

    name: str
    coordinates: Array
    demands: Array
    capacity: int
    distances: Any = None
    best_known: float | None = None
    scale: float = field(init=False)
    """Mean distance between two nodes, by which observations are divided."""
    bound: float = field(init=False)
    """Lower bound of the total distance, by which rewards may be divided; see `radial_bounds`."""

    def __post_init__(self) -> None:
        coordinates = np.array(self.coordinates, np.float64)
        demands = _whole_demands(self.name, self.demands)
        _check(self.name, coordinates, demands, self.capacity)
        if self.distances is None:
            distances = straight_distances(coordinates[np.newaxis])[0]
        else:
            distances = np.array(self.distances, np.float64)
            _check_distances(self.name, distances, len(demands))
        object.__setattr__(self, "coordinates", coordinates)
        object.__setattr__(self, "demands", demands)
        object.__setattr__(self, "capacity", int(self.capacity))
        object.__setattr__(self, "distances", distances)
        stacked = distances[np.newaxis]
        scale = mean_distances(stacked, np.array([len(demands)]))
        of_depot = shortest_distances(distances) if self.distances is not None else distances[0]
        bound = radial_bounds(of_depot[np.newaxis], demands[np.newaxis], np.array([self.capacity]))
        object.__setattr__(self, "scale", float(scale[0]))
        object.__setattr__(self, "bound", float(bound[0]))
        for array in (coordinates, demands, distances):
            array.setflags(write=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> RoutingInstance:
        """Return the same object, which never changes."""
        return self

    @property
    def n_customers(self) -> int:
        """Number of customers, C."""
        return len(self.demands) - 1

    @cached_property
    def content(self) -> bytes:
        """Digest of all numbers, equal for instances that have the same routes."""
        sizes = repr((self.n_customers, self.capacity))
        digest = hashlib.blake2b(sizes.encode(), digest_size=16)
        for array in (self.coordinates, self.demands, self.distances):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.digest()

    @property
    def n_vehicles_bound(self) -> int:
        """Smallest number of vehicles that can carry all demands, if these could be divided."""
        return max(-(-int(self.demands.sum()) // self.capacity), 1)


@dataclass(frozen=True, eq=False)
class InstanceArrays:
    """N instances in arrays, padded to C customers each.

    Attributes:
        coordinates: [N, C + 1, 2]; padding lies at the depot.
        demands: [N, C + 1]; 0 in padding.
        distances: [N, C + 1, C + 1]; 0 in padding.
        capacity: [N].
        n_customers: [N] number of customers that exist.
        scale: [N] mean distance between two nodes.
        bound: [N] lower bound of the total distance.
        best_known: [N] shortest published total distance; NaN if there is none.
    """

    coordinates: Array
    demands: Array
    distances: Array
    capacity: Array
    n_customers: Array
    scale: Array
    bound: Array
    best_known: Array

    @classmethod
    def empty(cls, n: int, max_customers: int) -> InstanceArrays:
        """Make arrays of N places for instances."""
        n_nodes = max_customers + 1
        return cls(
            np.zeros((n, n_nodes, 2)),
            np.zeros((n, n_nodes), np.int64),
            np.zeros((n, n_nodes, n_nodes)),
            np.ones(n, np.int64),
            np.zeros(n, np.int64),
            np.ones(n),
            np.ones(n),
            np.full(n, np.nan),
        )

    @classmethod
    def of(cls, instances: Sequence[RoutingInstance], max_customers: int) -> InstanceArrays:
        """Stack instances.

        Args:
            instances: The instances.
            max_customers: C.
        """
        arrays = cls.empty(len(instances), max_customers)
        for place, instance in enumerate(instances):
            n_nodes = instance.n_customers + 1
            arrays.coordinates[place] = instance.coordinates[0]
            arrays.coordinates[place, :n_nodes] = instance.coordinates
            arrays.demands[place, :n_nodes] = instance.demands
            arrays.distances[place, :n_nodes, :n_nodes] = instance.distances
            arrays.capacity[place] = instance.capacity
            arrays.n_customers[place] = instance.n_customers
            arrays.scale[place] = instance.scale
            arrays.bound[place] = instance.bound
            arrays.best_known[place] = np.nan if instance.best_known is None else instance.best_known
        return arrays

    def put(self, which: Array, other: InstanceArrays) -> None:
        """Replace some of the instances.

        Args:
            which: [n] their places.
            other: The n instances, with at most C customers.
        """
        n_nodes = other.demands.shape[1]
        self.coordinates[which] = other.coordinates[:, :1]
        self.coordinates[which, :n_nodes] = other.coordinates
        self.demands[which] = 0
        self.demands[which, :n_nodes] = other.demands
        self.distances[which] = 0.0
        self.distances[which, :n_nodes, :n_nodes] = other.distances
        self.capacity[which] = other.capacity
        self.n_customers[which] = other.n_customers
        self.scale[which] = other.scale
        self.bound[which] = other.bound
        self.best_known[which] = other.best_known

    def instance(self, place: int, name: str) -> RoutingInstance:
        """Return one of the instances.

        Args:
            place: Its place.
            name: Its name.
        """
        n_nodes = int(self.n_customers[place]) + 1
        distances = self.distances[place, :n_nodes, :n_nodes]
        coordinates = self.coordinates[place, :n_nodes]
        best_known = None if np.isnan(self.best_known[place]) else float(self.best_known[place])
        demands = self.demands[place, :n_nodes]
        return RoutingInstance(name, coordinates, demands, int(self.capacity[place]), distances, best_known)


def straight_distances(coordinates: Array) -> Array:
    """Lengths of straight lines between places, [N, C, 2] to [N, C, C]."""
    differences = coordinates[:, :, np.newaxis] - coordinates[:, np.newaxis]
    differences *= differences
    return np.asarray(np.sqrt(differences[..., 0] + differences[..., 1]))


def mean_distances(distances: Array, n_nodes: Array) -> Array:
    """Mean distance between two different nodes of each instance, or 1 if all are 0.

    Args:
        distances: [N, C + 1, C + 1]; 0 in padding.
        n_nodes: [N] number of nodes that exist.

    Returns:
        [N].
    """
    total = distances.sum(axis=2).sum(axis=1)
    means = total / np.maximum(n_nodes * (n_nodes - 1), 1)
    return np.where(means > 0, means, 1.0)


def shortest_distances(distances: Array) -> Array:
    """Distance of each node from the depot on the shortest way, also over other nodes.

    It is shorter than the direct distance where the triangle inequality does not hold, as for
    rounded distances. Differences that come from the arithmetic alone are left out.

    Args:
        distances: [C + 1, C + 1].

    Returns:
        [C + 1].
    """
    direct = shortest = distances[0]
    while True:
        over_others = (shortest[:, np.newaxis] + distances).min(axis=0)
        if (over_others >= shortest).all():
            return np.asarray(np.where(shortest < direct * (1 - 1e-9), shortest, direct))
        shortest = np.minimum(shortest, over_others)


def radial_bounds(of_depot: Array, demands: Array, capacity: Array) -> Array:
    """Lower bound of the total distance of each instance, or 1 if it is 0.

        max(2 sum_i q_i d(0, i) / Q, 2 max_i d(0, i))

    The first part holds because a vehicle that serves i with others drives 2 d(0, i) at least, for
    loads of Q at most; Haimovich and Rinnooy Kan 1985 (Mathematics of Operations Research 10(4),
    pp. 527-542). Both need d(0, i) to be the length of the shortest way, see `shortest_distances`.

    Args:
        of_depot: [N, C + 1] d(0, i).
        demands: [N, C + 1].
        capacity: [N].

    Returns:
        [N].
    """
    of_depot = np.ascontiguousarray(of_depot)
    loads = (of_depot * demands).sum(axis=1) / capacity
    bounds = 2 * np.maximum(loads, of_depot.max(axis=1))
    return np.where(bounds > 0, bounds, 1.0)


def _whole_demands(name: str, demands: Any) -> Array:
    """Convert demands to whole numbers, [C + 1]."""
    numbers = np.array(demands, np.float64)
    if not (numbers == np.floor(numbers)).all():
        remedy = "multiply all of them and the capacity by a power of 10"
        raise ValueError(f"{name}: demands must be whole numbers; {remedy}")
    if numbers.size and not np.abs(numbers).max() <= _LARGEST:
        raise ValueError(f"{name}: demands must be numbers up to {_LARGEST}; one is {np.abs(numbers).max():g}")
    return numbers.astype(np.int64)


def _check(name: str, coordinates: Array, demands: Array, capacity: float) -> None:
    """Refuse what is not an instance."""
    if demands.ndim != 1 or coordinates.shape != (len(demands), 2):
        shapes = f"coordinates of shape {coordinates.shape} and demands of shape {demands.shape}"
        raise ValueError(f"{name}: got {shapes}; expected [C + 1, 2] and [C + 1], the depot first")
    if len(demands) < 2:
        raise ValueError(f"{name}: there is no customer; give at least one besides the depot")
    if not np.abs(coordinates).max() <= _LARGEST:
        raise ValueError(f"{name}: coordinates must be finite numbers from -{_LARGEST} to {_LARGEST}")
    if not 1 <= capacity <= _LARGEST:
        raise ValueError(f"{name}: {capacity=} must be from 1 to {_LARGEST}")
    if capacity != int(capacity):
        remedy = "multiply it and all demands by a power of 10"
        raise ValueError(f"{name}: {capacity=} must be a whole number; {remedy}")
    if demands[0] != 0:
        raise ValueError(f"{name}: the depot has a demand of {demands[0]}; it must be 0")
    if demands.min() < 0 or demands.max() > capacity:
        customer = int(np.argmax((demands < 0) | (demands > capacity)))
        fault = f"customer {customer} has a demand of {demands[customer]}"
        raise ValueError(f"{name}: {fault}, but vehicles carry from 0 to {capacity}; divide larger demands")


def _check_distances(name: str, distances: Array, n_nodes: int) -> None:
    """Refuse a matrix that cannot hold distances."""
    if distances.shape != (n_nodes, n_nodes):
        raise ValueError(f"{name}: distances have shape {distances.shape}; expected {(n_nodes, n_nodes)}")
    if not (distances >= 0).all() or not distances.max() <= _LARGEST:
        raise ValueError(f"{name}: distances must be numbers from 0 to {_LARGEST}")
    if (distances != distances.T).any() or distances.diagonal().any():
        raise ValueError(f"{name}: distances must be symmetric, with 0 on the diagonal")

"""States and actions of ride hailing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from maze_pl.envs.ride_hailing.city import City

Array = np.ndarray[Any, Any]

N_MOVES = 5
"""Options besides requests: stay, and drive west, east, south or north."""

APPEARED = 0
DEADLINE = 1
ORIGIN = slice(2, 4)
DESTINATION = slice(4, 6)
PLACES = slice(2, 6)  # origin and destination
DISTANCE = 6
N_COLUMNS = 7
"""Columns of a table of requests: minutes, minutes, km, km, and the km of the trip."""


@dataclass(frozen=True, slots=True)
class RideHailingMazeAction:
    """Action of the simulation: one vehicle does one thing.

    Attributes:
        place: Place of the vehicle among those that still have to decide; 0 is the next one.
        option: Below K, the request with this place among the nearest that the vehicle can reach in
            time; K stays; K + 1 to K + 4 drive towards the zone west, east, south or north.
    """

    place: int
    option: int


@dataclass(frozen=True, slots=True, eq=False)
class RideHailingMazeState:
    """State of the simulation; arrays are copies.

    Attributes:
        city: Distances, zones, prices and the forecast of demand.
        now: Minutes since the start of the day.
        n_nearest: Number of requests that a vehicle may choose from, K.
        positions: [V, 2] where vehicles are, or will be when they are free, km.
        free_at: [V] minutes at which vehicles are free.
        shift_start: [V] minutes at which shifts begin.
        shift_end: [V] minutes at which shifts end.
        undecided: Vehicles that still have to decide in this environment step, the next one first.
        waiting: [W, 7] waiting requests, see `N_COLUMNS`.
        trips: [V, 4] origin and destination of each vehicle's last trip, km; NaN before.
    """

    city: City
    now: float
    n_nearest: int
    positions: Array
    free_at: Array
    shift_start: Array
    shift_end: Array
    undecided: tuple[int, ...]
    waiting: Array
    trips: Array

    @property
    def n_options(self) -> int:
        """Number of options of a vehicle, K + 5."""
        return self.n_nearest + N_MOVES

    def pickup_distances(self, vehicle: int) -> Array:
        """Return the distances [W] from a vehicle to the origins of all waiting requests, km."""
        return np.asarray(np.abs(self.waiting[:, ORIGIN] - self.positions[vehicle]).sum(axis=1))

    def nearest(self, vehicle: int, distances: Array | None = None) -> Array:
        """Return the indices of the K nearest waiting requests that a vehicle reaches in time.

        Args:
            vehicle: Index of an idle vehicle.
            distances: Result of `pickup_distances`, computed if None.
        """
        if distances is None:
            distances = self.pickup_distances(vehicle)
        slack = self.waiting[:, DEADLINE] - self.now - distances / self.city.speed
        reachable = np.flatnonzero(slack >= 0)
        return reachable[np.argsort(distances[reachable], kind="stable")[: self.n_nearest]]

    def mask(self, vehicle: int, n_requests: int) -> Array:
        """Return 1 for each option [K + 5] that a vehicle has, else 0.

        Args:
            vehicle: Index of an idle vehicle.
            n_requests: Number of requests that it may choose from.
        """
        mask = np.zeros(self.n_options, np.float32)
        mask[:n_requests] = 1
        mask[self.n_nearest] = 1
        mask[self.n_nearest + 1 :] = self.city.neighbours[self.city.zone_of(self.positions[vehicle])] >= 0
        return mask

"""The simulation of a day: shifts, requests, trips."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from maze_pl.envs.ride_hailing.city import City
from maze_pl.envs.ride_hailing.objects import (
    APPEARED,
    DEADLINE,
    DESTINATION,
    DISTANCE,
    N_COLUMNS,
    ORIGIN,
    PLACES,
    Array,
    RideHailingMazeState,
)


@dataclass(frozen=True, slots=True)
class Drive:
    """Result of a decision.

    Attributes:
        vehicle: Index of the vehicle.
        empty: Distance without a passenger, km.
        trip: Distance with a passenger, km; 0 without one.
        fare: Fare of the passenger; 0 without one.
        waiting_time: Minutes from the request to the pick-up; 0 without a passenger.
        overtime: Minutes of the drive after the end of the shift; 0 without a passenger.
        accepts: Whether it drives to a passenger.
    """

    vehicle: int
    empty: float = 0.0
    trip: float = 0.0
    fare: float = 0.0
    waiting_time: float = 0.0
    overtime: float = 0.0
    accepts: bool = False


class RideHailingSimulation:
    """A day of a fleet whose vehicles begin and end shifts.

    Time moves in periods. At the start of each one, every vehicle that is on duty and free decides,
    one after the other, in the order in which their last drives or waits ended. A vehicle that has
    accepted a request drives to its origin and to its destination, and is then free. It keeps the
    promise: a request may be accepted only if the vehicle reaches it within the passenger's
    patience. A drive towards a neighbouring zone lasts one period. A vehicle that will not be free
    before the end of its shift does not decide again; periods in which no vehicle decides pass at once.

    Args:
        city: The city.
        n_shifts: Number of shifts in a day, one vehicle each, V.
        shift_hours: Shortest and longest shift, hours, drawn uniformly.
        patience: Shortest and longest time in which passengers must be picked up, minutes, drawn
            uniformly.
        n_nearest: Number of requests that a vehicle may choose from, K.

    Raises:
        ValueError: A number is out of range.
    """

    def __init__(
        self,
        city: City,
        n_shifts: int = 16,
        shift_hours: tuple[float, float] = (4.0, 8.0),
        patience: tuple[float, float] = (10.0, 20.0),
        n_nearest: int = 6,
    ) -> None:
        for name, number in {"n_shifts": n_shifts, "n_nearest": n_nearest}.items():
            if number < 1:
                raise ValueError(f"{name}={number} must be at least 1")
        for name, (low, high) in {"shift_hours": shift_hours, "patience": patience}.items():
            if not 0 < low <= high < math.inf:
                raise ValueError(f"{name}={(low, high)} must be two numbers above 0, the smaller one first")
        self.city = city
        self.n_shifts = n_shifts
        self.shift_hours = shift_hours
        self.patience = patience
        self.n_nearest = n_nearest
        self.reset(np.random.default_rng(0))

    def reset(self, generator: np.random.Generator) -> int:
        """Start a day, at the first time when a vehicle decides.

        Shifts begin at times spread evenly over the day, the first ones as if they had begun
        before. Vehicles begin at random places.

        Args:
            generator: Source of all randomness.

        Returns:
            Number of passengers that have left before any vehicle decides.
        """
        n = self.n_shifts
        hours = generator.uniform(*self.shift_hours, n)
        lead = self.shift_hours[0] * 60
        starts = (np.arange(n) + generator.random(n)) / n * self.city.minutes - lead / 2
        starts[0] = 0.0  # one vehicle is there from the start
        self.shift_start = np.clip(starts, 0, None)
        self.shift_end = np.minimum(np.maximum(starts + 60 * hours, self.city.period), self.city.minutes)
        self.positions = generator.random((n, 2)) * self.city.size
        self.free_at = self.shift_start.copy()
        self.trips = np.full((n, 4), np.nan)
        self.waiting = np.empty((0, N_COLUMNS))
        self.index = 0
        self.undecided: list[int] = []
        self._find_idle()
        return 0 if self.undecided else self.advance(generator)

    @property
    def now(self) -> float:
        """Minutes since the start of the day."""
        return self.index * self.city.period

    @property
    def is_over(self) -> bool:
        """True at the end of the day."""
        return self.index >= self.city.n_periods

    def accept(self, place: int, request: int) -> Drive:
        """Send a vehicle to a passenger.

        Args:
            place: Place of the vehicle among those that have to decide.
            request: Row of the request.
        """
        vehicle = self.undecided.pop(place)
        row = self.waiting[request]
        self.waiting = np.delete(self.waiting, request, axis=0)
        empty = float(np.abs(row[ORIGIN] - self.positions[vehicle]).sum())
        picked_up = self.now + empty / self.city.speed
        trip = float(row[DISTANCE])
        end = picked_up + trip / self.city.speed
        self.positions[vehicle] = row[DESTINATION]
        self.free_at[vehicle] = end
        self.trips[vehicle] = row[PLACES]
        fare = float(self.city.fares(row[DISTANCE]))
        overtime = max(end - float(self.shift_end[vehicle]), 0.0)
        return Drive(
            vehicle=vehicle,
            empty=empty,
            trip=trip,
            fare=fare,
            waiting_time=picked_up - float(row[APPEARED]),
            overtime=overtime,
            accepts=True,
        )

    def stay(self, place: int) -> Drive:
        """Let a vehicle wait until the next period."""
        vehicle = self.undecided.pop(place)
        self.free_at[vehicle] = self.now + self.city.period
        return Drive(vehicle)

    def move(self, place: int, side: int) -> Drive:
        """Let a vehicle drive for a period towards a neighbouring zone.

        Args:
            place: Place of the vehicle among those that have to decide.
            side: 0 to 3: west, east, south, north. The vehicle stays if there is no such zone.
        """
        vehicle = self.undecided[place]
        target = drives(self.city, self.positions[vehicle])[side]
        empty = float(np.abs(target - self.positions[vehicle]).sum())
        self.stay(place)
        self.positions[vehicle] = target
        return Drive(vehicle, empty)

    def is_done(self, vehicle: int) -> bool:
        """True if a vehicle does not decide again."""
        next_decision = math.ceil(self.free_at[vehicle] / self.city.period - 1e-9) * self.city.period
        return bool(next_decision >= self.shift_end[vehicle])

    def advance(self, generator: np.random.Generator) -> int:
        """Let time pass until a vehicle has to decide, or the day is over.

        Args:
            generator: Source of all randomness.

        Returns:
            Number of passengers that have left.
        """
        n_lost = 0
        while not self.undecided and not self.is_over:
            n_lost += self._advance_period(generator)
            if not self.is_over:
                self._find_idle()
        return n_lost

    def _advance_period(self, generator: np.random.Generator) -> int:
        """Let a period pass; return the number of passengers that have left."""
        times, origins, destinations = self.city.draw_requests(self.index, generator)
        deadlines = times + generator.uniform(*self.patience, len(times))
        distances = np.abs(destinations - origins).sum(axis=1)
        rows = np.column_stack([times, deadlines, origins, destinations, distances])
        self.index += 1
        requests = np.concatenate([self.waiting, rows])
        self.waiting = requests[requests[:, DEADLINE] >= self.now]
        return len(requests) - len(self.waiting)

    def _find_idle(self) -> None:
        """Find the vehicles that have to decide, in the order in which their last drives or waits ended."""
        is_free = (self.free_at <= self.now + 1e-9 * self.city.period) & (self.now < self.shift_end)
        idle = np.flatnonzero(is_free)
        order = np.argsort(self.free_at[idle], kind="stable")
        self.undecided = [int(vehicle) for vehicle in idle[order]]

    def state(self) -> RideHailingMazeState:
        """Return a copy of the state."""
        return RideHailingMazeState(
            city=self.city,
            now=self.now,
            n_nearest=self.n_nearest,
            positions=self.positions.copy(),
            free_at=self.free_at.copy(),
            shift_start=self.shift_start,
            shift_end=self.shift_end,
            undecided=tuple(self.undecided),
            waiting=self.waiting,
            trips=self.trips.copy(),
        )


def drives(city: City, position: Array) -> Array:
    """Return where a vehicle is after driving for a period to the west, east, south and north [4, 2].

    It drives towards the centre of the neighbouring zone, first in that direction, then sideways;
    outside of the city there is nothing, and it stays.

    Args:
        city: The city.
        position: [2] where it is, km.
    """
    start = position.tolist()
    zone = city.zone_of(position)
    places = []
    for side in range(4):
        place = list(start)
        neighbour = city.neighbours[zone, side]
        if neighbour >= 0:
            budget = city.speed * city.period
            first = side // 2
            for axis in (first, 1 - first):
                gap = city.centres[neighbour, axis] - place[axis]
                length = min(abs(gap), budget)
                place[axis] += math.copysign(length, gap)
                budget -= length
        places.append(place)
    return np.array(places)

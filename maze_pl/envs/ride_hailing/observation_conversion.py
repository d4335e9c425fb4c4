"""Observations of a vehicle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from maze_pl.envs.core_env import ObservationConversionInterface
from maze_pl.envs.ride_hailing.objects import (
    APPEARED,
    DEADLINE,
    DESTINATION,
    DISTANCE,
    N_MOVES,
    ORIGIN,
    Array,
    RideHailingMazeState,
)
from maze_pl.envs.ride_hailing.simulation import drives
from maze_pl.envs.structured_env import Observation

IS_REQUEST = 0
IS_STAY = 1
IS_DRIVE = 2
EMPTY_KM = 3
TRIP_KM = 4
INCOME = 5
INCOME_PER_MINUTE = 6
USED_PATIENCE = 7
OVERTIME = 8
MINUTES = 9
PLACE = slice(10, 12)
FORECAST = 12
VEHICLES_NEAR = 13
WAITING_NEAR = 14
RIVAL_KM = 15
NEARER_RIVALS = 16
REMAINING = 17
N_FEATURES = 18
"""Number of features of an option, whose positions are named above; see `ObservationConversion`."""
N_SUMMARY = 9
LARGEST = 100.0
"""Bound of all features."""


class ObservationConversion(ObservationConversionInterface):
    """Observations of the vehicle that decides next.

    Each option leads to a place, where the vehicle will be at the end e of the drive. Numbers of an
    option:

        0 to 2    1 for a request, for staying, for driving to another zone
        3, 4      km to the pick-up, or to drive / 5; km of the trip / 5
        5, 6      income / 10; income per minute
        7         share of the passenger's patience that has passed
        8         minutes of overtime / 30
        9         minutes until e / 30
        10, 11    coordinates of the place, -1 to 1
        12        forecast of requests near the place from e on / 5
        13        vehicles near the place from e on / 3
        14        waiting requests near the place / 3
        15        km from the origin to the nearest other vehicle that has to decide / 5, at most 2
        16        vehicles that have to decide and are nearer to the origin / 3
        17        hours of the shift that remain after e / 4, at least 0

    Near means: weighted with exp(-km / 3) between the centres of zones. Summary: time of day, 0 to
    1; remaining hours of the shift / 4; coordinates; vehicles that have to decide / 5; waiting
    requests / 10; forecast of the city / 20; vehicles on duty / 10; forecast near the vehicle / 5.

    Args:
        n_nearest: Number of requests that a vehicle may choose from, K.
        n_zones: Number of zones in the city, Z.
    """

    def __init__(self, n_nearest: int, n_zones: int) -> None:
        self.n_options = n_nearest + N_MOVES
        self.n_zones = n_zones

    def space(self) -> spaces.Dict:
        """Return the space of all observations, float32.

        `options` [K + 5, 18], `option_mask` [K + 5], 1 for options that exist, `summary` [9], and
        `zones` [3 Z]: forecast / 5, vehicles / 3 and waiting requests / 3 of each zone.
        """
        n = self.n_options
        return spaces.Dict(
            options=spaces.Box(-LARGEST, LARGEST, (n, N_FEATURES)),
            option_mask=spaces.Box(0, 1, (n,)),
            summary=spaces.Box(-LARGEST, LARGEST, (N_SUMMARY,)),
            zones=spaces.Box(-LARGEST, LARGEST, (3 * self.n_zones,)),
        )

    def maze_to_space(self, maze_state: RideHailingMazeState) -> Observation:
        """Observation of a state; zeros at the end of the day, when no vehicle decides."""
        if not maze_state.undecided:
            space = self.space()
            return {name: np.zeros(part.shape, np.float32) for name, part in space.items()}
        overview = Overview.of(maze_state)
        options, mask = option_features(maze_state, 0, overview)
        return {
            "options": options,
            "option_mask": mask,
            "summary": _summary(maze_state, maze_state.undecided[0], overview),
            "zones": overview.zones(),
        }


@dataclass(frozen=True, slots=True)
class Overview:
    """Numbers of the zones of a state, which all options share.

    Attributes:
        forecast: [Z] expected requests.
        vehicles: [Z] vehicles that decide there within the time of the forecast.
        waiting: [Z] waiting requests.
        near_vehicles: [Z] vehicles near each zone.
        near_waiting: [Z] waiting requests near each zone.
        is_counted: [V] whether a vehicle is one of `vehicles`.
    """

    forecast: Array
    vehicles: Array
    waiting: Array
    near_vehicles: Array
    near_waiting: Array
    is_counted: Array

    @classmethod
    def of(cls, state: RideHailingMazeState) -> Overview:
        """Return the numbers of a state."""
        city = state.city
        n = len(city.centres)
        is_counted = decides_soon(state)
        vehicles = np.bincount(city.zones_of(state.positions[is_counted]), minlength=n)
        waiting = np.bincount(city.zones_of(state.waiting[:, ORIGIN]), minlength=n)
        forecast = city.forecast[city.period_of(state.now)]
        near_vehicles, near_waiting = city.near(np.array([vehicles, waiting], np.float64))
        return cls(
            forecast=forecast,
            vehicles=vehicles,
            waiting=waiting,
            near_vehicles=near_vehicles,
            near_waiting=near_waiting,
            is_counted=is_counted,
        )

    def zones(self) -> Array:
        """Return forecast, vehicles and waiting requests as an observation [3 Z]."""
        return np.concatenate([self.forecast / 5, self.vehicles / 3, self.waiting / 3]).astype(np.float32)


def decides_soon(state: RideHailingMazeState) -> Array:
    """Return [V] bool, whether each vehicle decides within the time of the forecast."""
    soon = state.now + state.city.lookahead
    return np.asarray((state.free_at < state.shift_end) & (state.free_at <= soon) & (state.now < state.shift_end))


def option_features(state: RideHailingMazeState, place: int, overview: Overview) -> tuple[Array, Array]:
    """Return the numbers of a vehicle's options [K + 5, 18] and their mask [K + 5].

    Args:
        state: The state.
        place: Place of the vehicle among those that have to decide.
        overview: Numbers of the zones.
    """
    city = state.city
    vehicle = state.undecided[place]
    position = state.positions[vehicle]
    distances = state.pickup_distances(vehicle)
    requests = state.nearest(vehicle, distances)
    k = len(requests)
    stay = state.n_nearest
    mask = state.mask(vehicle, k)
    rows = state.waiting[requests]
    ends = np.empty((state.n_options, 2))  # places
    ends[:] = position
    ends[:k] = rows[:, DESTINATION]
    ends[stay + 1 :] = drives(city, position)
    numbers = np.zeros((N_FEATURES, state.n_options))
    empty = np.zeros(state.n_options)
    empty[:k] = distances[requests]
    empty[stay + 1 :] = np.abs(ends[stay + 1 :] - position).sum(axis=1)
    trip = np.zeros(state.n_options)
    trip[:k] = rows[:, DISTANCE]
    minutes = (empty + trip) / city.speed
    minutes[stay:] = city.period
    income = -city.cost_per_km * (empty + trip)
    income[:k] += city.fares(trip[:k])
    remaining = state.shift_end[vehicle] - state.now - minutes
    numbers[IS_REQUEST, :k] = 1
    numbers[IS_STAY, stay] = 1
    numbers[IS_DRIVE, stay + 1 :] = 1
    numbers[EMPTY_KM] = empty / 5
    numbers[TRIP_KM] = trip / 5
    numbers[INCOME] = income / 10
    numbers[INCOME_PER_MINUTE] = income / np.maximum(minutes, 1)
    numbers[USED_PATIENCE, :k] = (state.now - rows[:, APPEARED]) / (rows[:, DEADLINE] - rows[:, APPEARED])
    numbers[OVERTIME, :k] = np.maximum(-remaining[:k], 0) / 30
    numbers[MINUTES] = minutes / 30
    numbers[PLACE] = ends.T * (2 / city.size) - 1
    zones = city.zones_of(ends)
    periods = city.period_of(state.now + minutes)
    numbers[FORECAST] = city.near_demand[periods, zones] / 5
    own = city.nearness[city.zone_of(position), zones] * overview.is_counted[vehicle]
    numbers[VEHICLES_NEAR] = (overview.near_vehicles[zones] - own) / 3
    numbers[WAITING_NEAR] = overview.near_waiting[zones] / 3
    numbers[RIVAL_KM] = 2
    if len(state.undecided) > 1 and k:
        rivals = [other for other in state.undecided if other != vehicle]
        gaps = np.abs(rows[:, None, ORIGIN] - state.positions[rivals]).sum(axis=2)  # [k, rivals]
        numbers[RIVAL_KM, :k] = np.minimum(gaps.min(axis=1) / 5, 2)
        numbers[NEARER_RIVALS, :k] = (gaps < empty[:k, None]).sum(axis=1) / 3
    numbers[REMAINING] = np.maximum(remaining, 0) / 240
    numbers *= mask
    np.minimum(numbers, LARGEST, out=numbers)
    np.maximum(numbers, -LARGEST, out=numbers)
    return numbers.T.astype(np.float32, order="C"), mask


def _summary(state: RideHailingMazeState, vehicle: int, overview: Overview) -> Array:
    """Return the numbers of the whole state and of a vehicle [9]."""
    city = state.city
    x, y = state.positions[vehicle].tolist()
    period = city.period_of(state.now)
    is_there = (state.shift_start <= state.now) & (state.now < state.shift_end)
    numbers = [
        state.now / city.minutes,
        (state.shift_end[vehicle] - state.now) / 240,
        x * (2 / city.size) - 1,
        y * (2 / city.size) - 1,
        len(state.undecided) / 5,
        len(state.waiting) / 10,
        city.total_forecast[period] / 20,
        np.count_nonzero(is_there) / 10,
        city.near_demand[period, city.zone_of(state.positions[vehicle])] / 5,
    ]
    return np.array(numbers, np.float32)

"""Observations of many fleets at once; the same numbers as in `observation_conversion`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maze_pl.envs.ride_hailing.array_simulation import ArrayRideHailingSimulation
from maze_pl.envs.ride_hailing.city import City
from maze_pl.envs.ride_hailing.objects import APPEARED, DEADLINE, DESTINATION, DISTANCE, N_MOVES, ORIGIN, Array
from maze_pl.envs.ride_hailing.observation_conversion import (
    EMPTY_KM,
    FORECAST,
    INCOME,
    INCOME_PER_MINUTE,
    IS_DRIVE,
    IS_REQUEST,
    IS_STAY,
    LARGEST,
    MINUTES,
    N_FEATURES,
    NEARER_RIVALS,
    OVERTIME,
    PLACE,
    REMAINING,
    RIVAL_KM,
    TRIP_KM,
    USED_PATIENCE,
    VEHICLES_NEAR,
    WAITING_NEAR,
)


@dataclass(frozen=True, slots=True)
class Overviews:
    """Numbers of the zones of n environments; see `Overview`.

    Attributes:
        period: [n] number of the period.
        forecast: [n, Z] expected requests.
        vehicles: [n, Z] vehicles that decide there within the time of the forecast.
        waiting: [n, Z] waiting requests.
        near: [n, 2, Z] vehicles and waiting requests near each zone.
        is_counted: [n, V] bool, whether a vehicle is one of `vehicles`.
    """

    period: Array
    forecast: Array
    vehicles: Array
    waiting: Array
    near: Array
    is_counted: Array

    @classmethod
    def of(cls, simulation: ArrayRideHailingSimulation, which: Array) -> Overviews:
        """Return the numbers of some environments [n]."""
        city = simulation.city
        now = simulation.now(which)[:, np.newaxis]
        free_at = simulation.free_at[which]
        shift_end = simulation.shift_end[which]
        is_counted = (free_at < shift_end) & (free_at <= now + city.lookahead) & (now < shift_end)
        vehicles = _counts(city, simulation.positions[which], is_counted)
        waiting = simulation.waiting[which]
        is_waiting = np.arange(waiting.shape[1]) < simulation.n_waiting[which, np.newaxis]
        requests = _counts(city, waiting[:, :, ORIGIN], is_waiting)
        period = city.period_of(now[:, 0])
        near = city.near(np.stack([vehicles, requests], axis=1))
        return cls(
            period=period,
            forecast=city.forecast[period],
            vehicles=vehicles,
            waiting=requests,
            near=near,
            is_counted=is_counted,
        )

    def zones(self) -> Array:
        """Return forecast, vehicles and waiting requests as observations [n, 3 Z]."""
        return np.concatenate([self.forecast / 5, self.vehicles / 3, self.waiting / 3], axis=1).astype(np.float32)


def _counts(city: City, positions: Array, is_counted: Array) -> Array:
    """Numbers [n, Z] of the positions [n, L, 2] in each zone, as far as they are counted [n, L]."""
    lines, places = np.nonzero(is_counted)
    n_zones = len(city.centres)
    cells = lines * n_zones + city.zones_of(positions[lines, places])
    counts = np.bincount(cells, minlength=len(positions) * n_zones)
    return counts.reshape(-1, n_zones).astype(np.float64)


def option_features(
    simulation: ArrayRideHailingSimulation, which: Array, places: Array, lines: Array, overviews: Overviews
) -> tuple[Array, Array]:
    """Return the numbers of vehicles' options [n, K + 5, 18] and their masks [n, K + 5].

    Args:
        simulation: The simulation.
        which: [n] numbers of the environments, each any number of times.
        places: [n] places of the vehicles among those that have to decide.
        lines: [n] rows of the environments in `overviews`.
        overviews: Numbers of the zones.
    """
    city = simulation.city
    stay = simulation.single.n_nearest
    vehicle = simulation.undecided[which, places]
    position = simulation.positions[which, vehicle]
    zone = city.zones_of(position)
    now = simulation.now(which)[:, np.newaxis]
    requests, exists = simulation.nearest(which, vehicle)
    rows = simulation.waiting[which[:, np.newaxis], requests]  # [n, K, 7]
    rows[~exists] = 0.0
    rows[:, :, DEADLINE][~exists] = 1.0
    shape = (len(which), stay + N_MOVES)
    mask = np.ones(shape, np.float32)
    mask[:, :stay] = exists
    mask[:, stay + 1 :] = city.neighbours[zone] >= 0
    ends = np.repeat(position[:, np.newaxis], shape[1], axis=1)  # places
    ends[:, :stay] = np.where(exists[:, :, np.newaxis], rows[:, :, DESTINATION], position[:, np.newaxis])
    ends[:, stay + 1 :] = simulation.drives(position)
    empty = np.zeros(shape)
    empty[:, :stay] = np.abs(rows[:, :, ORIGIN] - position[:, np.newaxis]).sum(axis=2)
    empty[:, stay + 1 :] = np.abs(ends[:, stay + 1 :] - position[:, np.newaxis]).sum(axis=2)
    trip = np.zeros(shape)
    trip[:, :stay] = rows[:, :, DISTANCE]
    minutes = (empty + trip) / city.speed
    minutes[:, stay:] = city.period
    income = -city.cost_per_km * (empty + trip)
    income[:, :stay] += city.fares(trip[:, :stay])
    remaining = simulation.shift_end[which, vehicle][:, np.newaxis] - now - minutes
    numbers = np.zeros((N_FEATURES, *shape))
    numbers[IS_REQUEST, :, :stay] = 1
    numbers[IS_STAY, :, stay] = 1
    numbers[IS_DRIVE, :, stay + 1 :] = 1
    numbers[EMPTY_KM] = empty / 5
    numbers[TRIP_KM] = trip / 5
    numbers[INCOME] = income / 10
    numbers[INCOME_PER_MINUTE] = income / np.maximum(minutes, 1)
    numbers[USED_PATIENCE, :, :stay] = (now - rows[:, :, APPEARED]) / (rows[:, :, DEADLINE] - rows[:, :, APPEARED])
    numbers[OVERTIME, :, :stay] = np.maximum(-remaining[:, :stay], 0) / 30
    numbers[MINUTES] = minutes / 30
    numbers[PLACE] = np.moveaxis(ends, 2, 0) * (2 / city.size) - 1
    zones = city.zones_of(ends.reshape(-1, 2)).reshape(shape)
    periods = city.period_of(now + minutes)
    numbers[FORECAST] = city.near_demand[periods, zones] / 5
    own = city.nearness[zone[:, np.newaxis], zones] * overviews.is_counted[lines, vehicle][:, np.newaxis]
    numbers[VEHICLES_NEAR] = (overviews.near[lines[:, np.newaxis], 0, zones] - own) / 3
    numbers[WAITING_NEAR] = overviews.near[lines[:, np.newaxis], 1, zones] / 3
    gaps = _gaps_of_rivals(simulation, which, places, rows[:, :, ORIGIN])
    numbers[RIVAL_KM] = 2
    numbers[RIVAL_KM, :, :stay] = np.minimum(gaps.min(axis=2, initial=np.inf) / 5, 2)
    numbers[NEARER_RIVALS, :, :stay] = (gaps < empty[:, :stay, np.newaxis]).sum(axis=2) / 3
    numbers[REMAINING] = np.maximum(remaining, 0) / 240
    numbers *= mask
    np.minimum(numbers, LARGEST, out=numbers)
    np.maximum(numbers, -LARGEST, out=numbers)
    return np.moveaxis(numbers, 0, 2).astype(np.float32, order="C"), mask


def _gaps_of_rivals(simulation: ArrayRideHailingSimulation, which: Array, places: Array, origins: Array) -> Array:
    """Distances [n, K, U] from origins [n, K, 2] to the other vehicles that have to decide, infinite beyond them."""
    n_undecided = simulation.n_undecided[which]
    columns = np.arange(int(n_undecided.max(initial=0)))
    rivals = simulation.undecided[which][:, columns]
    positions = simulation.positions[which[:, np.newaxis], rivals]
    gaps = np.abs(origins[:, :, np.newaxis] - positions[:, np.newaxis]).sum(axis=3)
    is_rival = (columns < n_undecided[:, np.newaxis]) & (columns != places[:, np.newaxis])
    return np.where(is_rival[:, np.newaxis], gaps, np.inf)


def vehicle_observation(simulation: ArrayRideHailingSimulation, which: Array) -> dict[str, Array]:
    """Return the observations [n, ...] of the vehicles that decide next; see `ObservationConversion`.

    Args:
        simulation: The simulation.
        which: [n] numbers of environments in which a vehicle has to decide.
    """
    city = simulation.city
    overviews = Overviews.of(simulation, which)
    first = np.zeros(len(which), np.int64)
    options, mask = option_features(simulation, which, first, np.arange(len(which)), overviews)
    vehicle = simulation.undecided[which, 0]
    position = simulation.positions[which, vehicle]
    now = simulation.now(which)
    shift_start = simulation.shift_start[which]
    shift_end = simulation.shift_end[which]
    is_there = (shift_start <= now[:, np.newaxis]) & (now[:, np.newaxis] < shift_end)
    place = position * (2 / city.size) - 1
    numbers = [
        now / city.minutes,
        (shift_end[np.arange(len(which)), vehicle] - now) / 240,
        place[:, 0],
        place[:, 1],
        simulation.n_undecided[which] / 5,
        simulation.n_waiting[which] / 10,
        city.total_forecast[overviews.period] / 20,
        is_there.sum(axis=1) / 10,
        city.near_demand[overviews.period, city.zones_of(position)] / 5,
    ]
    return {
        "options": options,
        "option_mask": mask,
        "summary": np.stack(numbers, axis=1).astype(np.float32),
        "zones": overviews.zones(),
    }


def dispatcher_observation(simulation: ArrayRideHailingSimulation, which: Array, max_vehicles: int) -> dict[str, Array]:
    """Return the observations [n, ...] of central dispatchers; see `CentralObservationConversion`.

    Args:
        simulation: The simulation.
        which: [n] numbers of the environments.
        max_vehicles: Maximum number of vehicles that are observed at a time, M.
    """
    city = simulation.city
    overviews = Overviews.of(simulation, which)
    n_undecided = simulation.n_undecided[which]
    lines, places = np.nonzero(np.arange(max_vehicles) < n_undecided[:, np.newaxis])
    envs = which[lines]
    numbers, mask = option_features(simulation, envs, places, lines, overviews)
    now = simulation.now(which)
    n_extra = 3
    n_options = mask.shape[1]
    options = np.zeros((len(which), max_vehicles, n_options, N_FEATURES + n_extra), np.float32)
    masks = np.zeros((len(which), max_vehicles, n_options), np.float32)
    vehicle = simulation.undecided[envs, places]
    extra = np.empty((len(envs), n_extra), np.float32)
    extra[:, :2] = simulation.positions[envs, vehicle] * (2 / city.size) - 1
    extra[:, 2] = (simulation.shift_end[envs, vehicle] - now[lines]) / 240
    options[lines, places, :, :N_FEATURES] = numbers
    options[lines, places, :, N_FEATURES:] = extra[:, np.newaxis] * mask[:, :, np.newaxis]
    masks[lines, places] = mask
    summary = np.stack(
        [
            now / city.minutes,
            n_undecided / 5,
            simulation.n_waiting[which] / 10,
            city.total_forecast[overviews.period] / 20,
        ],
        axis=1,
    )
    return {
        "options": options.reshape(len(which), -1, N_FEATURES + n_extra),
        "option_mask": masks.reshape(len(which), -1),
        "summary": summary.astype(np.float32),
        "zones": overviews.zones(),
    }

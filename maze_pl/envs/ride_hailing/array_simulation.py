"""Days of many fleets over arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.ride_hailing.objects import (
    APPEARED,
    DEADLINE,
    DESTINATION,
    DISTANCE,
    N_COLUMNS,
    N_MOVES,
    ORIGIN,
    PLACES,
    Array,
    RideHailingMazeState,
)
from maze_pl.envs.ride_hailing.simulation import RideHailingSimulation

_FIRST_CAPACITY = 16


@dataclass(frozen=True, slots=True)
class Drives:
    """Results of n decisions; see `Drive`.

    Attributes:
        vehicle: [n] the vehicles.
        is_valid: [n] bool, whether the option existed.
        accepts: [n] bool, whether the vehicle drives to a passenger.
        empty: [n] distance without a passenger, km.
        trip: [n] distance with a passenger, km; 0 without one.
        fare: [n] fare of the passenger; 0 without one.
        waiting_time: [n] minutes from the request to the pick-up; 0 without a passenger.
        overtime: [n] minutes of the drive after the end of the shift; 0 without a passenger.
    """

    vehicle: Array
    is_valid: Array
    accepts: Array
    empty: Array
    trip: Array
    fare: Array
    waiting_time: Array
    overtime: Array


class ArrayRideHailingSimulation:
    """N days, each equal to one of `RideHailingSimulation`.

    Args:
        single: A simulation of single days with the same options.
        n_envs: Number of environments, N.

    Attributes:
        index: [N] number of the period.
        positions: [N, V, 2] where vehicles are, or will be when they are free, km.
        free_at: [N, V] minutes at which vehicles are free.
        shift_start: [N, V] minutes at which shifts begin.
        shift_end: [N, V] minutes at which shifts end.
        trips: [N, V, 4] origin and destination of each vehicle's last trip, km; NaN before.
        undecided: [N, V] vehicles that still have to decide, the next one first; further entries are not read.
        n_undecided: [N] number of these vehicles.
        waiting: [N, W, 7] waiting requests, see `N_COLUMNS`; 0 in free rows, and the deadline -infinity.
        n_waiting: [N] number of waiting requests.
        streams: Random numbers.
    """

    def __init__(self, single: RideHailingSimulation, n_envs: int) -> None:
        self.single = single
        self.city = single.city
        n = single.n_shifts
        self.index = np.zeros(n_envs, np.int64)
        self.positions = np.zeros((n_envs, n, 2))
        self.free_at = np.zeros((n_envs, n))
        self.shift_start = np.zeros((n_envs, n))
        self.shift_end = np.zeros((n_envs, n))
        self.trips = np.full((n_envs, n, 4), np.nan)
        self.undecided = np.zeros((n_envs, n), np.int64)
        self.n_undecided = np.zeros(n_envs, np.int64)
        self.waiting = _free_rows(n_envs, _FIRST_CAPACITY)
        self.n_waiting = np.zeros(n_envs, np.int64)
        self.streams = RandomStreams(np.zeros(n_envs, np.int64))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield the arrays of the state, by name."""
        for name, array in vars(self).items():
            if isinstance(array, np.ndarray):
                yield name, array

    def reserve(self, capacity: int) -> None:
        """Give the tables of waiting requests this number of rows, without keeping their contents."""
        self.waiting = _free_rows(len(self.index), capacity)

    def now(self, which: Array) -> Array:
        """Return the minutes [n] since the start of the day."""
        return np.asarray(self.index[which] * self.city.period)

    def is_over(self, which: Array) -> Array:
        """Return [n] bool, True at the end of the day."""
        return np.asarray(self.index[which] >= self.city.n_periods)

    def reset(self, which: Array, seeds: Array) -> Array:
        """Start days, each at the first time when a vehicle decides; see `RideHailingSimulation.reset`.

        Args:
            which: [n] numbers of the environments.
            seeds: [n] seeds of the days.

        Returns:
            [n] number of passengers that have left before any vehicle decides.
        """
        single = self.single
        n = single.n_shifts
        self.streams.seed(seeds, which)
        hours = self.streams.uniform(*single.shift_hours, n, which)
        lead = single.shift_hours[0] * 60
        starts = (np.arange(n) + self.streams.random(n, which)) / n * self.city.minutes - lead / 2
        starts[:, 0] = 0.0  # one vehicle is there from the start
        self.shift_start[which] = np.clip(starts, 0, None)
        self.shift_end[which] = np.minimum(np.maximum(starts + 60 * hours, self.city.period), self.city.minutes)
        self.positions[which] = self.streams.random((n, 2), which) * self.city.size
        self.free_at[which] = self.shift_start[which]
        self.trips[which] = np.nan
        self.waiting[which] = _free_rows(1, self.waiting.shape[1])
        self.n_waiting[which] = 0
        self.index[which] = 0
        self._find_idle(which)
        return self.advance(which)

    # ------------------------------------------------------------------------------------ decisions

    def decide(self, which: Array, place: Array, option: Array) -> Drives:
        """Let a vehicle of each environment do something; an option that does not exist makes it stay.

        Args:
            which: [n] numbers of the environments.
            place: [n] place of each vehicle among those that have to decide.
            option: [n] its option; see `RideHailingMazeAction`.

        Raises:
            ValueError: The day of an environment is over.
        """
        n_undecided = self.n_undecided[which]
        if not n_undecided.all():
            over = which[n_undecided == 0].tolist()
            raise ValueError(f"the days of environments {over} are over; call reset first")
        n_nearest = self.single.n_nearest
        is_place = (place >= 0) & (place < n_undecided)
        place = np.where(is_place, place, 0)
        vehicle = self.undecided[which, place]
        starts = self.positions[which, vehicle]
        requests, exists = self.nearest(which, vehicle)
        is_request = is_place & (option >= 0) & (option < n_nearest)
        column = np.where(is_request, option, 0)
        lines = np.arange(len(which))
        accepts = is_request & exists[lines, column]
        moves = is_place & (option > n_nearest) & (option < n_nearest + N_MOVES)
        side = np.where(moves, option - n_nearest - 1, 0)
        has_neighbour = self.city.neighbours[self.city.zones_of(starts), side] >= 0
        is_valid = accepts | (moves & has_neighbour) | (is_place & (option == n_nearest))
        self._remove_vehicle(which, place)
        self.free_at[which, vehicle] = self.now(which) + self.city.period
        ends = np.where(moves[:, np.newaxis], self.drives(starts)[lines, side], starts)
        self.positions[which, vehicle] = ends
        drives = Drives(vehicle, is_valid, accepts, np.abs(ends - starts).sum(axis=1), *np.zeros((4, len(which))))
        self._accept(which, requests[lines, column], drives)
        return drives

    def _accept(self, which: Array, request: Array, drives: Drives) -> None:
        """Send vehicles to passengers, and complete the results.

        Args:
            which: [n] numbers of the environments.
            request: [n] row of each request, where `drives.accepts` is true.
            drives: Gets the results.
        """
        chosen = np.flatnonzero(drives.accepts)
        if not len(chosen):
            return
        envs = which[chosen]
        vehicle = drives.vehicle[chosen]
        rows = self.waiting[envs, request[chosen]]
        self._remove_request(envs, request[chosen])
        empty = np.abs(rows[:, ORIGIN] - self.positions[envs, vehicle]).sum(axis=1)
        picked_up = self.now(envs) + empty / self.city.speed
        end = picked_up + rows[:, DISTANCE] / self.city.speed
        self.positions[envs, vehicle] = rows[:, DESTINATION]
        self.free_at[envs, vehicle] = end
        self.trips[envs, vehicle] = rows[:, PLACES]
        drives.empty[chosen] = empty
        drives.trip[chosen] = rows[:, DISTANCE]
        drives.fare[chosen] = self.city.fares(rows[:, DISTANCE])
        drives.waiting_time[chosen] = picked_up - rows[:, APPEARED]
        drives.overtime[chosen] = np.maximum(end - self.shift_end[envs, vehicle], 0.0)

    def _remove_vehicle(self, which: Array, place: Array) -> None:
        """Remove the vehicle at a place [n] from those that have to decide."""
        columns = np.arange(self.single.n_shifts)
        following = np.minimum(columns + (columns >= place[:, np.newaxis]), self.single.n_shifts - 1)
        self.undecided[which] = np.take_along_axis(self.undecided[which], following, axis=1)
        self.n_undecided[which] -= 1

    def _remove_request(self, which: Array, request: Array) -> None:
        """Remove a row [n] from the waiting requests."""
        columns = np.arange(self.waiting.shape[1])
        following = np.minimum(columns + (columns >= request[:, np.newaxis]), len(columns) - 1)
        self.waiting[which] = self.waiting[which[:, np.newaxis], following]
        self.n_waiting[which] -= 1
        full = which[self.n_waiting[which] == len(columns) - 1]
        self.waiting[full, -1] = _free_rows(1, 1)[0, 0]

    def nearest(self, which: Array, vehicle: Array) -> tuple[Array, Array]:
        """Find the nearest waiting requests that vehicles reach in time.

        Args:
            which: [n] numbers of the environments, each any number of times.
            vehicle: [n] the vehicles.

        Returns:
            [n, K] rows of the requests, the nearest first, and [n, K] bool, whether there is one.
        """
        n_nearest = self.single.n_nearest
        waiting = self.waiting[which]
        distances = np.abs(waiting[:, :, ORIGIN] - self.positions[which, vehicle][:, np.newaxis]).sum(axis=2)
        slack = waiting[:, :, DEADLINE] - self.now(which)[:, np.newaxis] - distances / self.city.speed
        distances[slack < 0] = np.inf
        rows = np.zeros((len(which), n_nearest), np.int64)
        found = np.argsort(distances, axis=1, kind="stable")[:, :n_nearest]
        rows[:, : found.shape[1]] = found
        n_reachable = (slack >= 0).sum(axis=1)
        return rows, np.arange(n_nearest) < n_reachable[:, np.newaxis]

    def drives(self, positions: Array) -> Array:
        """Return where vehicles are after driving for a period to each side [n, 4, 2]; see `simulation.drives`.

        Args:
            positions: [n, 2] where they are, km.
        """
        neighbours = self.city.neighbours[self.city.zones_of(positions)]  # [n, 4]
        centres = self.city.centres[neighbours]
        places = np.repeat(positions[:, np.newaxis], 4, axis=1)
        budget = np.where(neighbours >= 0, self.city.speed * self.city.period, 0.0)
        sides = np.arange(4)
        for axis in (sides // 2, 1 - sides // 2):
            gap = centres[:, sides, axis] - places[:, sides, axis]
            length = np.minimum(np.abs(gap), budget)
            places[:, sides, axis] += np.copysign(length, gap)
            budget -= length
        return places

    def is_done(self, which: Array, vehicle: Array) -> Array:
        """Return [n] bool, whether vehicles do not decide again."""
        period = self.city.period
        next_decision = np.ceil(self.free_at[which, vehicle] / period - 1e-9) * period
        return np.asarray(next_decision >= self.shift_end[which, vehicle])

    # ----------------------------------------------------------------------------------------- time

    def advance(self, which: Array) -> Array:
        """Let time pass in each environment until a vehicle has to decide, or the day is over.

        Args:
            which: [n] numbers of the environments.

        Returns:
            [n] number of passengers that have left.
        """
        n_lost = np.zeros(len(which), np.int64)
        places = np.flatnonzero((self.n_undecided[which] == 0) & ~self.is_over(which))
        while len(places):
            envs = which[places]
            n_lost[places] += self._advance_period(envs)
            is_over = self.is_over(envs)
            self._find_idle(envs[~is_over])
            places = places[~is_over & (self.n_undecided[envs] == 0)]
        return n_lost

    def _advance_period(self, which: Array) -> Array:
        """Let a period pass; return the number of passengers [n] that have left."""
        new, counts = self._draw_requests(which)
        self.index[which] += 1
        before = self.n_waiting[which]
        n_rows = int((before + counts).max())
        table = _free_rows(len(which), max(n_rows, self.waiting.shape[1]))
        table[:, : self.waiting.shape[1]] = self.waiting[which]
        lines = np.repeat(np.arange(len(which)), counts)
        firsts = before - (counts.cumsum() - counts)
        table[lines, np.arange(len(new)) + firsts[lines]] = new
        stays = table[:, :, DEADLINE] >= self.now(which)[:, np.newaxis]
        lines, rows = np.nonzero(stays)
        left = stays.sum(axis=1)
        self._grow(int(left.max()))
        kept = _free_rows(len(which), self.waiting.shape[1])
        kept[lines, stays.cumsum(axis=1)[lines, rows] - 1] = table[lines, rows]
        self.waiting[which] = kept
        self.n_waiting[which] = left
        return np.asarray(before + counts - left)

    def _grow(self, n_rows: int) -> None:
        """Make room for waiting requests."""
        capacity = self.waiting.shape[1]
        if n_rows > capacity:
            grown = _free_rows(len(self.index), max(n_rows, 2 * capacity))
            grown[:, :capacity] = self.waiting
            self.waiting = grown

    def _draw_requests(self, which: Array) -> tuple[Array, Array]:
        """Draw the requests of a period in each environment; see `City.draw_requests`.

        Returns:
            [sum of counts, 7] the requests, one environment after the other, and [n] their counts.
        """
        city = self.city
        streams = self.streams
        index = self.index[which]
        counts = streams.poisson(city.means[index], which)
        lines = np.repeat(np.arange(len(which)), counts)
        requests = np.empty((len(lines), N_COLUMNS))
        moments = streams.random_each(counts, which)
        moments = moments[np.lexsort((moments, lines))]
        requests[:, APPEARED] = (index[lines] + moments) * city.period
        kinds = (
            (ORIGIN, city.origins, city.origin_centres),
            (DESTINATION, city.destinations, city.destination_centres),
        )
        for columns, spots, centres in kinds:
            uniform = streams.random_each(2 * counts, which).reshape(-1, 2)
            normal = streams.standard_normal_each(2 * counts, which).reshape(-1, 2)
            choice = streams.random_each(counts, which)
            around = np.moveaxis(centres[index[lines]], 1, 0)  # [hot spots, requests, 2]
            requests[:, columns] = city.places(spots, around, uniform, normal, choice)
        low, high = self.single.patience
        patience = low + (high - low) * streams.random_each(counts, which)
        requests[:, DEADLINE] = requests[:, APPEARED] + patience
        requests[:, DISTANCE] = np.abs(requests[:, DESTINATION] - requests[:, ORIGIN]).sum(axis=1)
        return requests, counts

    def _find_idle(self, which: Array) -> None:
        """Find the vehicles that have to decide, in the order in which their last drives or waits ended."""
        now = self.now(which)[:, np.newaxis]
        free_at = self.free_at[which]
        is_free = (free_at <= now + 1e-9 * self.city.period) & (now < self.shift_end[which])
        self.undecided[which] = np.argsort(np.where(is_free, free_at, np.inf), axis=1, kind="stable")
        self.n_undecided[which] = is_free.sum(axis=1)

    def state(self, env: int) -> RideHailingMazeState:
        """Return a copy of the state of one environment."""
        return RideHailingMazeState(
            city=self.city,
            now=int(self.index[env]) * self.city.period,
            n_nearest=self.single.n_nearest,
            positions=self.positions[env].copy(),
            free_at=self.free_at[env].copy(),
            shift_start=self.shift_start[env].copy(),
            shift_end=self.shift_end[env].copy(),
            undecided=tuple(self.undecided[env, : self.n_undecided[env]].tolist()),
            waiting=self.waiting[env, : self.n_waiting[env]].copy(),
            trips=self.trips[env].copy(),
        )


def _free_rows(n_envs: int, n_rows: int) -> Array:
    """Tables [n_envs, n_rows, 7] without requests."""
    rows = np.zeros((n_envs, n_rows, N_COLUMNS))
    rows[:, :, DEADLINE] = -np.inf
    return rows

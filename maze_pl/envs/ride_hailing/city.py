"""A city: distances, zones, prices, and demand that moves over the day."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Stops = Sequence[tuple[float, float, float]]

_REACH = 3.0
"""Distance over which demand and vehicles count as near, km."""


@dataclass(frozen=True)
class HotSpot:
    """Place around which trips begin or end, and which moves over the day.

    Places are normally distributed around the centre, clipped to the city. Between two stops the
    centre moves on a straight line; before the first and after the last one, it stands still.

    Args:
        stops: Hour of the day and coordinates of the centre, km, in the order of time; hours after
            midnight are those from 24 on.
        spread: Standard deviation of both coordinates, km.
        share: Share of all trips.
    """

    stops: Stops
    spread: float = 1.2
    share: float = 0.7

    def __post_init__(self) -> None:
        hours = [hour for hour, _, _ in self.stops]
        if not hours or sorted(set(hours)) != hours:
            raise ValueError(f"stops of a hot spot need hours that increase, not {hours}")
        if not self.spread > 0 or not 0 <= self.share <= 1:
            raise ValueError(f"a hot spot needs spread above 0 and share in 0 to 1, not {self.spread}, {self.share}")

    def centre(self, hour: float) -> Array:
        """Return the centre [2] at an hour of the day."""
        stops = np.array(self.stops, np.float64)
        return np.array([np.interp(hour, stops[:, 0], stops[:, axis]) for axis in (1, 2)])


MORNING_TO_EVENING = (
    HotSpot(stops=((7, 1.5, 1.5), (10, 6.0, 6.0), (14, 10.5, 4.5), (18, 10.5, 10.5)), share=0.55),
    HotSpot(stops=((7, 10.5, 1.5), (11, 6.0, 1.5), (17, 1.5, 7.5)), share=0.25),
)
DESTINATIONS = (
    HotSpot(stops=((7, 6.0, 6.0), (12, 10.5, 7.5), (19, 1.5, 1.5)), share=0.4),
    HotSpot(stops=((7, 1.5, 10.5), (19, 1.5, 10.5)), share=0.3),
)


class City:
    """A square with Manhattan distances, divided into square zones, and its demand.

        requests of a period ~ Poisson(rate * profile(hour)),   fare = base + per km * distance

    The origin and the destination of a request are drawn from the hot spots with their shares, and
    uniformly from the whole city otherwise. The forecast is the exact mean of this distribution.

    Args:
        size: Edge of the city, km.
        n_zones: Number of zones along an edge, G.
        rate: Mean number of requests in an hour.
        profile: Hour of the day and factor of the rate, in the order of time; linear in between.
            Hours after midnight are those from 24 on.
        origins: Hot spots of origins.
        destinations: Hot spots of destinations.
        start_hour: Hour of the day at which episodes begin.
        n_hours: Length of an episode, hours.
        period: Minutes between decisions.
        speed: Speed of all vehicles, km per hour.
        base_fare: Fare of a trip of length 0.
        fare_per_km: Addition to the fare for each km.
        cost_per_km: Cost of driving, with and without a passenger.
        lookahead: Minutes of demand that the forecast adds up.

    Raises:
        TypeError: Something other than a hot spot is given as one.
        ValueError: A number is out of range.
    """

    def __init__(
        self,
        size: float = 12.0,
        n_zones: int = 4,
        rate: float = 36.0,
        profile: Sequence[tuple[float, float]] = ((7, 1.2), (9, 1.3), (12, 0.7), (16, 1.0), (18, 1.2)),
        origins: Sequence[HotSpot] = MORNING_TO_EVENING,
        destinations: Sequence[HotSpot] = DESTINATIONS,
        start_hour: float = 7.0,
        n_hours: float = 12.0,
        period: float = 5.0,
        speed: float = 24.0,
        base_fare: float = 3.0,
        fare_per_km: float = 1.5,
        cost_per_km: float = 0.3,
        lookahead: float = 30.0,
    ) -> None:
        positive = {"size": size, "n_hours": n_hours, "period": period, "speed": speed, "lookahead": lookahead}
        for name, value in positive.items():
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name}={value} must be a number above 0")
        amounts = {"rate": rate, "base_fare": base_fare, "fare_per_km": fare_per_km, "cost_per_km": cost_per_km}
        for name, value in amounts.items():
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name}={value} must be a number of at least 0")
        if n_zones < 1:
            raise ValueError(f"{n_zones=} must be at least 1")
        for name, spots in {"origins": origins, "destinations": destinations}.items():
            wrong = [spot for spot in spots if not isinstance(spot, HotSpot)]
            if wrong:
                expected = "hot spots, such as {class_path: maze_pl.envs.ride_hailing.HotSpot, init_args: {stops: ...}}"
                raise TypeError(f"{name} has {wrong[0]!r}; expected {expected}")
            if sum(spot.share for spot in spots) > 1 + 1e-9:
                raise ValueError(f"the shares of the hot spots of {name} add up to more than 1")
        hours = [hour for hour, _ in profile]
        if not hours or sorted(set(hours)) != hours or min(factor for _, factor in profile) < 0:
            raise ValueError(f"{profile=} needs hours that increase and factors of at least 0")
        self.size = size
        self.n_zones = n_zones
        self.rate = rate
        self.profile = tuple(profile)
        self.origins = tuple(origins)
        self.destinations = tuple(destinations)
        self.start_hour = start_hour
        self.period = period
        self.n_periods = math.ceil(n_hours * 60 / period)
        self.minutes = self.n_periods * period
        self.speed = speed / 60  # km per minute
        self.base_fare = base_fare
        self.fare_per_km = fare_per_km
        self.cost_per_km = cost_per_km
        self.lookahead = lookahead
        edges = (np.arange(n_zones) + 0.5) * size / n_zones
        self.centres = np.stack([np.tile(edges, n_zones), np.repeat(edges, n_zones)], axis=1)  # [G * G, 2]
        self.neighbours = _neighbours(n_zones)
        distances = np.abs(self.centres[:, None] - self.centres).sum(axis=2)
        self.nearness = np.exp(-distances / _REACH)  # [Z, Z]
        periods = range(self.n_periods)
        self.means = np.array([self.mean_requests(index) for index in periods])  # [P]
        self.origin_centres = self._centres(self.origins)  # [P, number of hot spots, 2]
        self.destination_centres = self._centres(self.destinations)
        self.expected = np.array([self._expected(index) for index in periods])  # [P, Z]
        self.forecast = self._windows()
        self.total_forecast = self.forecast.sum(axis=1)  # [P + 1]
        self.near_demand = self.forecast @ self.nearness

    def zone_of(self, position: Array) -> int:
        """Return the zone of a position [2], row by row from the south-west."""
        scale = self.n_zones / self.size
        column = min(int(position[0] * scale), self.n_zones - 1)
        row = min(int(position[1] * scale), self.n_zones - 1)
        return row * self.n_zones + column

    def zones_of(self, positions: Array) -> Array:
        """Return the zones [n] of positions [n, 2]."""
        cells = np.minimum((positions * (self.n_zones / self.size)).astype(np.int64), self.n_zones - 1)
        return np.asarray(cells[:, 1] * self.n_zones + cells[:, 0])

    def hour_of(self, minutes: float) -> float:
        """Return the hour of the day of a time of the episode."""
        return self.start_hour + minutes / 60

    def period_of(self, minutes: Any) -> Any:
        """Return the numbers of the periods of times [...] of the episode, at most the number of periods.

        A time that is the start of a period up to rounding belongs to it.
        """
        return np.minimum(np.floor(minutes / self.period + 1e-9).astype(np.int64), self.n_periods)

    def mean_requests(self, index: int) -> float:
        """Return the expected number of requests of a period."""
        hours, factors = zip(*self.profile, strict=True)
        hour = self.hour_of((index + 0.5) * self.period)
        return float(self.rate * self.period / 60 * np.interp(hour, hours, factors))

    def fares(self, distances: Array) -> Array:
        """Return the fares of trips of these distances, km."""
        return self.base_fare + self.fare_per_km * distances

    def draw_requests(self, index: int, generator: np.random.Generator) -> tuple[Array, Array, Array]:
        """Draw the requests of a period.

        Args:
            index: Number of the period.
            generator: Source of all randomness.

        Returns:
            Times in minutes [n], in order, origins [n, 2] and destinations [n, 2].
        """
        n = int(generator.poisson(self.means[index]))
        times = (index + np.sort(generator.random(n))) * self.period
        numbers = (generator.random((n, 2)), generator.standard_normal((n, 2)), generator.random(n))
        origins = self.places(self.origins, self.origin_centres[index], *numbers)
        numbers = (generator.random((n, 2)), generator.standard_normal((n, 2)), generator.random(n))
        return times, origins, self.places(self.destinations, self.destination_centres[index], *numbers)

    def places(self, spots: Sequence[HotSpot], centres: Array, uniform: Array, normal: Array, choice: Array) -> Array:
        """Return the places [n, 2] that random numbers stand for.

        Args:
            spots: Hot spots of origins or destinations, S.
            centres: [S, 2] their centres, or [S, n, 2] another one for each place.
            uniform: [n, 2] places in a city of size 1, for those outside of the hot spots.
            normal: [n, 2] distances from a centre, in standard deviations.
            choice: [n] numbers in [0, 1) that choose the hot spot.
        """
        places = uniform * self.size
        end = 0.0
        for spot, centre in zip(spots, centres, strict=True):
            chosen = (choice >= end) & (choice < end + spot.share)
            around = centre if centre.ndim == 1 else centre[chosen]
            places[chosen] = around + spot.spread * normal[chosen]
            end += spot.share
        return np.clip(places, 0, self.size)

    def near(self, counts: Array) -> Array:
        """Return the numbers [..., Z] near each zone, from those of the zones [..., Z]; see `nearness`."""
        return np.asarray((self.nearness * counts[..., np.newaxis, :]).sum(axis=-1))

    def _centres(self, spots: Sequence[HotSpot]) -> Array:
        """Return the centres [P, S, 2] of hot spots in the middle of each period."""
        hours = [self.hour_of((index + 0.5) * self.period) for index in range(self.n_periods)]
        centres = np.empty((self.n_periods, len(spots), 2))
        for place, spot in enumerate(spots):
            centres[:, place] = [spot.centre(hour) for hour in hours]
        return centres

    def _expected(self, index: int) -> Array:
        """Return the expected requests of a period by zone of their origin [Z]."""
        g = self.n_zones
        shares = np.full((g, g), (1 - sum(spot.share for spot in self.origins)) / g**2)
        edges = np.arange(1, g) * self.size / g
        for spot, centres in zip(self.origins, self.origin_centres[index], strict=True):
            along = []
            for centre in centres:
                below = [0.5 * (1 + math.erf((edge - centre) / spot.spread / math.sqrt(2))) for edge in edges]
                along.append(np.diff([0.0, *below, 1.0]))  # clipped places are in the outermost zones
            shares += spot.share * np.outer(along[1], along[0])
        return np.asarray(self.means[index] * shares.ravel())

    def _windows(self) -> Array:
        """Return the expected requests [P + 1, Z] in the time that the forecast adds up; 0 at the end."""
        n = max(round(self.lookahead / self.period), 1)
        rows = [self.expected[index : index + n].sum(axis=0) for index in range(self.n_periods)]
        return np.array([*rows, np.zeros(self.n_zones**2)])


def _neighbours(n_zones: int) -> Array:
    """Return the zones west, east, south and north of each zone [Z, 4], -1 outside of the city."""
    zones = np.arange(n_zones**2).reshape(n_zones, n_zones)
    padded = np.pad(zones, 1, constant_values=-1)
    sides = [padded[1:-1, :-2], padded[1:-1, 2:], padded[:-2, 1:-1], padded[2:, 1:-1]]
    return np.stack(sides, axis=-1).reshape(-1, 4)

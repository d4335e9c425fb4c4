"""Zones, demand and the forecast of a city."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.envs.ride_hailing import City, HotSpot


def test_zones_and_their_neighbours_by_hand() -> None:
    city = City(size=6.0, n_zones=3)
    assert city.centres[[0, 2, 4]].tolist() == [[1, 1], [5, 1], [3, 3]]
    assert city.zones_of(np.array([[0, 0], [2, 0], [6, 6], [1.9, 4]])).tolist() == [0, 1, 8, 6]
    assert city.neighbours[0].tolist() == [-1, 1, -1, 3]  # west, east, south, north
    assert city.neighbours[4].tolist() == [3, 5, 1, 7]


def test_the_centre_of_a_hot_spot_moves_between_its_stops() -> None:
    spot = HotSpot(stops=((8, 0, 2), (10, 4, 6)))
    assert [spot.centre(hour).tolist() for hour in (7, 8, 9, 12)] == [[0, 2], [0, 2], [2, 4], [4, 6]]


def test_the_forecast_is_the_mean_of_the_requests_of_each_zone() -> None:
    city = City(rate=60.0)
    generator = np.random.default_rng(0)
    totals = np.zeros(16)
    for _ in range(1000):
        _, origins, _ = city.draw_requests(20, generator)
        totals += np.bincount(city.zones_of(origins), minlength=16)
    np.testing.assert_allclose(totals / 1000, city.expected[20], atol=0.1)
    assert city.expected[20].sum() == pytest.approx(city.mean_requests(20))
    assert city.forecast[20] == pytest.approx(city.expected[20:26].sum(axis=0))
    assert not city.forecast[city.n_periods].any()


def test_requests_come_in_the_order_of_time_and_begin_and_end_in_the_city() -> None:
    city = City(rate=600.0)
    times, origins, destinations = city.draw_requests(3, np.random.default_rng(0))
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 15
    assert times[-1] < 20
    for places in (origins, destinations):
        assert places.shape == (len(times), 2)
        assert places.min() >= 0
        assert places.max() <= city.size


@pytest.mark.parametrize("period", [0.7, 1 / 3, 2.2, 5.0])
def test_the_start_of_a_period_belongs_to_it_whatever_its_length(period: float) -> None:
    city = City(period=period, n_hours=3.0, rate=0.0)
    index = np.arange(city.n_periods)
    assert city.period_of(index * city.period).tolist() == index.tolist()
    assert city.period_of((index + 0.99) * city.period).tolist() == index.tolist()
    assert city.period_of(1e6) == city.n_periods


def test_hot_spots_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match=r"origins has {'stops': .*; expected hot spots, such as {class_path: "):
        City(origins=[{"stops": [[7, 1, 1]], "share": 0.5}])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0.0}, "size=0.0 must be a number above 0"),
        ({"rate": -1.0}, "rate=-1.0 must be a number of at least 0"),
        ({"n_zones": 0}, "n_zones=0 must be at least 1"),
        ({"profile": ((9, 1.0), (8, 1.0))}, "needs hours that increase"),
        ({"origins": [HotSpot(((7, 1, 1),), share=0.6)] * 2}, "hot spots of origins add up to more than 1"),
    ],
)
def test_wrong_options_get_one_message(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        City(**options)


@pytest.mark.parametrize(("stops", "share"), [((), 0.5), (((9, 1, 1), (8, 1, 1)), 0.5), (((9, 1, 1),), 2.0)])
def test_wrong_hot_spots_get_one_message(stops: Any, share: float) -> None:
    with pytest.raises(ValueError, match="hot spot need"):
        HotSpot(stops, share=share)

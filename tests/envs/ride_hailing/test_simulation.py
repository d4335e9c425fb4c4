"""The simulation against days computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.envs.ride_hailing import Drive, RideHailingSimulation
from tests.envs.ride_hailing.small import EMPTY, begun


def test_a_trip_by_hand() -> None:
    simulation = begun([[30, 4, 1, 4, 7]], [[1, 1]])
    drive = simulation.accept(0, 0)
    # 3 km at 0.4 km per minute, from 5 minutes ago; then 6 km
    assert drive == Drive(0, 3.0, 6.0, 12.0, waiting_time=pytest.approx(12.5), overtime=0.0, accepts=True)
    assert simulation.positions[0].tolist() == [4, 7]
    assert simulation.free_at[0] == pytest.approx(22.5)
    assert not simulation.is_done(0)
    assert (simulation.undecided, len(simulation.waiting)) == ([], 0)
    simulation.advance(np.random.default_rng(0))
    assert (simulation.now, simulation.undecided) == (25.0, [0])  # the first period after 22.5


def test_a_trip_beyond_the_end_of_the_shift_is_overtime_and_the_last_one() -> None:
    simulation = begun([[30, 1, 1, 8, 8]], [[1, 1], [5, 5]])
    simulation.shift_end[0] = 20.0
    drive = simulation.accept(0, 0)
    assert drive.overtime == pytest.approx(35 - 20)
    assert simulation.is_done(0)
    simulation.stay(0)
    for _ in range(12):
        simulation.advance(np.random.default_rng(0))
        if simulation.is_over:
            break
        assert simulation.undecided == [1]
        simulation.stay(0)


def test_drives_to_other_zones_by_hand() -> None:
    simulation = begun([], [[3, 1], [5, 5]])
    simulation.move(0, 1)  # 2 km to the east, towards (6, 2)
    assert simulation.positions[0].tolist() == [5, 1]
    assert simulation.free_at[0] == 5.0
    assert simulation.move(0, 3) == Drive(1)  # there is nothing in the north
    assert simulation.positions[1].tolist() == [5, 5]
    simulation = begun([], [[5.5, 0]])
    assert simulation.move(0, 0).empty == pytest.approx(2.0)
    assert simulation.positions[0].tolist() == [3.5, 0]
    simulation = begun([], [[4.5, 1.5]])
    simulation.move(0, 3)  # the centre of the zone is 4.5 km away, first in the direction of the zone
    assert simulation.positions[0].tolist() == [4.5, 3.5]


def test_only_the_nearest_requests_that_are_reached_in_time_may_be_chosen() -> None:
    simulation = begun([[7.4, 4, 1, 0, 0], [8, 4, 1, 0, 0], [8, 1, 1, 0, 0], [8, 2, 1, 0, 0]], [[1, 1]], n_nearest=2)
    assert simulation.state().nearest(0).tolist() == [2, 3]
    simulation.waiting = simulation.waiting[:2]
    assert simulation.state().nearest(0).tolist() == [1]  # 3 km take 7.5 minutes


def test_passengers_leave_when_their_patience_ends() -> None:
    simulation = begun([[4, 1, 1, 2, 2], [5, 1, 1, 2, 2]], [[7, 7]])
    simulation.stay(0)
    assert simulation.advance(np.random.default_rng(0)) == 1
    assert simulation.waiting[:, 1].tolist() == [5]


def test_the_vehicle_that_has_been_free_longest_decides_first() -> None:
    simulation = begun([[30, 3, 1, 3, 2], [30, 1, 1, 1, 2]], [[1, 1], [1, 1], [7, 7]])
    simulation.accept(0, 0)  # 3 km: free at 7.5
    simulation.accept(0, 0)  # 1 km: free at 2.5
    simulation.stay(0)
    simulation.advance(np.random.default_rng(0))
    assert simulation.undecided == [1, 2]
    simulation.stay(0)
    simulation.stay(0)
    simulation.advance(np.random.default_rng(0))
    assert simulation.undecided == [0, 1, 2]


def test_every_vehicle_decides_only_within_its_shift_and_the_day_ends() -> None:
    generator = np.random.default_rng(1)
    simulation = RideHailingSimulation(EMPTY, n_shifts=4, shift_hours=(0.25, 0.5))
    simulation.reset(generator)
    seen = set()
    while not simulation.is_over:
        for vehicle in simulation.undecided:
            assert simulation.shift_start[vehicle] <= simulation.now < simulation.shift_end[vehicle]
        seen |= set(simulation.undecided)
        while simulation.undecided:
            simulation.stay(0)
        simulation.advance(generator)
    assert seen == {0, 1, 2, 3}
    assert simulation.now == 120


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_shifts": 0}, "n_shifts=0 must be at least 1"),
        ({"n_nearest": 0}, "n_nearest=0 must be at least 1"),
        ({"patience": (20.0, 10.0)}, "the smaller one first"),
        ({"shift_hours": (0.0, 1.0)}, "must be two numbers above 0"),
    ],
)
def test_wrong_options_get_one_message(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RideHailingSimulation(EMPTY, **options)

"""Where orders come from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.envs.cutting_2d import (
    Cutting2DCoreEnvironment,
    Cutting2DMazeAction,
    DemandGenerator,
    MixedPeriodicDemand,
    StaticDemand,
    UniformDemand,
)
from tests.envs.cutting_2d.instances import CYCLE

NOTHING = Cutting2DMazeAction(10**6, False, False)


def orders(demand: object, n: int, seed: int = 0, raw: tuple[int, int] = (10, 8)) -> list[tuple[int, int]]:
    """The first orders of an episode."""
    env = Cutting2DCoreEnvironment(5, raw, demand)  # type: ignore[arg-type]
    env.seed(seed)
    states = [env.reset(), *(env.step(NOTHING)[0] for _ in range(n - 1))]
    return [state.current_demand for state in states]


def test_one_piece_is_ordered_again_and_again() -> None:
    assert orders((3, 2), 4) == orders([(3, 2)], 4) == orders(StaticDemand((3, 2)), 4) == [(3, 2)] * 4


def test_several_pieces_are_ordered_in_a_cycle() -> None:
    assert orders(CYCLE, 14) == orders(StaticDemand(CYCLE), 14) == [*CYCLE, *CYCLE, *CYCLE[:2]]


@given(n=st.integers(1, 3), more=st.integers(0, 9), rotate=st.booleans(), seed=st.integers(0, 99), turned=st.booleans())
def test_a_mixed_period_fills_raw_pieces_exactly(n: int, more: int, rotate: bool, seed: int, turned: bool) -> None:
    raw = (5, 4) if turned else (4, 5)
    period = MixedPeriodicDemand(n, n + more, rotate).period(raw, np.random.default_rng(seed), [])
    assert len(period) == n + more
    assert sum(x * y for x, y in period) == n * 20
    assert all(x >= 1 and y >= 1 and (rotate or (x <= raw[0] and y <= raw[1])) for x, y in period)


def test_a_mixed_period_is_repeated_in_its_episode_and_drawn_anew_for_the_next() -> None:
    demand = MixedPeriodicDemand(n_raw_pieces=3, m_demanded_pieces=10, rotate=True)
    first, second = orders(demand, 30, seed=1), orders(demand, 30, seed=2)
    assert first == first[:10] * 3
    assert first != second
    assert first == orders(demand, 30, seed=1)


def test_pieces_are_turned_only_if_asked_to() -> None:
    wide, turned = (orders(MixedPeriodicDemand(20, 20, rotate), 20, raw=(3, 1)) for rotate in (False, True))
    assert set(wide) == {(3, 1)}
    assert set(turned) == {(3, 1), (1, 3)}


@pytest.mark.parametrize(("n", "m"), [(0, 3), (4, 3), (1, 81)])
def test_a_period_that_cannot_be_cut_is_refused_by_its_numbers(n: int, m: int) -> None:
    with pytest.raises(ValueError, match=f"n_raw_pieces={n} of size .10, 8. cannot be cut into m_demanded_pieces={m}"):
        Cutting2DCoreEnvironment(5, (10, 8), MixedPeriodicDemand(n, m))


def test_uniform_orders_have_all_sizes_equally_often() -> None:
    drawn = np.array(orders(UniformDemand((6, 5)), 6000))
    for axis, largest in ((0, 6), (1, 5)):
        counts = np.bincount(drawn[:, axis])[1:]
        assert len(counts) == largest
        assert np.abs(counts - 6000 / largest).max() < 5 * (6000 / largest) ** 0.5
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.06
    assert abs(np.corrcoef(drawn[1:, 0], drawn[:-1, 0])[0, 1]) < 0.06


def test_uniform_orders_depend_on_the_seed_alone() -> None:
    demand = UniformDemand((6, 5))
    assert orders(demand, 300, seed=4) == orders(UniformDemand((6, 5)), 300, seed=4) != orders(demand, 300, seed=5)


class Shrinking(DemandGenerator):
    """Orders of the user's own kind."""

    def period(
        self, raw_piece_size: tuple[int, int], generator: np.random.Generator, last: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        return [(last[-1][0] - 1, 1)] if last else [(3, 1)]


def test_a_users_generator_is_asked_period_by_period_and_checked() -> None:
    assert orders(Shrinking(), 3) == [(3, 1), (2, 1), (1, 1)]
    with pytest.raises(ValueError, match=r"orders that fit into raw pieces of size \(10, 8\): got \[\(0, 1\)\]"):
        orders(Shrinking(), 4)


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        ((11, 1), r"size \(10, 8\): got \[\(11, 1\)\]"),
        ((9, 9), r"got \[\(9, 9\)\]"),
        ([(1, 1), (0, 2)], r"got \[\(0, 2\)\]"),
        ([], "got none"),
        (UniformDemand((10, 9)), r"max_size=\(10, 9\) of UniformDemand is larger than raw pieces of size \(10, 8\)"),
    ],
)
def test_orders_that_cannot_be_served_are_refused_when_the_environment_is_made(demand: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        orders(demand, 1)


def test_a_largest_order_is_refused_however_rare_it_is() -> None:
    for _ in range(20):
        with pytest.raises(ValueError, match=r"max_size=\(200, 201\) of UniformDemand is larger"):
            Cutting2DCoreEnvironment(5, (200, 200), UniformDemand((200, 201)))
    assert Cutting2DCoreEnvironment(5, (200, 100), UniformDemand((100, 200)))  # rotated


def test_turned_orders_fit_where_upright_ones_do_not() -> None:
    assert orders((8, 10), 1) == [(8, 10)]


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"max_size=\(0, 5\)"):
        UniformDemand((0, 5))
    with pytest.raises(ValueError, match="max_pieces_in_inventory=0"):
        Cutting2DCoreEnvironment(0, (4, 3), (1, 1))
    with pytest.raises(ValueError, match=r"raw_piece_size=\(4, 0\)"):
        Cutting2DCoreEnvironment(1, (4, 0), (1, 1))

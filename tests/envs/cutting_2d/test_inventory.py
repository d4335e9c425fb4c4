"""The stock, and the geometry of cuts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.envs.cutting_2d import Cutting2DMazeAction, Inventory, InventoryEvents
from maze_pl.events import EnvironmentContext, Pubsub
from tests.envs.cutting_2d.instances import Cutting2DMazeState, valid_cuts


def make(max_pieces: int = 10, raw: tuple[int, int] = (10, 8), pieces: tuple[tuple[int, int], ...] = ()) -> Inventory:
    inventory = Inventory(max_pieces, raw, Pubsub(EnvironmentContext()).create_event_topic(InventoryEvents))
    inventory.pieces = list(pieces)
    return inventory


def events(inventory: Inventory) -> list[tuple[str, dict[str, object]]]:
    topic: object = inventory.inventory_events
    return [(record.event.__name__, record.attributes) for record in topic._pubsub.get_step_events()]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("rotate", "reverse", "remains"),
    [
        (False, False, [(7, 8), (3, 6)]),  # x: 10 -> 3, then y: 8 -> 2
        (False, True, [(10, 6), (7, 2)]),  # y: 8 -> 2, then x: 10 -> 3
        (True, False, [(8, 8), (2, 5)]),  # the order is 2 x 3 now
        (True, True, [(10, 5), (8, 3)]),
    ],
)
def test_two_cuts_leave_two_pieces(rotate: bool, reverse: bool, remains: list[tuple[int, int]]) -> None:
    inventory = make(pieces=((1, 1), (10, 8)))
    assert inventory.cut(Cutting2DMazeAction(1, rotate, reverse), (3, 2))
    assert inventory.pieces == [(1, 1), *remains]
    assert inventory.size() == 3


@pytest.mark.parametrize(
    ("order", "remains"), [((10, 3), [(10, 5)]), ((4, 8), [(6, 8)]), ((10, 8), []), ((9, 7), [(1, 8), (9, 1)])]
)
def test_nothing_is_stored_where_nothing_is_left(order: tuple[int, int], remains: list[tuple[int, int]]) -> None:
    inventory = make(pieces=((10, 8),))
    assert inventory.cut(Cutting2DMazeAction(0, False, False), order)
    assert inventory.pieces == remains


@pytest.mark.parametrize(
    ("index", "rotate", "order"), [(0, True, (10, 3)), (0, False, (3, 10)), (0, False, (11, 1)), (1, False, (1, 1))]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_orders_that_do_not_fit_change_nothing(index: int, rotate: bool, order: tuple[int, int], reverse: bool) -> None:
    inventory = make(pieces=((10, 8),))
    assert not inventory.cut(Cutting2DMazeAction(index, rotate, reverse), order)
    assert inventory.pieces == [(10, 8)]
    assert not events(inventory)


def test_negative_positions_are_no_positions() -> None:
    inventory = make(pieces=((10, 8),))
    assert not inventory.cut(Cutting2DMazeAction(-1, False, False), (1, 1))


def test_a_full_stock_discards_its_oldest_piece() -> None:
    inventory = make(max_pieces=2, pieces=((1, 1), (2, 2)))
    assert inventory.is_full()
    inventory.replenish_piece()
    assert inventory.pieces == [(2, 2), (10, 8)]
    assert events(inventory) == [("piece_discarded", {"piece": (1, 1)}), ("piece_replenished", {})]


def test_both_remains_may_push_pieces_out() -> None:
    inventory = make(max_pieces=2, pieces=((1, 1), (10, 8)))
    assert inventory.cut(Cutting2DMazeAction(1, False, False), (3, 2))
    assert inventory.pieces == [(7, 8), (3, 6)]
    assert events(inventory) == [("piece_discarded", {"piece": (1, 1)})]


sides = st.tuples(st.integers(1, 9), st.integers(1, 9))


@given(raw=sides, orders=st.lists(sides, min_size=1, max_size=12), choice=st.randoms(use_true_random=False))
def test_area_is_kept_and_remains_fit_into_the_piece(
    raw: tuple[int, int], orders: list[tuple[int, int]], choice: object
) -> None:
    inventory = make(max_pieces=100, raw=raw)
    inventory.replenish_piece()
    delivered = 0
    for order in orders:
        cuts = valid_cuts(Cutting2DMazeState(inventory.pieces, 100, order, raw))
        if not cuts:
            continue
        action = choice.choice(cuts)  # type: ignore[attr-defined]
        before = inventory.pieces.copy()
        cut_piece = before.pop(action.piece_id)
        assert inventory.cut(action, order)
        delivered += order[0] * order[1]
        remains = inventory.pieces[len(before) :]
        assert inventory.pieces[: len(before)] == before
        assert all(0 < x <= cut_piece[0] and 0 < y <= cut_piece[1] for x, y in remains)
        assert sum(x * y for x, y in inventory.pieces) + delivered == raw[0] * raw[1]

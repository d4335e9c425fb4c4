"""States and actions of the cutting problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

Piece = tuple[int, int]
"""Extent in x and in y."""


@dataclass(frozen=True, slots=True)
class Cutting2DMazeAction:
    """Action of the simulation: the piece to cut, and the cuts.

    Attributes:
        piece_id: Position of the piece in stock.
        rotate: Whether the order is rotated by 90 degrees.
        reverse_cutting_order: Whether the first cut sets the order's extent in y instead of in x.
    """

    piece_id: int
    rotate: bool
    reverse_cutting_order: bool


@dataclass(frozen=True, slots=True)
class Cutting2DMazeState:
    """State of the simulation: the stock and the current order.

    Attributes:
        inventory: Pieces in stock, the oldest first.
        max_pieces_in_inventory: Maximum number of pieces in stock.
        current_demand: The order to serve in the next step.
        raw_piece_size: Size of a raw piece.
    """

    inventory: list[Piece]
    max_pieces_in_inventory: int
    current_demand: Piece
    raw_piece_size: Piece

    def with_choice(self, piece_id: int) -> ChosenPieceMazeState:
        """Return the state after the first of two actors has chosen a piece.

        Args:
            piece_id: Position of the piece in stock.
        """
        return ChosenPieceMazeState(
            self.inventory, self.max_pieces_in_inventory, self.current_demand, self.raw_piece_size, piece_id
        )


@dataclass(frozen=True, slots=True)
class ChosenPieceMazeState(Cutting2DMazeState):
    """State that rules get in sub-step 1 of the structured forms: a piece is chosen, the cuts are not.

    Attributes:
        piece_id: Position of the chosen piece in stock; it may be that of an empty slot.
    """

    piece_id: int


def fits(order: Piece, piece: Piece) -> bool:
    """True if an order can be cut out of a piece, rotated or not."""
    return min(order) <= min(piece) and max(order) <= max(piece)


def refuse_orders(wrong: list[Piece], raw_piece_size: Piece) -> NoReturn:
    """Raise an error that names orders which cannot be cut out of a raw piece."""
    came = wrong or "none"
    raise ValueError(f"there must be orders that fit into raw pieces of size {raw_piece_size}: got {came}")

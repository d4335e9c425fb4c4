"""The stock of pieces."""

from maze_pl.envs.cutting_2d.events import InventoryEvents
from maze_pl.envs.cutting_2d.objects import Cutting2DMazeAction, Piece


class Inventory:
    """Stock that stores pieces and cuts them.

    Args:
        max_pieces_in_inventory: Maximum number of pieces in stock; a full stock discards its oldest
            piece to make room.
        raw_piece_size: Size of a raw piece.
        inventory_events: Topic through which events are fired.

    Attributes:
        pieces: The pieces in stock, the oldest first.
    """

    def __init__(self, max_pieces_in_inventory: int, raw_piece_size: Piece, inventory_events: InventoryEvents) -> None:
        self.max_pieces_in_inventory, self.raw_piece_size = max_pieces_in_inventory, raw_piece_size
        self.inventory_events = inventory_events
        self.pieces: list[Piece] = []

    def size(self) -> int:
        """Number of pieces in stock."""
        return len(self.pieces)

    def is_full(self) -> bool:
        """True if there is no room left."""
        return len(self.pieces) == self.max_pieces_in_inventory

    def store_piece(self, piece: Piece) -> None:
        """Add a piece; a full stock discards its oldest piece first."""
        if self.is_full():
            self.inventory_events.piece_discarded(self.pieces.pop(0))
        self.pieces.append(piece)

    def replenish_piece(self) -> None:
        """Add a raw piece."""
        self.store_piece(self.raw_piece_size)
        self.inventory_events.piece_replenished()

    def cut(self, maze_action: Cutting2DMazeAction, ordered_piece: Piece) -> bool:
        """Cut an order out of a piece and put the leftovers in stock.

        Args:
            maze_action: The piece and the cuts.
            ordered_piece: Size of the order.

        Returns:
            True if the cut was possible; otherwise nothing has changed.
        """
        if not 0 <= maze_action.piece_id < len(self.pieces):
            return False
        piece = self.pieces[maze_action.piece_id]
        order = ordered_piece[::-1] if maze_action.rotate else ordered_piece
        if order[0] > piece[0] or order[1] > piece[1]:
            return False
        del self.pieces[maze_action.piece_id]
        for residual in residuals(piece, order, maze_action.reverse_cutting_order):
            if residual[0] and residual[1]:
                self.store_piece(residual)
        return True


def residuals(piece: Piece, order: Piece, reverse_cutting_order: bool) -> tuple[Piece, Piece]:
    """Return the leftovers of the two cuts, in the order of the cuts; an empty one has a side of 0.

    The first cut goes straight across the piece and sets the order's extent in x, or in y if the
    cutting order is reversed. The second cut trims that part in the other direction.
    """
    (x, y), (width, height) = piece, order
    if reverse_cutting_order:
        return (x, y - height), (x - width, height)
    return (x - width, y), (width, y - height)

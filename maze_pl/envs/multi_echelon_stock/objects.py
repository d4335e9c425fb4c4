"""States and actions of the chain of stocks."""

from __future__ import annotations

from dataclasses import dataclass

from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.structured_env import Array


@dataclass(frozen=True, slots=True)
class StockMazeAction:
    """Action of the simulation.

    Attributes:
        amounts: Order quantities or levels in units, of all echelons (flat form) or of the echelon
            that acts (structured form).
    """

    amounts: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StockMazeState:
    """State of a chain at the start of a period, after receipts.

    Attributes:
        chain: Description of the chain.
        stock: [E] int64, units in stock.
        owed: [E] int64, units that each echelon owes: echelon 0 to customers, others to the one below.
        transit: [E, K] int64, units that arrive at each echelon in 1, 2, ..., K periods.
        received: [E, H] int64, the last H demands of each echelon, the newest first: of customers,
            then the orders of the echelon below.
        orders: [E] int64, orders that were placed in this period already; 0 for others.
        period: Number of complete periods.
        echelon: The echelon that acts next, -1 if all act together.
    """

    chain: StockChain
    stock: Array
    owed: Array
    transit: Array
    received: Array
    orders: Array
    period: int
    echelon: int = -1

    @property
    def positions(self) -> Array:
        """[E] int64, inventory positions: in stock, in transit and owed by the supplier, minus what is owed."""
        positions: Array = self.stock + self.transit.sum(axis=1) - self.owed
        positions[:-1] += self.owed[1:]
        return positions

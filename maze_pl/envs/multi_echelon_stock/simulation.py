"""The simulation: many chains at once, in arrays; a single chain is one of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.structured_env import Array


@dataclass(slots=True)
class ChainState:
    """Stocks of N chains at the start of a period, after receipts.

    Attributes:
        stock: [N, E] int64, units in stock.
        owed: [N, E] int64, units that each echelon owes: echelon 0 to customers, others to the one below.
        transit: [N, E, K] int64, units that arrive at each echelon in 1, 2, ..., K periods; K is
            the longest lead time minus 1, at least 1, since a shipment is received at the start of a period.
    """

    stock: Array
    owed: Array
    transit: Array

    def take(self, which: Array) -> ChainState:
        """Return copies of some chains."""
        return ChainState(self.stock[which], self.owed[which], self.transit[which])

    def put(self, which: Array, other: ChainState) -> None:
        """Replace some chains by others."""
        self.stock[which] = other.stock
        self.owed[which] = other.owed
        self.transit[which] = other.transit

    def positions(self) -> Array:
        """Inventory positions [N, E]: in stock, in transit and owed by the supplier, minus what is owed."""
        positions: Array = self.stock + self.transit.sum(axis=2) - self.owed
        positions[:, :-1] += self.owed[:, 1:]
        return positions


@dataclass(slots=True)
class PeriodResult:
    """Results of a period in N chains.

    Attributes:
        orders: [N, E] int64, orders, as they were accepted.
        shipped: [N, E] int64, units shipped to each echelon.
        demand: [N] int64, demand of customers.
        served: [N] int64, units of this demand that were served at once.
        lost: [N] int64, units of demand that were lost.
        stock: [N, E] int64, units in stock at the end, before receipts.
        holding: [N, E] float64, holding costs.
        shortage: [N, E] float64, costs of backlogs and lost sales.
        fixed: [N, E] float64, fixed costs of orders.
    """

    orders: Array
    shipped: Array
    demand: Array
    served: Array
    lost: Array
    stock: Array
    holding: Array
    shortage: Array
    fixed: Array

    @property
    def costs(self) -> Array:
        """[N, E] float64, all costs of each echelon."""
        return self.holding + self.shortage + self.fixed


def first_state(chain: StockChain, n: int) -> ChainState:
    """Return N chains at the start of an episode: the initial stock, the mean demand on its way in each period."""
    longest = max(int(chain.lead.max()) - 1, 1)
    slots = np.arange(1, longest + 1) < chain.lead[:, np.newaxis]
    room = np.maximum(chain.capacity - chain.first_stock, 0)
    each = np.minimum(round(chain.demand.mean), room // np.maximum(slots.sum(axis=1), 1))
    transit = np.where(slots, each[:, np.newaxis], 0).astype(np.int64)
    stock = np.tile(chain.first_stock, (n, 1))
    return ChainState(stock, np.zeros_like(stock), np.tile(transit, (n, 1, 1)))


def accepted_orders(chain: StockChain, state: ChainState, actions: Array) -> Array:
    """Orders [N, E] of actions [N, E] int64, which are quantities or levels.

    From echelon 0 upwards. The position of an echelon already counts the order that it has just
    received from below.
    """
    positions = state.positions()
    orders = np.zeros_like(positions)
    for echelon in range(chain.n_echelons):
        position = positions[:, echelon]
        if echelon:
            position = position - orders[:, echelon - 1]
        wanted = actions[:, echelon]
        if chain.target == "level":
            wanted = wanted - position
        wanted = np.minimum(wanted, chain.capacity[echelon] - position)
        orders[:, echelon] = np.clip(wanted, 0, chain.most_ordered[echelon])
    return orders


def run_period(chain: StockChain, state: ChainState, actions: Array, demand: Array) -> tuple[ChainState, PeriodResult]:
    """Play a period, and receive what arrives at the start of the next one.

    Args:
        chain: The chain.
        state: The state before.
        actions: [N, E] int64, order quantities or levels.
        demand: [N] int64, demand of customers.

    Returns:
        The next state, and the results.
    """
    orders = accepted_orders(chain, state, actions)
    stock = state.stock.copy()
    owed = state.owed.copy()
    shipped = orders.copy()  # the last echelon's supplier ships everything
    owed[:, 1:] += orders[:, :-1]
    shipped[:, :-1] = np.minimum(stock[:, 1:], owed[:, 1:])
    stock[:, 1:] -= shipped[:, :-1]
    owed[:, 1:] -= shipped[:, :-1]
    sold = np.minimum(stock[:, 0], owed[:, 0] + demand)
    served = np.minimum(np.maximum(stock[:, 0] - owed[:, 0], 0), demand)
    stock[:, 0] -= sold
    waiting = owed[:, 0] + demand - sold
    limit = waiting if chain.max_backlog is None else chain.max_backlog
    owed[:, 0] = np.minimum(waiting, limit)
    lost = waiting - owed[:, 0]
    shortage = owed * chain.backlog
    shortage[:, 0] += lost * chain.lost_sale_cost
    holding = stock * chain.holding
    fixed = (orders > 0) * chain.fixed
    result = PeriodResult(
        orders=orders,
        shipped=shipped,
        demand=demand,
        served=served,
        lost=lost,
        stock=stock.copy(),
        holding=holding,
        shortage=shortage,
        fixed=fixed,
    )
    transit = np.zeros_like(state.transit)
    transit[:, :, :-1] = state.transit[:, :, 1:]
    arrives = state.transit[:, :, 0].copy()
    places = np.broadcast_to(chain.lead - 2, shipped.shape)
    late = places >= 0
    rows, columns = np.nonzero(late)
    transit[rows, columns, places[late]] += shipped[late]
    arrives += np.where(late, 0, shipped)
    return ChainState(stock + arrives, owed, transit), result


def total(costs: Array) -> Array:
    """Sum [N] of costs [N, E], in the order of echelons, so that it does not depend on N."""
    result = costs[:, 0].copy()
    for echelon in range(1, costs.shape[1]):
        result += costs[:, echelon]
    return np.asarray(result)

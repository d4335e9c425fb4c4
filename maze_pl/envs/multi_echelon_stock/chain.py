"""Description of a chain of stocks: echelons, lead times, costs and limits."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite
from typing import Literal, get_args

import numpy as np

from maze_pl.core.checks import is_whole
from maze_pl.envs.multi_echelon_stock.poisson_demand import PoissonDemand
from maze_pl.envs.structured_env import Array

Numbers = float | Sequence[float]
Orders = Literal["discrete", "box"]
Targets = Literal["quantity", "level"]


class StockChain:
    """A serial chain of stocks: echelon 0 sells to customers, each one orders from the next.

    The supplier of the last echelon always delivers. Lists have one entry for each echelon, from
    the customers upwards; a single number counts for all.

    Args:
        lead_times: Periods from shipment to receipt, of each echelon; their number is that of echelons.
        demand: Demand of customers.
        holding_costs: Cost of a unit in stock at the end of a period.
        backlog_costs: Cost of a unit that is owed at the end of a period; echelon 0 owes to
            customers, the others to the echelon below.
        lost_sale_cost: Cost of a unit of demand that is lost.
        fixed_costs: Cost of an order, whatever its size.
        max_backlog: Largest number of units that customers wait for; further demand is lost.
            None has no limit, 0 means lost sales.
        max_order: Largest order of each echelon, in units; three times the largest mean demand if None.
        capacities: Largest inventory position of each echelon, in units: larger orders are cut.
            None has no limit.
        initial_stock: Units in stock at the start; mean demand times (lead time + 1) if None.
        periods: Periods of an episode.
        target: Meaning of actions: order quantities, or the inventory position after the order.
        max_level: Largest inventory position that an action can name, of each echelon, with
            target="level"; twice the largest mean demand during (lead time + 2) periods if None.
        orders: Actions: one of all whole numbers, or continuous numbers, which are rounded.
        history: Number of last demands that observations show.

    Raises:
        ValueError: An option is out of range, or has another number of entries.
    """

    def __init__(
        self,
        lead_times: Sequence[int],
        demand: PoissonDemand,
        holding_costs: Numbers = 1.0,
        backlog_costs: Numbers = 0.0,
        lost_sale_cost: float = 0.0,
        fixed_costs: Numbers = 0.0,
        max_backlog: int | None = None,
        max_order: int | Sequence[int] | None = None,
        capacities: int | Sequence[int] | None = None,
        initial_stock: int | Sequence[int] | None = None,
        periods: int = 100,
        target: Targets = "quantity",
        max_level: int | Sequence[int] | None = None,
        orders: Orders = "discrete",
        history: int = 4,
    ) -> None:
        self.demand = demand
        self.holding_costs = holding_costs
        self.backlog_costs = backlog_costs
        self.lost_sale_cost = lost_sale_cost
        self.fixed_costs = fixed_costs
        self.max_backlog = max_backlog
        self.max_order = max_order
        self.capacities = capacities
        self.initial_stock = initial_stock
        self.periods = periods
        self.target = target
        self.max_level = max_level
        self.orders = orders
        self.history = history
        lead_times = list(lead_times)
        self.lead_times = lead_times
        self.n_echelons = len(lead_times)
        self._check_options(lead_times)
        self.lead = np.array(lead_times, np.int64)
        self.holding = self._costs("holding_costs", self.holding_costs)
        self.backlog = self._costs("backlog_costs", self.backlog_costs)
        self.fixed = self._costs("fixed_costs", self.fixed_costs)
        if self.max_backlog is None and self.backlog[0] == 0:
            raise ValueError("the first of backlog_costs is 0 and customers wait: ordering nothing would be best")
        if self.max_backlog is not None and self.lost_sale_cost == 0:
            raise ValueError(
                f"lost_sale_cost=0 with max_backlog={self.max_backlog}: losing all sales would be best; give a cost"
            )
        largest = float(self.demand.levels.max()) * (1 + self.demand.amplitude)
        self.most_ordered = self._units("max_order", self.max_order, [ceil(3 * largest)] * self.n_echelons, 1)
        unlimited = [np.iinfo(np.int64).max // 4] * self.n_echelons
        self.capacity = self._units("capacities", self.capacities, unlimited, 1)
        usual = [ceil(self.demand.mean * (lead + 1)) for lead in lead_times]
        self.first_stock = self._units("initial_stock", self.initial_stock, usual, 0)
        if (self.first_stock > self.capacity).any():
            came = f"initial_stock={self.first_stock.tolist()} exceeds capacities={self.capacity.tolist()}"
            raise ValueError(f"{came}; give initial_stock within the capacities")
        wide = [ceil(2 * largest * (lead + 2)) for lead in lead_times]
        self.highest = self._units("max_level", self.max_level, wide, 1)
        if self.max_level is not None and self.target != "level":
            raise ValueError(f"max_level={self.max_level} belongs to target='level'; got target={self.target!r}")

    def _check_options(self, lead_times: list[int]) -> None:
        """Refuse options that are out of range, before anything is computed from them."""
        if not lead_times or not all(is_whole(lead) and lead >= 1 for lead in lead_times):
            expected = "at least one echelon, with 1 period or more each, in whole numbers"
            raise ValueError(f"lead_times={lead_times} must name {expected}")
        if not (is_whole(self.periods) and is_whole(self.history)) or self.periods < 1 or self.history < 0:
            came = f"periods={self.periods} must be at least 1, and history={self.history} at least 0"
            raise ValueError(f"{came}, both whole numbers")
        if self.target not in get_args(Targets) or self.orders not in get_args(Orders):
            known = f"target {' or '.join(get_args(Targets))}, orders {' or '.join(get_args(Orders))}"
            raise ValueError(f"target={self.target!r} and orders={self.orders!r}; known are {known}")
        if self.max_backlog is not None and not (is_whole(self.max_backlog) and self.max_backlog >= 0):
            expected = "at least 0 units, a whole number, or None for no limit"
            raise ValueError(f"max_backlog={self.max_backlog} must be {expected}")
        if not 0 <= self.lost_sale_cost < float("inf"):
            raise ValueError(f"lost_sale_cost={self.lost_sale_cost} must be a finite number of at least 0")

    def _costs(self, name: str, given: Numbers) -> Array:
        """Return a cost of each echelon, [E] float64."""
        costs = np.atleast_1d(np.asarray(given, np.float64)).tolist()
        if np.ndim(given) == 0:
            costs *= self.n_echelons
        if len(costs) != self.n_echelons or min(costs) < 0 or not all(map(isfinite, costs)):
            raise ValueError(f"{name}={given} must be {self.n_echelons} finite numbers of at least 0, one per echelon")
        return np.array(costs)

    def _units(self, name: str, given: int | Sequence[int] | None, default: list[int], least: int) -> Array:
        """Return numbers of units of each echelon, [E] int64."""
        if given is None:
            return np.array(default, np.int64)
        units = np.atleast_1d(np.asarray(given)).tolist()
        if np.ndim(given) == 0:
            units *= self.n_echelons
        if len(units) != self.n_echelons or not all(is_whole(unit) and unit >= least for unit in units):
            expected = f"{self.n_echelons} whole numbers of at least {least}, one per echelon"
            raise ValueError(f"{name}={given} must be {expected}")
        return np.array(units, np.int64)

    @property
    def largest_action(self) -> Array:
        """[E] int64, largest order or level that actions name."""
        return self.highest if self.target == "level" else self.most_ordered

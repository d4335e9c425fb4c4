"""Chains of the tests, and a slow simulation of single units, independent of that of the package."""

from __future__ import annotations

from typing import Any

from maze_pl.envs.multi_echelon_stock import PoissonDemand, StockChain

SERIAL: dict[str, Any] = {"lead_times": [1, 2], "demand": PoissonDemand(5.0), "backlog_costs": [9, 0], "periods": 12}
DRIFTING: dict[str, Any] = {
    "lead_times": [2, 1, 3, 2],
    "demand": PoissonDemand(6.0, drift=0.3),
    "holding_costs": [1, 0.7, 0.5, 0.25],
    "backlog_costs": [9, 0, 0, 1],
    "fixed_costs": 2,
    "target": "level",
    "orders": "box",
    "periods": 9,
}
LOST: dict[str, Any] = {
    "lead_times": [1],
    "demand": PoissonDemand(2.0, season=5, amplitude=0.5),
    "lost_sale_cost": 4,
    "max_backlog": 0,
    "capacities": 9,
    "history": 0,
    "initial_stock": 4,
    "periods": 9,
}
CHAINS = {"serial": SERIAL, "drifting": DRIFTING, "lost": LOST}


class UnitChain:
    """A chain as lists of shipments and queues of units, one unit after the other.

    Args:
        chain: Description of the chain.
    """

    def __init__(self, chain: StockChain) -> None:
        self.chain = chain
        self.period = 0
        self.stock: list[int] = chain.first_stock.tolist()
        self.owed = [0] * chain.n_echelons
        self.shipments: list[list[int]] = [[] for _ in range(chain.n_echelons)]  # period of arrival of each unit
        for echelon, lead in enumerate(chain.lead.tolist()):
            room = int(chain.capacity[echelon]) - self.stock[echelon]
            each = min(round(chain.demand.mean), room // max(lead - 1, 1))
            for arrival in range(1, lead):
                self.shipments[echelon] += [arrival] * each

    def position(self, echelon: int) -> int:
        """Inventory position."""
        by_supplier = self.owed[echelon + 1] if echelon + 1 < self.chain.n_echelons else 0
        return self.stock[echelon] + len(self.shipments[echelon]) + by_supplier - self.owed[echelon]

    def play(self, amounts: list[int], demand: int) -> tuple[list[int], float, int, int]:
        """Play a period; returns orders, costs, units served at once, and units lost."""
        chain = self.chain
        n = chain.n_echelons
        orders: list[int] = []
        for echelon in range(n):
            position = self.position(echelon) - (orders[-1] if orders else 0)
            order = amounts[echelon] - position if chain.target == "level" else amounts[echelon]
            order = min(order, int(chain.capacity[echelon]) - position, int(chain.most_ordered[echelon]))
            orders.append(max(order, 0))
        for echelon in range(n):
            supplier = echelon + 1
            if supplier < n:
                self.owed[supplier] += orders[echelon]
            asked = self.owed[supplier] if supplier < n else orders[echelon]
            for _ in range(asked):
                if supplier < n:
                    if self.stock[supplier] == 0:
                        break
                    self.stock[supplier] -= 1
                    self.owed[supplier] -= 1
                self.shipments[echelon].append(self.period + int(chain.lead[echelon]))
        served = 0
        while self.owed[0] and self.stock[0]:
            self.owed[0] -= 1
            self.stock[0] -= 1
        lost = 0
        for _ in range(demand):
            if self.stock[0]:
                self.stock[0] -= 1
                served += 1
            elif chain.max_backlog is None or self.owed[0] < chain.max_backlog:
                self.owed[0] += 1
            else:
                lost += 1
        cost = lost * chain.lost_sale_cost
        for echelon in range(n):
            cost += self.stock[echelon] * float(chain.holding[echelon])
            cost += self.owed[echelon] * float(chain.backlog[echelon])
            cost += float(chain.fixed[echelon]) * (orders[echelon] > 0)
        self.period += 1
        for echelon in range(n):
            arrived = [arrival for arrival in self.shipments[echelon] if arrival == self.period]
            self.stock[echelon] += len(arrived)
            self.shipments[echelon] = [arrival for arrival in self.shipments[echelon] if arrival > self.period]
        return orders, cost, served, lost

"""Slow references for vehicle routing that share no code with the package."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np

from maze_pl.core.policy import PolicyBatch
from maze_pl.envs.vehicle_routing import (
    RandomInstances,
    RoutingInstance,
    structured_vehicle_routing_factory,
    vehicle_routing_factory,
)

FOLDER = Path(__file__).parent
FACTORIES: dict[str, Any] = {"flat": vehicle_routing_factory, "structured": structured_vehicle_routing_factory}
SQUARE = RoutingInstance("square", [(0, 0), (4, 0), (4, 3), (0, 3), (0, -2)], [0, 2, 1, 2, 3], 4, best_known=16.0)
"""A depot, three other corners of a rectangle of 4 x 3, and a customer at a distance of 2 on the other side."""


def drawn(text: str, seed: int) -> RoutingInstance:
    return RandomInstances.parse(text).draw(np.random.default_rng(seed))


def straight(instance: RoutingInstance, i: int, j: int) -> float:
    (x, y), (u, v) = instance.coordinates[[i, j]].tolist()
    return math.sqrt((x - u) ** 2 + (y - v) ** 2)


def length_of(instance: RoutingInstance, routes: list[list[int]]) -> float:
    total = 0.0
    for route in routes:
        nodes = [0, *route, 0]
        for i, j in pairwise(nodes):
            total += straight(instance, i, j)
    return total


class SlowRouting:
    """Vehicles as lists of the customers that they have visited; everything else is computed again when asked for."""

    def __init__(self, instance: RoutingInstance, n_vehicles: int) -> None:
        self.instance = instance
        self.open: list[list[int]] = [[] for _ in range(n_vehicles)]
        self.closed: list[list[int]] = []

    def unserved(self) -> set[int]:
        served = {customer for route in [*self.open, *self.closed] for customer in route}
        return set(range(1, self.instance.n_customers + 1)) - served

    def fitting(self, vehicle: int) -> set[int]:
        load = sum(int(self.instance.demands[customer]) for customer in self.open[vehicle])
        room = self.instance.capacity - load
        return {customer for customer in self.unserved() if self.instance.demands[customer] <= room}

    def allowed(self) -> set[tuple[int, int]]:
        found = set()
        idle = [vehicle for vehicle, route in enumerate(self.open) if not route]
        for vehicle, route in enumerate(self.open):
            if route or vehicle == idle[0]:
                found |= {(vehicle, customer) for customer in self.fitting(vehicle)}
            if route:
                found.add((vehicle, 0))
        return found

    def move(self, vehicle: int, node: int) -> None:
        if node:
            self.open[vehicle].append(node)
        else:
            self._close(vehicle)
        for other, route in enumerate(self.open):
            if route and not self.fitting(other):
                self._close(other)

    def _close(self, vehicle: int) -> None:
        self.closed.append(self.open[vehicle])
        self.open[vehicle] = []

    @property
    def length(self) -> float:
        way = sum(straight(self.instance, route[-1], 0) for route in self.open if route)
        return length_of(self.instance, [*self.closed, *self.open]) - way


def shortest_routes(instance: RoutingInstance) -> float:
    """Shortest total distance over all divisions of the customers into routes, for a handful of customers."""
    best: dict[frozenset[int], float] = {frozenset(): 0.0}

    def route_length(customers: frozenset[int]) -> float:
        if instance.demands[list(customers)].sum() > instance.capacity:
            return math.inf
        return min(length_of(instance, [list(order)]) for order in permutations(customers))

    def solve(customers: frozenset[int]) -> float:
        if customers not in best:
            first = min(customers)
            others = sorted(customers - {first})
            shortest = math.inf
            for size in range(len(others) + 1):
                for chosen in combinations(others, size):
                    route = frozenset({first, *chosen})
                    shortest = min(shortest, route_length(route) + solve(customers - route))
            best[customers] = shortest
        return best[customers]

    return solve(frozenset(range(1, instance.n_customers + 1)))


def play(env: Any, policy: Any, seed: int = 0) -> list[float]:
    """Rewards of an episode in which a policy chooses from states, in both forms of the environment."""
    env.reset(seed=seed)
    rewards = []
    terminated = False
    while not terminated:
        vehicle, node = policy.choose(env.get_maze_state())
        if env.action_space.spaces.keys() == {"option"}:
            action: dict[str, int] = {"option": vehicle * (env.core_env.max_customers + 1) + node}
        elif env.actor_id().step_key == 0:
            action = {"vehicle": vehicle}
        else:
            action = {"node": node}
        _, reward, terminated, truncated, _ = env.step(action)
        assert not truncated
        rewards.append(reward)
    return rewards


def step_arrays(arrays: Any, policy: Any) -> bool:
    """Let a policy choose from the states of a flat array environment; True if an episode is over."""
    states = [arrays.maze_state(n) for n in range(arrays.n_envs)]
    action = policy.act(PolicyBatch(0, {}, np.zeros(arrays.n_envs, np.int64), maze_state=states)).action
    return bool(np.any(arrays.step({0: action}, slice(None)).terminated))

"""Levels of the rules, optimised by simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from maze_pl.envs.multi_echelon_stock.base_stock_policy import BaseStockPolicy
from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.multi_echelon_stock.core_environment import received_by_echelons, shifted
from maze_pl.envs.multi_echelon_stock.ordering_policy import OrderingPolicy
from maze_pl.envs.multi_echelon_stock.reorder_policy import ReorderPolicy
from maze_pl.envs.multi_echelon_stock.simulation import ChainState, first_state, run_period, total
from maze_pl.envs.structured_env import Array

Progress = Callable[[int, float], None]


@dataclass(frozen=True, slots=True)
class OptimisedRule:
    """Arguments of a rule, and their mean cost of a period in the episodes that they were chosen on.

    Attributes:
        arguments: Arguments of the policy.
        cost: Mean cost of a period.
    """

    arguments: dict[str, list[Any]]
    cost: float


def demand_of_episodes(chain: StockChain, n_episodes: int, seed: int) -> Array:
    """Draw the demand [N, periods] of episodes; it does not depend on what is ordered.

    Args:
        chain: Description of the chain.
        n_episodes: Number of episodes N.
        seed: Seed of the generator.
    """
    generator = np.random.default_rng(seed)
    levels = chain.demand.first_levels(generator.random(n_episodes))
    demand = np.zeros((n_episodes, chain.periods), np.int64)
    for period in range(chain.periods):
        numbers = generator.random((n_episodes, 2))
        demand[:, period], levels = chain.demand.draw(levels, np.full(n_episodes, period), numbers)
    return demand


def mean_costs(chain: StockChain, policy: OrderingPolicy, demand: Array) -> Array:
    """Mean cost of a period of a rule in each episode, [N].

    Args:
        chain: Description of the chain.
        policy: The rule.
        demand: [N, periods] demand of customers.
    """
    state: ChainState = first_state(chain, len(demand))
    received = np.zeros((len(demand), chain.n_echelons, chain.history), np.int64)
    costs = np.zeros(len(demand))
    for period in range(demand.shape[1]):
        orders, levels = policy.quantities(chain, state, received)
        amounts = np.clip(levels if chain.target == "level" else orders, 0, chain.largest_action)
        state, result = run_period(chain, state, amounts, demand[:, period])
        received = shifted(received, received_by_echelons(result))
        costs += total(result.costs)
    return np.asarray(costs / demand.shape[1])


def optimise_base_stock(
    chain: StockChain,
    n_episodes: int = 200,
    seed: int = 1_000_003,
    with_gains: bool = False,
    progress: Progress | None = None,
) -> OptimisedRule:
    """Find levels, and perhaps gains, of `BaseStockPolicy` by simulation.

    Coordinate search from the usual levels on fixed episodes: each level is moved by 8, 4, 2 and 1
    units, each gain by 1, 0.5 and 0.25, as long as the mean cost falls. Two neighbouring levels are
    also moved against each other.

    Args:
        chain: Description of the chain.
        n_episodes: Number of episodes.
        seed: Seed of the episodes, other than those of evaluations.
        with_gains: Whether gains are sought, too.
        progress: Called with the number of rules tried and the smallest cost so far.
    """
    n = chain.n_echelons
    usual = [round(chain.demand.mean * (int(lead) + 1.5)) for lead in chain.lead]
    numbers = [float(level) for level in usual]
    sizes = [np.full(n, size) for size in (8.0, 4.0, 2.0, 1.0)]
    if with_gains:
        numbers += [0.0] * n
        of_gains = (1.0, 0.5, 0.5, 0.25)
        sizes = [np.append(size, np.full(n, gain)) for size, gain in zip(sizes, of_gains, strict=True)]

    def make(candidate: Array) -> OrderingPolicy | None:
        levels = candidate[:n].astype(int).tolist()
        return BaseStockPolicy({}, levels, candidate[n:].tolist() if with_gains else None)

    demand = demand_of_episodes(chain, n_episodes, seed)
    best, cost = _search(chain, make, np.array(numbers), sizes, demand, progress)
    arguments: dict[str, list[Any]] = {"levels": best[:n].astype(int).tolist()}
    if with_gains:
        arguments["gains"] = best[n:].tolist()
    return OptimisedRule(arguments, cost)


def optimise_reorder(
    chain: StockChain, n_episodes: int = 200, seed: int = 1_000_003, progress: Progress | None = None
) -> OptimisedRule:
    """Find reorder points and levels of `ReorderPolicy` by simulation, as `optimise_base_stock` does.

    Args:
        chain: Description of the chain.
        n_episodes: Number of episodes.
        seed: Seed of the episodes, other than those of evaluations.
        progress: Called with the number of rules tried and the smallest cost so far.
    """
    n = chain.n_echelons
    points = [round(chain.demand.mean * (int(lead) + 1)) for lead in chain.lead]
    numbers = np.array([*points, *[point + max(round(chain.demand.mean), 1) for point in points]], np.float64)

    def make(candidate: Array) -> OrderingPolicy | None:
        points, levels = candidate[:n].astype(int), candidate[n:].astype(int)
        return ReorderPolicy({}, points.tolist(), levels.tolist()) if (points < levels).all() else None

    sizes = [np.full(2 * n, size) for size in (8.0, 4.0, 2.0, 1.0)]
    best, cost = _search(chain, make, numbers, sizes, demand_of_episodes(chain, n_episodes, seed), progress)
    found = best.astype(int)
    return OptimisedRule({"reorder_points": found[:n].tolist(), "levels": found[n:].tolist()}, cost)


def _search(
    chain: StockChain,
    make: Callable[[Array], OrderingPolicy | None],
    start: Array,
    sizes: list[Array],
    demand: Array,
    progress: Progress | None,
) -> tuple[Array, float]:
    """Coordinate search with falling step sizes; returns the best numbers and their cost."""
    best = start
    tried: dict[bytes, float] = {}

    def cost_of(candidate: Array) -> float:
        key = candidate.tobytes()
        if key not in tried:
            policy = make(candidate)
            tried[key] = float("inf") if policy is None else float(mean_costs(chain, policy, demand).mean())
        return tried[key]

    lowest = cost_of(best)
    for size in sizes:
        is_better = True
        while is_better:
            is_better = False
            for move in _moves(size):
                candidate = best + move
                if cost_of(candidate) < lowest:
                    lowest = cost_of(candidate)
                    best = candidate
                    is_better = True
            if progress is not None:
                progress(len(tried), lowest)
    return best, lowest


def _moves(size: Array) -> list[Array]:
    """Moves of one number, and of two neighbouring ones against each other."""
    moves = []
    unit = np.eye(len(size)) * size
    for place in range(len(size)):
        moves += [unit[place], -unit[place]]
        if place:
            moves += [unit[place] - unit[place - 1], unit[place - 1] - unit[place]]
    return moves

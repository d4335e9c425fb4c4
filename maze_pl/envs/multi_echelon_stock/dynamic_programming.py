"""The exact optimum of small chains, by dynamic programming."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.multi_echelon_stock.simulation import ChainState, first_state, run_period, total
from maze_pl.envs.structured_env import Array

_AT_ONCE = 200_000
"""Transitions that are computed together."""


@dataclass(frozen=True, slots=True, eq=False)
class StockOptimum:
    """The optimal policy of a chain, and the costs of others.

    Attributes:
        cost: Mean cost of a period, of all echelons together, in the long run.
        states: The S states that can be reached.
        actions: [A, E] int64, all actions.
        policy: [S] int64, number of the optimal action in each state.
        costs: [S, A] float64, expected cost of a period.
        successors: [S, A, D] int32, numbers of the next states, by demand.
        probabilities: [D] float64, probability of each demand.
    """

    cost: float
    states: ChainState
    actions: Array
    policy: Array
    costs: Array
    successors: Array
    probabilities: Array

    def cost_of(self, amounts: Array, tolerance: float = 1e-6) -> float:
        """Return the mean cost of a period of another policy, in the long run.

        Args:
            amounts: [S, E] int64, order quantities or levels in each state, as `actions` has them.
            tolerance: Largest error of the result.

        Raises:
            ValueError: An action is not among `actions`.
        """
        shape = tuple((self.actions.max(axis=0) + 1).tolist())
        if (amounts < 0).any() or (amounts >= np.array(shape)).any():
            raise ValueError(f"amounts must lie between 0 and {self.actions.max(axis=0).tolist()} in each state")
        chosen = np.ravel_multi_index(tuple(amounts.T), shape)
        rows = np.arange(len(chosen))
        costs = self.costs[rows, chosen][:, np.newaxis]
        successors = self.successors[rows, chosen][:, np.newaxis]
        return _iterate(costs, successors, self.probabilities, tolerance, 100_000)[0]


def optimal_stock(
    chain: StockChain,
    tolerance: float = 1e-6,
    max_states: int = 20_000,
    max_iterations: int = 100_000,
    progress: Callable[[int], None] | None = None,
) -> StockOptimum:
    """Find the policy with the smallest mean cost of a period, by relative value iteration.

        V_{k+1}(s) = min_a c(s, a) + sum_d p(d) V_k(next(s, a, d))

    The mean cost lies between the smallest and the largest increase of V (Puterman 1994, Markov
    Decision Processes, section 8.5); iterations end when they differ by less than `tolerance`. Each
    V is averaged with its predecessor, so that periodic chains converge, too. Transitions are those
    of `run_period`, from all states that can be reached from the initial stock.

    Args:
        chain: A chain with finitely many states: with `max_backlog` and `capacities`, and a demand
            that neither drifts nor follows a season.
        tolerance: Largest error of the mean cost.
        max_states: Largest number of states.
        max_iterations: Largest number of iterations.
        progress: Called with the number of states found so far.

    Raises:
        ValueError: The chain has no finite set of states, or too many of them, or its demand changes.
        RuntimeError: The iterations do not converge.
    """
    if len(chain.demand.levels) > 1 or chain.demand.season > 1:
        raise ValueError("the optimum needs stationary demand: leave out drift and amplitude")
    if chain.max_backlog is None or chain.capacities is None:
        raise ValueError("the optimum needs finitely many states: give max_backlog and capacities")
    probabilities = chain.demand.probabilities[0, 0]
    actions = np.stack(np.unravel_index(np.arange(int(np.prod(chain.largest_action + 1))), chain.largest_action + 1), 1)
    states, costs, successors = _explore(chain, actions, probabilities, max_states, progress)
    cost, policy = _iterate(costs, successors, probabilities, tolerance, max_iterations)
    return StockOptimum(cost, states, actions, policy, costs, successors, probabilities)


def _explore(
    chain: StockChain,
    actions: Array,
    probabilities: Array,
    max_states: int,
    progress: Callable[[int], None] | None,
) -> tuple[ChainState, Array, Array]:
    """Find all states that can be reached, with costs [S, A] and successors [S, A, D]."""
    numbers: dict[bytes, int] = {}
    rows: list[Array] = []
    first = _rows(first_state(chain, 1))
    numbers[first[0].tobytes()] = 0
    rows.append(first[0])
    costs: list[Array] = []
    successors: list[Array] = []
    n_next = len(actions) * len(probabilities)
    done = 0
    while done < len(rows):
        batch = np.stack(rows[done : done + max(_AT_ONCE // n_next, 1)])
        cost, following = _expand(chain, batch, actions, len(probabilities))
        different, inverse = np.unique(following, axis=0, return_inverse=True)
        places = np.zeros(len(different), np.int32)
        for place, row in enumerate(different):
            key = row.tobytes()
            if key not in numbers:
                numbers[key] = len(rows)
                rows.append(row)
            places[place] = numbers[key]
        if len(rows) > max_states:
            raise ValueError(f"more than max_states={max_states} states; give smaller capacities, or raise max_states")
        shape = (len(batch), len(actions), len(probabilities))
        costs.append(cost.reshape(shape) @ probabilities)
        successors.append(places[inverse.reshape(-1)].reshape(shape))
        done += len(batch)
        if progress is not None:
            progress(len(rows))
    return _states(chain, np.stack(rows)), np.concatenate(costs), np.concatenate(successors)


def _expand(chain: StockChain, batch: Array, actions: Array, n_demands: int) -> tuple[Array, Array]:
    """Costs [n A D] and next states, as rows, of n states with all actions and demands."""
    n_each = len(actions) * n_demands
    before = _states(chain, batch.repeat(n_each, axis=0))
    chosen = np.tile(actions.repeat(n_demands, axis=0), (len(batch), 1))
    demand = np.tile(np.arange(n_demands), len(batch) * len(actions))
    after, result = run_period(chain, before, chosen, demand)
    return total(result.costs), _rows(after)


def _rows(state: ChainState) -> Array:
    """States as rows of numbers."""
    return np.concatenate([state.stock, state.owed, state.transit.reshape(len(state.stock), -1)], axis=1)


def _states(chain: StockChain, rows: Array) -> ChainState:
    """Undo `_rows`."""
    n = chain.n_echelons
    return ChainState(rows[:, :n], rows[:, n : 2 * n], rows[:, 2 * n :].reshape(len(rows), n, -1))


def _iterate(
    costs: Array, successors: Array, probabilities: Array, tolerance: float, max_iterations: int
) -> tuple[float, Array]:
    """Iterate values; return the mean cost and the best actions [S]."""
    values = np.zeros(len(costs))
    for _ in range(max_iterations):
        q_values = costs + values[successors] @ probabilities
        increase = q_values.min(axis=1) - values
        lowest = float(increase.min())
        highest = float(increase.max())
        if highest - lowest < tolerance:
            return (lowest + highest) / 2, q_values.argmin(axis=1)
        values = values + 0.9 * (increase - increase[0])
    raise RuntimeError(
        f"no convergence in {max_iterations} iterations; the chain may have several closed sets of states"
    )

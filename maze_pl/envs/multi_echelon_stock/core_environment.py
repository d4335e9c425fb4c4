"""The simulation of a chain of stocks, whose echelons order together."""

from __future__ import annotations

from typing import Any

import numpy as np

from maze_pl.envs.core_env import CoreEnv, take_over
from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.multi_echelon_stock.cost_reward_aggregator import CostRewardAggregator
from maze_pl.envs.multi_echelon_stock.echelon_reward_aggregator import EchelonRewardAggregator
from maze_pl.envs.multi_echelon_stock.events import StockEvents
from maze_pl.envs.multi_echelon_stock.kpi_calculator import StockKpiCalculator
from maze_pl.envs.multi_echelon_stock.objects import StockMazeAction, StockMazeState
from maze_pl.envs.multi_echelon_stock.renderer import StockRenderer
from maze_pl.envs.multi_echelon_stock.simulation import PeriodResult, first_state, run_period
from maze_pl.envs.structured_env import Array


class StockCoreEnvironment(CoreEnv):
    """A serial chain of stocks; each step is a period in which all echelons order.

    The order of events in a period is that of `run_period`: orders, shipments, demand of customers,
    costs, and receipts at the start of the next period. The chain has no end: an episode is
    truncated, not terminated, after `chain.periods`.

    Args:
        chain: Description of the chain.
        reward_aggregator: Computes rewards; `CostRewardAggregator()` if None.
    """

    def __init__(self, chain: StockChain, reward_aggregator: EchelonRewardAggregator | None = None) -> None:
        super().__init__()
        self.chain = chain
        self.reward_aggregator = reward_aggregator or CostRewardAggregator()
        self.pubsub.register_subscriber(self.reward_aggregator)
        self._events = self.pubsub.create_event_topic(StockEvents)
        self._generator = np.random.default_rng()
        self._stepped_at = -1
        self.reset()  # so that there is a state

    def reset(self) -> StockMazeState:
        """Start an episode with the initial stock."""
        if self.context.env_time:  # without a `MazeEnv`, which would have begun the episode
            self.context.reset_episode()
        self.pubsub.clear()
        self._stepped_at = -1
        chain = self.chain
        self.state = first_state(chain, 1)
        self.received = np.zeros((chain.n_echelons, chain.history), np.int64)
        self.period = 0
        self._level = chain.demand.first_levels(self._generator.random(1))
        return self.get_maze_state()

    def step(self, maze_action: StockMazeAction) -> tuple[StockMazeState, float, bool, bool, dict[str, Any]]:
        """Play a period.

        Returns:
            State, reward, terminated (always False), truncated (after the last period), and info.

        Raises:
            ValueError: The action does not have one amount for each echelon.
        """
        if self.context.env_time == self._stepped_at:  # without a `MazeEnv`, which would keep time
            self.pubsub.clear()
            self.context.env_time += 1
        self._stepped_at = self.context.env_time
        self._play(np.array(maze_action.amounts))
        maze_state = self.get_maze_state()
        reward = self.reward_aggregator.summarize_reward(maze_state)
        return maze_state, reward, False, self.period >= self.chain.periods, {}

    def _play(self, amounts: Array) -> PeriodResult:
        """Play a period with the amounts [E] of all echelons."""
        chain = self.chain
        if amounts.shape != (chain.n_echelons,):
            raise ValueError(
                f"the action names {amounts.size} amounts; give one for each of {chain.n_echelons} echelons"
            )
        numbers = self._generator.random((1, 2))
        demand, self._level = chain.demand.draw(self._level, np.array([self.period]), numbers)
        self.state, result = run_period(chain, self.state, amounts[np.newaxis], demand)
        self.received = shifted(self.received, received_by_echelons(result)[0])
        self.period += 1
        self._fire(result)
        return result

    def _fire(self, result: PeriodResult) -> None:
        """Fire the events of a period."""
        values = [int(part[0]) for part in (result.demand, result.served, result.lost)]
        self._events.customer_demand(*values)
        for echelon in range(self.chain.n_echelons):
            self._events.echelon_period(
                echelon=echelon,
                order=int(result.orders[0, echelon]),
                shipped=int(result.shipped[0, echelon]),
                stock=int(result.stock[0, echelon]),
                holding=float(result.holding[0, echelon]),
                shortage=float(result.shortage[0, echelon]),
                fixed=float(result.fixed[0, echelon]),
            )

    def get_maze_state(self) -> StockMazeState:
        """Return a copy of the state."""
        state = self.state
        return StockMazeState(
            chain=self.chain,
            stock=state.stock[0].copy(),
            owed=state.owed[0].copy(),
            transit=state.transit[0].copy(),
            received=self.received.copy(),
            orders=np.zeros(self.chain.n_echelons, np.int64),
            period=self.period,
        )

    def seed(self, seed: int) -> None:
        """Seed the generator that demand is drawn with."""
        self._generator = np.random.default_rng(seed)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def clone_from(self, env: Any) -> None:
        """Take over the state of another simulation; see `CoreEnv.clone_from`."""
        take_over(self, env)

    def get_renderer(self) -> StockRenderer:
        """Return the renderer of the chain."""
        return StockRenderer()

    def get_kpi_calculator(self) -> StockKpiCalculator:
        """Return the calculator of costs and service."""
        return StockKpiCalculator()


def received_by_echelons(result: PeriodResult) -> Array:
    """Demand [N, E] of each echelon in a period: of customers, then the orders of the echelon below."""
    demand = result.orders.copy()
    demand[:, 1:] = result.orders[:, :-1]
    demand[:, 0] = result.demand
    return demand


def shifted(received: Array, newest: Array) -> Array:
    """Put the newest demand [..., E] in front of the last ones [..., E, H]."""
    result: Array = np.roll(received, 1, axis=-1)
    if received.shape[-1]:
        result[..., 0] = newest
    return result

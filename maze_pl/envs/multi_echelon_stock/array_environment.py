"""Chains of stocks over arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.envs.arrays.array_form_env import ArrayFormEnv
from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.multi_echelon_stock.action_conversion import units_of
from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.multi_echelon_stock.core_environment import received_by_echelons, shifted
from maze_pl.envs.multi_echelon_stock.cost_reward_aggregator import CostRewardAggregator
from maze_pl.envs.multi_echelon_stock.echelon_observation_conversion import echelon_observation
from maze_pl.envs.multi_echelon_stock.echelon_reward_aggregator import EchelonRewardAggregator, checked_aggregator
from maze_pl.envs.multi_echelon_stock.environment import stock_factory, structured_stock_factory
from maze_pl.envs.multi_echelon_stock.events import StockEvents
from maze_pl.envs.multi_echelon_stock.kpi_calculator import KPI_NAMES
from maze_pl.envs.multi_echelon_stock.objects import StockMazeState
from maze_pl.envs.multi_echelon_stock.observation_conversion import chain_observation
from maze_pl.envs.multi_echelon_stock.renderer import StockRenderer
from maze_pl.envs.multi_echelon_stock.simulation import (
    ChainState,
    PeriodResult,
    accepted_orders,
    first_state,
    run_period,
    total,
)
from maze_pl.envs.structured_env import Array


class StockArrayEnvironment(ArrayFormEnv):
    """Chains of stocks over arrays, each equal to a `StockEnvironment`.

    Args:
        chain: Description of the chain.
        reward_aggregator: Computes rewards; `CostRewardAggregator()` if None.
        structured: Whether each echelon is an agent, as in `structured_stock_factory`.

    Raises:
        TypeError: The aggregator has no array form.
    """

    def __init__(
        self,
        chain: StockChain,
        reward_aggregator: EchelonRewardAggregator | None = None,
        structured: bool = False,
    ) -> None:
        super().__init__(structured_stock_factory(chain) if structured else stock_factory(chain))
        self.chain = chain
        self.reward_aggregator = checked_aggregator(reward_aggregator or CostRewardAggregator())
        self.structured = structured
        self._topic: Any = self.create_event_topic(StockEvents)

    @property
    def kpi_names(self) -> tuple[str, ...]:
        """Names of the KPIs."""
        return KPI_NAMES

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        n_echelons = self.chain.n_echelons
        first = first_state(self.chain, n_envs)
        self._stock = first.stock
        self._owed = first.owed
        self._transit = first.transit
        self._received = np.zeros((n_envs, n_echelons, self.chain.history), np.int64)
        self._period = np.zeros(n_envs, np.int64)
        self._level = np.zeros(n_envs, np.int64)
        self._echelon = np.zeros(n_envs, np.int64)  # that acts next
        self._amounts = np.zeros((n_envs, n_echelons), np.int64)
        self._orders = np.zeros((n_envs, n_echelons), np.int64)
        self._totals = np.zeros((n_envs, 4))  # cost, demand, served and stock
        self._streams = RandomStreams(np.zeros(n_envs, np.int64))

    def _state(self) -> ChainState:
        """All chains; the arrays are not copied."""
        return ChainState(self._stock, self._owed, self._transit)

    def reset(self, which: Array, seeds: Array) -> ArrayStep:
        """Start episodes."""
        self._streams.seed(seeds, which)
        self._state().put(which, first_state(self.chain, len(which)))
        for array in (self._received, self._period, self._echelon, self._amounts, self._orders, self._totals):
            array[which] = 0
        self._level[which] = self.chain.demand.first_levels(self._streams.random(which=which))
        return self._result(None)

    def step(self, actions: Mapping[Any, Mapping[str, Array]], which: EnvIndex) -> ArrayStep:
        """Order for all echelons, or for the echelons whose turn it is."""
        numbers = self.numbers_of(which)
        values = actions[0]["order"][numbers]
        largest = self.chain.largest_action
        reward = np.zeros(self.n_envs)
        if not self.structured:
            self._amounts[numbers] = units_of(values.reshape(len(numbers), self.chain.n_echelons), largest, self.chain)
            result = self._result(reward)
            self._complete(numbers, result)
        else:
            echelons = self._echelon[numbers]
            amounts = units_of(values.reshape(len(numbers)), largest[echelons], self.chain)
            self._amounts[numbers, echelons] = amounts
            self._echelon[numbers] += 1
            is_last = self._echelon[numbers] == self.chain.n_echelons
            self._note_orders(numbers[~is_last])
            result = self._result(reward)
            if is_last.any():
                self._complete(numbers[is_last], result)
        return self._shown(result)

    def _note_orders(self, which: Array) -> None:
        """Compute the orders that were placed so far in unfinished periods."""
        if len(which) == 0:
            return
        orders = accepted_orders(self.chain, self._state().take(which), self._amounts[which])
        known = np.arange(self.chain.n_echelons) < self._echelon[which, np.newaxis]
        self._orders[which] = np.where(known, orders, 0)

    def _complete(self, which: Array, step: ArrayStep) -> None:
        """Play a period in some environments.

        Args:
            which: [n] numbers of the environments.
            step: Gets the results.
        """
        chain = self.chain
        numbers = self._streams.random(2, which)
        demand, levels = chain.demand.draw(self._level[which], self._period[which], numbers)
        state, result = run_period(chain, self._state().take(which), self._amounts[which], demand)
        self._state().put(which, state)
        self._level[which] = levels
        self._received[which] = shifted(self._received[which], received_by_echelons(result))
        self._period[which] += 1
        self._echelon[which] = 0
        self._amounts[which] = 0
        self._orders[which] = 0
        self._fire(which, result)
        stock = result.stock.sum(axis=1)
        self._totals[which] += np.stack([total(result.costs), demand, result.served, stock], axis=1)
        rewards = self.reward_aggregator.scaled_rewards(result)
        step.reward[which] = self.reward_aggregator.team_reward(rewards)
        step.truncated = np.zeros(self.n_envs, np.bool_)
        step.truncated[which] = self._period[which] >= chain.periods
        if self.structured:
            step.actor_rewards = np.zeros((self.n_envs, chain.n_echelons))
            step.actor_rewards[which] = self.reward_aggregator.shared(rewards)

    def _fire(self, which: Array, result: PeriodResult) -> None:
        """Fire the events of a period."""
        self._topic.customer_demand(which, result.demand, result.served, result.lost)
        for echelon in range(self.chain.n_echelons):
            self._topic.echelon_period(
                which,
                echelon=echelon,
                order=result.orders[:, echelon],
                shipped=result.shipped[:, echelon],
                stock=result.stock[:, echelon],
                holding=result.holding[:, echelon],
                shortage=result.shortage[:, echelon],
                fixed=result.fixed[:, echelon],
            )

    def _result(self, reward: Array | None) -> ArrayStep:
        """Return a step whose results are filled in later."""
        result = ArrayStep({}, reward, env_time=self._period)
        return self._shown(result) if reward is None else result

    def _shown(self, result: ArrayStep) -> ArrayStep:
        """Add the next actors and their observations."""
        parts = (self._stock, self._owed, self._transit)
        if self.structured:
            observation = echelon_observation(
                self.chain, *parts, self._received, self._orders, self._period, self._echelon
            )
            result.next_agent = self._echelon
        else:
            observation = chain_observation(self.chain, *parts, self._received, self._period)
        result.observation = {0: observation}
        return result

    def kpis(self, which: Array) -> Mapping[str, Array]:
        """Return cost per period, fill rate and mean stock."""
        cost, demand, served, stock = self._totals[which].T
        periods = np.maximum(self._period[which], 1)
        fill_rate = np.where(demand > 0, served / np.maximum(demand, 1), 1.0)
        return {"cost_per_period": cost / periods, "fill_rate": fill_rate, "mean_stock": stock / periods}

    def get_renderer(self) -> StockRenderer:
        """Return the renderer of the chain."""
        return StockRenderer()

    def maze_state(self, env: int) -> StockMazeState:
        """Return the state of one environment."""
        return StockMazeState(
            chain=self.chain,
            stock=self._stock[env].copy(),
            owed=self._owed[env].copy(),
            transit=self._transit[env].copy(),
            received=self._received[env].copy(),
            orders=self._orders[env].copy(),
            period=int(self._period[env]),
            echelon=int(self._echelon[env]) if self.structured else -1,
        )

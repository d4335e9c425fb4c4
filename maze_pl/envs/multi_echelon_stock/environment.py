"""The flat and the structured chain of stocks."""

from __future__ import annotations

from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.multi_echelon_stock.action_conversion import ActionConversion
from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.multi_echelon_stock.core_environment import StockCoreEnvironment
from maze_pl.envs.multi_echelon_stock.echelon_observation_conversion import EchelonObservationConversion
from maze_pl.envs.multi_echelon_stock.echelon_reward_aggregator import EchelonRewardAggregator
from maze_pl.envs.multi_echelon_stock.observation_conversion import ObservationConversion
from maze_pl.envs.multi_echelon_stock.structured_core_environment import StructuredStockCoreEnvironment


class StockEnvironment(MazeEnv):
    """A chain of stocks, flat or with an agent for each echelon.

    Args:
        core_env: The simulation.
        action_conversion: Conversion of actions.
        observation_conversion: Conversion of states.
    """

    heuristic_policy = "maze_pl.envs.multi_echelon_stock.base_stock_policy.BaseStockPolicy"

    def __init__(
        self,
        core_env: StockCoreEnvironment,
        action_conversion: ActionConversion,
        observation_conversion: ObservationConversion | EchelonObservationConversion,
    ) -> None:
        super().__init__(core_env, {0: action_conversion}, {0: observation_conversion})


def stock_factory(chain: StockChain, reward_aggregator: EchelonRewardAggregator | None = None) -> StockEnvironment:
    """Make the flat environment: one actor orders for all echelons.

    Args:
        chain: Description of the chain.
        reward_aggregator: Computes rewards; `CostRewardAggregator()` if None.

    Example:
        >>> from maze_pl.envs.multi_echelon_stock import PoissonDemand
        >>> env = stock_factory(StockChain([1, 2], PoissonDemand(5.0), backlog_costs=[9, 0]))
        >>> observation, _ = env.reset(seed=0)
        >>> env.action_space["order"], observation["echelons"].shape
        (MultiDiscrete([16 16]), (2, 5))
    """
    core_env = StockCoreEnvironment(chain, reward_aggregator)
    return StockEnvironment(core_env, ActionConversion(chain, chain.n_echelons), ObservationConversion(chain))


def structured_stock_factory(
    chain: StockChain, reward_aggregator: EchelonRewardAggregator | None = None
) -> StockEnvironment:
    """Make the structured environment: each echelon is an agent of the only sub-step.

    Args:
        chain: Description of the chain.
        reward_aggregator: Computes rewards; `CostRewardAggregator()` if None.

    Example:
        >>> from maze_pl.envs.multi_echelon_stock import PoissonDemand
        >>> env = structured_stock_factory(StockChain([1, 2], PoissonDemand(5.0), backlog_costs=[9, 0]))
        >>> observation, _ = env.reset(seed=0)
        >>> env.agent_counts_dict, sorted(observation)
        ({0: 2}, ['costs', 'demand', 'own', 'place'])
    """
    core_env = StructuredStockCoreEnvironment(chain, reward_aggregator)
    return StockEnvironment(core_env, ActionConversion(chain, 1), EchelonObservationConversion(chain))

"""Multi-echelon stock: a serial chain of stocks, its simulation, rules and exact optimum.

This folder holds everything that is specific to chains of stocks. Nothing general belongs here.
Policies are named by their modules (`base_stock_policy`, `reorder_policy`), since they need torch,
and so is `optimised_levels`, which uses them.
"""

from .action_conversion import ActionConversion as ActionConversion
from .array_environment import StockArrayEnvironment as StockArrayEnvironment
from .chain import StockChain as StockChain
from .core_environment import StockCoreEnvironment as StockCoreEnvironment
from .cost_reward_aggregator import CostRewardAggregator as CostRewardAggregator
from .echelon_observation_conversion import EchelonObservationConversion as EchelonObservationConversion
from .echelon_reward_aggregator import EchelonRewardAggregator as EchelonRewardAggregator
from .environment import StockEnvironment as StockEnvironment, stock_factory as stock_factory
from .environment import structured_stock_factory as structured_stock_factory
from .events import StockEvents as StockEvents
from .kpi_calculator import StockKpiCalculator as StockKpiCalculator
from .objects import StockMazeAction as StockMazeAction, StockMazeState as StockMazeState
from .observation_conversion import ObservationConversion as ObservationConversion
from .poisson_demand import PoissonDemand as PoissonDemand
from .renderer import StockRenderer as StockRenderer
from .service_reward_aggregator import ServiceRewardAggregator as ServiceRewardAggregator
from .simulation import ChainState as ChainState, PeriodResult as PeriodResult
from .simulation import accepted_orders as accepted_orders, first_state as first_state, run_period as run_period
from .structured_core_environment import StructuredStockCoreEnvironment as StructuredStockCoreEnvironment

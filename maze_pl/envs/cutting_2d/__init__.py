"""Cutting-2D: an online guillotine cutting-stock problem, flat, structured and with masks.

This folder holds everything that is specific to pieces and orders, as a user's project would: the
simulation, its conversions, environments, rewards and the baseline. Nothing general belongs here.
"""

from typing import TYPE_CHECKING, Any

from .action_conversion import ActionConversion as ActionConversion
from .array_environment import Cutting2DArrayEnvironment as Cutting2DArrayEnvironment
from .core_environment import Cutting2DCoreEnvironment as Cutting2DCoreEnvironment
from .demand import DemandGenerator as DemandGenerator
from .mixed_periodic_demand import MixedPeriodicDemand as MixedPeriodicDemand
from .static_demand import StaticDemand as StaticDemand
from .uniform_demand import UniformDemand as UniformDemand
from .environment import (
    Cutting2DEnvironment as Cutting2DEnvironment,
    maze_env_factory as maze_env_factory,
)
from .events import CuttingEvents as CuttingEvents, InventoryEvents as InventoryEvents
from .inventory import Inventory as Inventory
from .kpi_calculator import Cutting2dKpiCalculator as Cutting2dKpiCalculator
from .masked_environment import MaskedCutting2DEnvironment as MaskedCutting2DEnvironment
from .masked_environment import masked_env_factory as masked_env_factory
from .masked_structured_environment import (
    MaskedStructuredCutting2DEnvironment as MaskedStructuredCutting2DEnvironment,
)
from .masked_structured_environment import masked_struct_env_factory as masked_struct_env_factory
from .objects import (
    ChosenPieceMazeState as ChosenPieceMazeState,
    Cutting2DMazeAction as Cutting2DMazeAction,
    Cutting2DMazeState as Cutting2DMazeState,
)
from .observation_conversion import ObservationConversion as ObservationConversion
from .renderer import Cutting2DRenderer as Cutting2DRenderer
from .default_reward_aggregator import DefaultRewardAggregator as DefaultRewardAggregator
from .raw_piece_usage_reward_aggregator import (
    RawPieceUsageRewardAggregator as RawPieceUsageRewardAggregator,
)
from .structured_array_environment import (
    StructuredCutting2DArrayEnvironment as StructuredCutting2DArrayEnvironment,
)
from .structured_environment import StructuredCutting2DEnvironment as StructuredCutting2DEnvironment
from .structured_environment import struct_env_factory as struct_env_factory

if TYPE_CHECKING:
    from .greedy_cutting_policy import GreedyCuttingPolicy as GreedyCuttingPolicy
else:

    def __getattr__(name: str) -> Any:
        """Return `GreedyCuttingPolicy`, which imports PyTorch; environments can be used without."""
        if name == "GreedyCuttingPolicy":
            from .greedy_cutting_policy import GreedyCuttingPolicy

            return GreedyCuttingPolicy
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

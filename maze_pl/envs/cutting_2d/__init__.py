"""Cutting-2D: an online guillotine cutting-stock problem, flat, structured and with masks."""

from .environments import Cutting2DCoreEnvironment as Cutting2DCoreEnvironment, Cutting2DMazeState as Cutting2DMazeState
from .environments import Cutting2DMazeAction as Cutting2DMazeAction, GreedyCuttingPolicy as GreedyCuttingPolicy
from .environments import Inventory as Inventory, ActionConversion as ActionConversion
from .environments import Cutting2DEnvironment as Cutting2DEnvironment, ObservationConversion as ObservationConversion
from .environments import MaskedStructuredCutting2DEnvironment as MaskedStructuredCutting2DEnvironment
from .environments import StructuredCutting2DEnvironment as StructuredCutting2DEnvironment
from .environments import masked_struct_env_factory as masked_struct_env_factory, maze_env_factory as maze_env_factory
from .environments import struct_env_factory as struct_env_factory
from .events import Cutting2dKpiCalculator as Cutting2dKpiCalculator, Cutting2DRenderer as Cutting2DRenderer
from .events import CuttingEvents as CuttingEvents, DefaultRewardAggregator as DefaultRewardAggregator
from .events import DemandGenerator as DemandGenerator, InventoryEvents as InventoryEvents, StaticDemand as StaticDemand
from .events import MixedPeriodicDemand as MixedPeriodicDemand, UniformDemand as UniformDemand
from .events import RawPieceUsageRewardAggregator as RawPieceUsageRewardAggregator

"""Cutting-2D: an online guillotine cutting-stock problem, flat, structured and with masks."""

from maze_pl.envs.cutting_2d.core_env import Cutting2DCoreEnvironment as Cutting2DCoreEnvironment
from maze_pl.envs.cutting_2d.core_env import Cutting2DMazeAction as Cutting2DMazeAction
from maze_pl.envs.cutting_2d.core_env import Cutting2DMazeState as Cutting2DMazeState
from maze_pl.envs.cutting_2d.core_env import Inventory as Inventory
from maze_pl.envs.cutting_2d.demand import DemandGenerator as DemandGenerator
from maze_pl.envs.cutting_2d.demand import MixedPeriodicDemand as MixedPeriodicDemand
from maze_pl.envs.cutting_2d.demand import StaticDemand as StaticDemand
from maze_pl.envs.cutting_2d.demand import UniformDemand as UniformDemand
from maze_pl.envs.cutting_2d.events import Cutting2dKpiCalculator as Cutting2dKpiCalculator
from maze_pl.envs.cutting_2d.events import CuttingEvents as CuttingEvents
from maze_pl.envs.cutting_2d.events import DefaultRewardAggregator as DefaultRewardAggregator
from maze_pl.envs.cutting_2d.events import InventoryEvents as InventoryEvents
from maze_pl.envs.cutting_2d.events import RawPieceUsageRewardAggregator as RawPieceUsageRewardAggregator
from maze_pl.envs.cutting_2d.events import WasteRewardAggregator as WasteRewardAggregator
from maze_pl.envs.cutting_2d.greedy_policy import GreedyCuttingPolicy as GreedyCuttingPolicy
from maze_pl.envs.cutting_2d.maze_env import ActionConversion as ActionConversion
from maze_pl.envs.cutting_2d.maze_env import Cutting2DEnvironment as Cutting2DEnvironment
from maze_pl.envs.cutting_2d.maze_env import (
    MaskedStructuredCutting2DEnvironment as MaskedStructuredCutting2DEnvironment,
)
from maze_pl.envs.cutting_2d.maze_env import ObservationConversion as ObservationConversion
from maze_pl.envs.cutting_2d.maze_env import StructuredCutting2DEnvironment as StructuredCutting2DEnvironment
from maze_pl.envs.cutting_2d.maze_env import masked_struct_env_factory as masked_struct_env_factory
from maze_pl.envs.cutting_2d.maze_env import maze_env_factory as maze_env_factory
from maze_pl.envs.cutting_2d.maze_env import struct_env_factory as struct_env_factory
from maze_pl.envs.cutting_2d.renderer import Cutting2DRenderer as Cutting2DRenderer

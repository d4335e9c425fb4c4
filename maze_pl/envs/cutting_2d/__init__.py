"""Cutting-2D: an online guillotine cutting-stock problem, flat, structured and with masks."""

from maze_pl.envs.cutting_2d.core_env import (
    Cutting2DCoreEnvironment,
    Cutting2DMazeAction,
    Cutting2DMazeState,
    Inventory,
)
from maze_pl.envs.cutting_2d.demand import DemandGenerator, MixedPeriodicDemand, StaticDemand, UniformDemand
from maze_pl.envs.cutting_2d.events import (
    Cutting2dKpiCalculator,
    CuttingEvents,
    DefaultRewardAggregator,
    InventoryEvents,
    RawPieceUsageRewardAggregator,
)
from maze_pl.envs.cutting_2d.greedy_policy import GreedyCuttingPolicy
from maze_pl.envs.cutting_2d.maze_env import (
    ActionConversion,
    Cutting2DEnvironment,
    ObservationConversion,
    maze_env_factory,
)
from maze_pl.envs.cutting_2d.renderer import Cutting2DRenderer
from maze_pl.envs.cutting_2d.struct_env import (
    MaskedStructuredCutting2DEnvironment,
    StructuredCutting2DEnvironment,
    masked_struct_env_factory,
    struct_env_factory,
)
from maze_pl.envs.cutting_2d.waste_reward import WasteRewardAggregator

__all__ = [
    "ActionConversion",
    "Cutting2DCoreEnvironment",
    "Cutting2DEnvironment",
    "Cutting2DMazeAction",
    "Cutting2DMazeState",
    "Cutting2DRenderer",
    "Cutting2dKpiCalculator",
    "CuttingEvents",
    "DefaultRewardAggregator",
    "DemandGenerator",
    "GreedyCuttingPolicy",
    "Inventory",
    "InventoryEvents",
    "MaskedStructuredCutting2DEnvironment",
    "MixedPeriodicDemand",
    "ObservationConversion",
    "RawPieceUsageRewardAggregator",
    "StaticDemand",
    "StructuredCutting2DEnvironment",
    "UniformDemand",
    "WasteRewardAggregator",
    "masked_struct_env_factory",
    "maze_env_factory",
    "struct_env_factory",
]

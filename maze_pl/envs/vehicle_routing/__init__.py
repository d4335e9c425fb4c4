"""Capacitated vehicle routing: instances, simulation, environments, rules and solver.

This folder holds everything that is specific to depots, customers and vehicles. Nothing general
belongs here. Policies are named by their modules (`savings_policy`, `nearest_neighbour_policy` and
so on), since they need torch, and the rest does not.
"""

from .action_conversion import ActionConversion as ActionConversion
from .array_environment import VehicleRoutingArrayEnvironment as VehicleRoutingArrayEnvironment
from .core_environment import VehicleRoutingCoreEnvironment as VehicleRoutingCoreEnvironment
from .distance_reward_aggregator import DistanceRewardAggregator as DistanceRewardAggregator
from .environment import VehicleRoutingEnvironment as VehicleRoutingEnvironment
from .environment import vehicle_routing_factory as vehicle_routing_factory
from .events import RoutingEvents as RoutingEvents
from .formats import parse_solution as parse_solution, parse_vrp as parse_vrp
from .formats import read_instance as read_instance, read_solution as read_solution
from .instance import InstanceArrays as InstanceArrays, RoutingInstance as RoutingInstance
from .instance_source import FixedInstance as FixedInstance, InstanceSource as InstanceSource
from .instance_sources import instance_sources as instance_sources
from .kpi_calculator import RoutingKpiCalculator as RoutingKpiCalculator
from .objects import RoutingMazeAction as RoutingMazeAction, RoutingMazeState as RoutingMazeState
from .observation_conversion import ObservationConversion as ObservationConversion
from .pyvrp_solver import solve_with_pyvrp as solve_with_pyvrp
from .random_instances import RandomInstances as RandomInstances
from .renderer import VehicleRoutingRenderer as VehicleRoutingRenderer
from .routing_reward_aggregator import RoutingRewardAggregator as RoutingRewardAggregator
from .savings import improved_savings_routes as improved_savings_routes
from .savings import savings_routes as savings_routes
from .simulation import RoutingSimulation as RoutingSimulation
from .solution import RoutingSolution as RoutingSolution, check_routes as check_routes
from .solution import route_distance as route_distance
from .structured_array_environment import (
    StructuredVehicleRoutingArrayEnvironment as StructuredVehicleRoutingArrayEnvironment,
)
from .structured_environment import StructuredVehicleRoutingEnvironment as StructuredVehicleRoutingEnvironment
from .structured_environment import structured_vehicle_routing_factory as structured_vehicle_routing_factory
from .sweep import sweep_routes as sweep_routes
from .total_distance_reward_aggregator import TotalDistanceRewardAggregator as TotalDistanceRewardAggregator

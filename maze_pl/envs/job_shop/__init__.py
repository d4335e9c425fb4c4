"""Job shop and flexible job shop: instances, simulation, environments, rules and solver.

This folder holds everything that is specific to jobs, machines and schedules, published instances
included. Nothing general belongs here. Policies are named by their modules
(`dispatching_rule_policy`, `cp_sat_policy`), since they need torch, and the rest does not.
"""

from .action_conversion import ActionConversion as ActionConversion
from .array_environment import JobShopArrayEnvironment as JobShopArrayEnvironment
from .cp_sat import solve_with_cp_sat as solve_with_cp_sat
from .core_environment import JobShopCoreEnvironment as JobShopCoreEnvironment
from .environment import JobShopEnvironment as JobShopEnvironment, job_shop_factory as job_shop_factory
from .events import ScheduleEvents as ScheduleEvents
from .formats import parse_flexible as parse_flexible, parse_job_shop as parse_job_shop
from .formats import read_instance as read_instance
from .idle_time_reward_aggregator import IdleTimeRewardAggregator as IdleTimeRewardAggregator
from .instance import JobShopInstance as JobShopInstance
from .instance_source import FixedInstance as FixedInstance, InstanceSource as InstanceSource
from .kpi_calculator import JobShopKpiCalculator as JobShopKpiCalculator
from .lower_bound_reward_aggregator import LowerBoundRewardAggregator as LowerBoundRewardAggregator
from .makespan_reward_aggregator import MakespanRewardAggregator as MakespanRewardAggregator
from .objects import JobShopMazeAction as JobShopMazeAction, JobShopMazeState as JobShopMazeState
from .observation_conversion import ObservationConversion as ObservationConversion
from .published import best_known as best_known, instance_sources as instance_sources
from .published import published_instance as published_instance
from .random_instances import RandomInstances as RandomInstances
from .renderer import JobShopRenderer as JobShopRenderer
from .schedule import Schedule as Schedule, check_schedule as check_schedule, replay_schedule as replay_schedule
from .schedule_reward_aggregator import ScheduleRewardAggregator as ScheduleRewardAggregator
from .simulation import JobShopSimulation as JobShopSimulation
from .taillard import TaillardGenerator as TaillardGenerator, generate_taillard as generate_taillard
from .taillard import taillard_instance as taillard_instance
from .structured_array_environment import StructuredJobShopArrayEnvironment as StructuredJobShopArrayEnvironment
from .structured_environment import StructuredJobShopEnvironment as StructuredJobShopEnvironment
from .structured_environment import structured_job_shop_factory as structured_job_shop_factory

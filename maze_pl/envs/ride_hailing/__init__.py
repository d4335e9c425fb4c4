"""Ride hailing: a city, shifts, passengers, environments and rules.

This folder holds everything that is specific to vehicles, shifts and passengers. Nothing general
belongs here. The policy is named by its module (`dispatching_rule_policy`), since it needs torch,
and the rest does not.
"""

from .action_conversion import ActionConversion as ActionConversion
from .array_environment import RideHailingArrayEnvironment as RideHailingArrayEnvironment
from .central_action_conversion import CentralActionConversion as CentralActionConversion
from .central_array_environment import CentralDispatchArrayEnvironment as CentralDispatchArrayEnvironment
from .central_core_environment import CentralDispatchCoreEnvironment as CentralDispatchCoreEnvironment
from .central_environment import CentralDispatchEnvironment as CentralDispatchEnvironment
from .central_environment import central_dispatch_factory as central_dispatch_factory
from .central_observation_conversion import CentralObservationConversion as CentralObservationConversion
from .city import City as City, HotSpot as HotSpot
from .core_environment import RideHailingCoreEnvironment as RideHailingCoreEnvironment
from .environment import RideHailingEnvironment as RideHailingEnvironment
from .environment import ride_hailing_factory as ride_hailing_factory
from .events import RideEvents as RideEvents
from .income_reward_aggregator import IncomeRewardAggregator as IncomeRewardAggregator
from .kpi_calculator import RideHailingKpiCalculator as RideHailingKpiCalculator
from .objects import RideHailingMazeAction as RideHailingMazeAction, RideHailingMazeState as RideHailingMazeState
from .observation_conversion import ObservationConversion as ObservationConversion
from .renderer import RideHailingRenderer as RideHailingRenderer
from .served_reward_aggregator import ServedRewardAggregator as ServedRewardAggregator
from .simulation import Drive as Drive, RideHailingSimulation as RideHailingSimulation
from .vehicle_reward_aggregator import VehicleRewardAggregator as VehicleRewardAggregator

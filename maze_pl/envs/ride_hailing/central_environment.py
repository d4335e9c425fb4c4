"""Ride hailing with a central dispatcher."""

from __future__ import annotations

from typing import Any

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.ride_hailing.central_action_conversion import CentralActionConversion
from maze_pl.envs.ride_hailing.central_core_environment import CentralDispatchCoreEnvironment
from maze_pl.envs.ride_hailing.central_observation_conversion import CentralObservationConversion
from maze_pl.envs.ride_hailing.city import City
from maze_pl.envs.ride_hailing.simulation import RideHailingSimulation


class CentralDispatchEnvironment(MazeEnv):
    """Ride hailing in which one actor chooses pairs; see `CentralDispatchCoreEnvironment`.

    Args:
        core_env: The simulation.
        max_vehicles: Maximum number of vehicles that are observed at a time; later ones wait until
            others have decided.

    Raises:
        ValueError: `max_vehicles` is less than 1.
    """

    heuristic_policy = "maze_pl.envs.ride_hailing.dispatching_rule_policy.DispatchingRulePolicy"

    def __init__(self, core_env: CentralDispatchCoreEnvironment, max_vehicles: int = 8) -> None:
        if max_vehicles < 1:
            raise ValueError(f"{max_vehicles=} must be at least 1")
        k = core_env.simulation.n_nearest
        n_zones = len(core_env.simulation.city.centres)
        actions = CentralActionConversion(max_vehicles, k)
        super().__init__(core_env, {0: actions}, {0: CentralObservationConversion(max_vehicles, k, n_zones)})


def central_dispatch_factory(
    n_shifts: int = 16,
    shift_hours: tuple[float, float] = (4.0, 8.0),
    patience: tuple[float, float] = (10.0, 20.0),
    n_nearest: int = 6,
    city: dict[str, Any] | None = None,
    max_vehicles: int = 8,
    reward_aggregator: RewardAggregatorInterface | None = None,
) -> MazeEnv:
    """Make the flat environment, in which one actor chooses a vehicle and its option.

    Args:
        n_shifts: Number of shifts in a day, one vehicle each.
        shift_hours: Shortest and longest shift, hours.
        patience: Shortest and longest time in which passengers must be picked up, minutes.
        n_nearest: Number of requests that a vehicle may choose from.
        city: Options of `City`.
        max_vehicles: Maximum number of vehicles that are observed at a time.
        reward_aggregator: Computes rewards; `IncomeRewardAggregator()` if None.
    """
    simulation = RideHailingSimulation(City(**(city or {})), n_shifts, shift_hours, patience, n_nearest)
    return CentralDispatchEnvironment(CentralDispatchCoreEnvironment(simulation, reward_aggregator), max_vehicles)

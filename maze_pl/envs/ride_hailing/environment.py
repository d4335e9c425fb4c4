"""Ride hailing with one agent for each shift."""

from __future__ import annotations

from typing import Any

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.ride_hailing.action_conversion import ActionConversion
from maze_pl.envs.ride_hailing.city import City
from maze_pl.envs.ride_hailing.core_environment import RideHailingCoreEnvironment
from maze_pl.envs.ride_hailing.observation_conversion import ObservationConversion
from maze_pl.envs.ride_hailing.simulation import RideHailingSimulation


class RideHailingEnvironment(MazeEnv):
    """Ride hailing whose vehicles decide one after the other; see `RideHailingCoreEnvironment`.

    Args:
        core_env: The simulation.
    """

    heuristic_policy = "maze_pl.envs.ride_hailing.dispatching_rule_policy.DispatchingRulePolicy"

    def __init__(self, core_env: RideHailingCoreEnvironment) -> None:
        simulation = core_env.simulation
        k = simulation.n_nearest
        n_zones = len(simulation.city.centres)
        super().__init__(core_env, {"vehicle": ActionConversion(k)}, {"vehicle": ObservationConversion(k, n_zones)})


def ride_hailing_factory(
    n_shifts: int = 16,
    shift_hours: tuple[float, float] = (4.0, 8.0),
    patience: tuple[float, float] = (10.0, 20.0),
    n_nearest: int = 6,
    city: dict[str, Any] | None = None,
    reward_aggregator: RewardAggregatorInterface | None = None,
) -> MazeEnv:
    """Make the structured environment, in which each vehicle is an agent.

    Args:
        n_shifts: Number of shifts in a day, one vehicle each.
        shift_hours: Shortest and longest shift, hours.
        patience: Shortest and longest time in which passengers must be picked up, minutes.
        n_nearest: Number of requests that a vehicle may choose from.
        city: Options of `City`.
        reward_aggregator: Computes rewards; `IncomeRewardAggregator()` if None.
    """
    simulation = RideHailingSimulation(City(**(city or {})), n_shifts, shift_hours, patience, n_nearest)
    return RideHailingEnvironment(RideHailingCoreEnvironment(simulation, reward_aggregator))

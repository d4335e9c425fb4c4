"""Flat vehicle routing: one actor chooses the next customer, or the depot."""

from __future__ import annotations

from maze_pl.envs.core_env import (
    ActionConversionInterface,
    CoreEnv,
    ObservationConversionInterface,
    RewardAggregatorInterface,
)
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.vehicle_routing.action_conversion import ActionConversion
from maze_pl.envs.vehicle_routing.core_environment import Instances, VehicleRoutingCoreEnvironment
from maze_pl.envs.vehicle_routing.observation_conversion import ObservationConversion


class VehicleRoutingEnvironment(MazeEnv):
    """Vehicle routing with one actor.

    Args:
        core_env: The simulation.
        action_conversion: Conversion of actions.
        observation_conversion: Conversion of states.
    """

    heuristic_policy = "maze_pl.envs.vehicle_routing.savings_policy.SavingsPolicy"

    def __init__(
        self,
        core_env: CoreEnv,
        action_conversion: ActionConversionInterface,
        observation_conversion: ObservationConversionInterface,
    ) -> None:
        super().__init__(core_env, {0: action_conversion}, {0: observation_conversion})


def vehicle_routing_factory(
    instances: Instances,
    max_customers: int | None = None,
    n_vehicles: int = 1,
    reward_aggregator: RewardAggregatorInterface | None = None,
    advised: bool = False,
) -> MazeEnv:
    """Make the flat environment; with one vehicle, an action is a customer, or 0 for the depot.

    Args:
        instances: Random ones (`random(50)`) or files; one is drawn for each episode, with equal
            probabilities.
        max_customers: Maximum number of customers; the largest number of `instances` if None.
        n_vehicles: Maximum number of vehicles under way at the same time.
        reward_aggregator: Computes rewards; `DistanceRewardAggregator()` if None.
        advised: Whether observations show planned routes; see `ObservationConversion`.

    Example:
        >>> env = vehicle_routing_factory(["random(20)"])
        >>> observation, _ = env.reset(seed=0)
        >>> env.action_space["option"], observation["options"].shape
        (Discrete(21), (21, 18))
    """
    core_env = VehicleRoutingCoreEnvironment(instances, max_customers, n_vehicles, reward_aggregator, advised)
    sizes = (core_env.max_customers, n_vehicles)
    observation_conversion = ObservationConversion(*sizes, is_advised=advised)
    return VehicleRoutingEnvironment(core_env, ActionConversion(*sizes), observation_conversion)

"""Structured vehicle routing: one actor chooses the vehicle, a second one where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.structured_env import Action, Array, Observation, StructuredEnv
from maze_pl.envs.two_decisions_wrapper import TwoDecisionsWrapper
from maze_pl.envs.vehicle_routing.core_environment import Instances
from maze_pl.envs.vehicle_routing.environment import vehicle_routing_factory
from maze_pl.envs.vehicle_routing.objects import RoutingMazeState
from maze_pl.envs.vehicle_routing.sub_step_observations import (
    nodes_observation,
    sub_step_spaces,
    vehicles_observation,
)
from maze_pl.envs.wrapper import Wrapper

MASKS: dict[StepKey, dict[str, str]] = {0: {"vehicle": "vehicle_mask"}, 1: {"node": "node_mask"}}
"""Head -> mask of each sub-step."""


class StructuredVehicleRoutingEnvironment(TwoDecisionsWrapper):
    """Splits each step of the flat environment into two sub-steps, 0 and 1, with masks.

    Sub-step 0 observes each vehicle with its nearest customer and chooses a vehicle, with reward 0.
    Sub-step 1 observes all nodes as options of that vehicle, chooses one and completes the step.
    Each of the two actors is credited with half of the reward.

    Args:
        maze_env: The flat environment, with or without wrappers; wrappers must not change the
            options.

    Raises:
        ValueError: The observations or actions differ from those of flat vehicle routing.

    Example:
        >>> env = structured_vehicle_routing_factory(["random(20)"], n_vehicles=3)
        >>> observation, _ = env.reset(seed=0)
        >>> observation["vehicles"].shape, observation["vehicle_mask"].tolist()
        ((3, 18), [1.0, 0.0, 0.0])
        >>> observation, reward, *_ = env.step({"vehicle": 0})
        >>> sorted(observation), observation["nodes"].shape, reward
        (['exists', 'node_mask', 'nodes', 'summary'], (21, 18), 0.0)
    """

    def __init__(self, maze_env: StructuredEnv) -> None:
        super().__init__(maze_env)
        flat: Any = maze_env.observation_spaces_dict.get(0, ())
        heads: Any = maze_env.action_spaces_dict.get(0, ())
        if not {"options", "option_mask", "exists", "summary"} <= set(flat) or set(heads) != {"option"}:
            wanted = "flat vehicle routing, with options, option_mask, exists and summary among its observations"
            raise ValueError(f"{type(self).__name__} wraps {wanted}; got {maze_env}, which shows {sorted(flat)}")
        core_env: Any = maze_env.core_env
        self._n_vehicles: int = core_env.n_vehicles
        self._n_nodes: int = core_env.max_customers + 1
        self._observation_spaces, self._action_spaces = sub_step_spaces(flat, self._n_vehicles)

    def get_simulation_state(self) -> Any:
        """Return the state that rules get, in sub-step 1 with moves of the chosen vehicle only."""
        state: RoutingMazeState = self.env.get_simulation_state()
        return state if self.first_decision is None else state.of_vehicle(int(self.first_decision["vehicle"]))

    def first_observation(self, flat: Observation) -> Observation:
        """Show each vehicle with its nearest customer."""
        observation = vehicles_observation(_stacked(flat), self._n_vehicles)
        return {name: array[0] for name, array in observation.items()}

    def second_observation(self, flat: Observation, first: Action) -> Observation:
        """Show all nodes as options of the chosen vehicle; zeros for a vehicle that does not exist."""
        observation = nodes_observation(_stacked(flat), self._n_vehicles, np.array([int(first["vehicle"])]))
        return {name: array[0] for name, array in observation.items()}

    def joined_action(self, first: Action, second: Action) -> Action:
        """Return the option of a vehicle and a node."""
        return {"option": int(first["vehicle"]) * self._n_nodes + int(second["node"])}

    def split_action(self, flat: Action) -> tuple[Action, Action]:
        """Return the vehicle and the node of an option."""
        vehicle, node = divmod(int(flat["option"]), self._n_nodes)
        return {"vehicle": vehicle}, {"node": node}

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """The masks of both sub-steps."""
        return dict(MASKS)


def _stacked(observation: Observation) -> dict[str, Array]:
    """The observation of one episode as those of n = 1 episodes."""
    return {name: np.asarray(array)[np.newaxis] for name, array in observation.items()}


def structured_vehicle_routing_factory(
    instances: Instances,
    max_customers: int | None = None,
    n_vehicles: int = 3,
    reward_aggregator: RewardAggregatorInterface | None = None,
    advised: bool = False,
) -> Wrapper:
    """Make the structured environment; see `vehicle_routing_factory`."""
    flat_env = vehicle_routing_factory(instances, max_customers, n_vehicles, reward_aggregator, advised)
    return StructuredVehicleRoutingEnvironment(flat_env)

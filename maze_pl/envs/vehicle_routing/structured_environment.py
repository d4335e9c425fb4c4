"""Structured vehicle routing: one actor chooses the vehicle, a second one where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.structured_env import Action, Array, Dicts, Observation, ResetResult, StepParts, StructuredEnv
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


class StructuredVehicleRoutingEnvironment(Wrapper):
    """Splits each step of the flat environment into two sub-steps, 0 and 1, with masks.

    Sub-step 0 observes each vehicle with its nearest customer and chooses a vehicle, with reward 0.
    Sub-step 1 observes all nodes as options of that vehicle, chooses one and completes the step. Each of
    the two actors is credited with half of the reward.

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
        self._flat_observation: Observation | None = None
        self._vehicle: int | None = None  # chosen in sub-step 0, None before
        self._reward = 0.0

    def step_in_parts(self, action: Action) -> StepParts:
        """Choose a vehicle (sub-step 0) or its next node (sub-step 1)."""
        if self._flat_observation is None:
            raise ResetNeeded(f"step of {type(self).__name__} was called before reset; start an episode first")
        if self._vehicle is None:
            self.begin_env_step()
            self._vehicle = int(action["vehicle"])
            observation = self._nodes(self._flat_observation, self._vehicle)
            return observation, 0.0, False, False, {}
        option = self._vehicle * self._n_nodes + int(action["node"])
        self._flat_observation, self._reward, terminated, truncated, info = yield {"option": option}
        self._vehicle = None
        return self._vehicles(self._flat_observation), self._reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode with the choice of a vehicle."""
        self._flat_observation, info = self.env.reset(seed=seed, options=options)
        self._vehicle = None
        return self._vehicles(self._flat_observation), info

    def get_simulation_state(self) -> Any:
        """Return the state that rules get, in sub-step 1 with moves of the chosen vehicle only."""
        state: RoutingMazeState = self.env.get_simulation_state()
        return state if self._vehicle is None else state.of_vehicle(self._vehicle)

    def _vehicles(self, flat: Observation) -> Observation:
        """Observation of sub-step 0."""
        observation = vehicles_observation(_stacked(flat), self._n_vehicles)
        return {name: array[0] for name, array in observation.items()}

    def _nodes(self, flat: Observation, vehicle: int) -> Observation:
        """Observation of sub-step 1; zeros for a vehicle that does not exist."""
        observation = nodes_observation(_stacked(flat), self._n_vehicles, np.array([vehicle]))
        return {name: array[0] for name, array in observation.items()}

    def actor_id(self) -> ActorID:
        """Agent 0 of sub-step 0 or 1."""
        return ActorID(0 if self._vehicle is None else 1, 0)

    @property
    def agent_counts_dict(self) -> Mapping[StepKey, int]:
        """Number of agents of each sub-step: one in both."""
        return {0: 1, 1: 1}

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """The masks of both sub-steps."""
        return dict(MASKS)

    def get_actor_rewards(self) -> Array:
        """Rewards of the two actors: half of the finished step's reward each."""
        return np.full(2, self._reward / 2)

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action; without the action, only sub-step 0 is converted."""
        flat = self.env.get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        flat_observations, flat_actions = flat
        observations: dict[StepKey, Observation] | None = None
        actions: dict[StepKey, Action] | None = None
        if flat_observations is not None:
            observations = {0: self._vehicles(flat_observations[0])}
        if flat_actions is not None:
            vehicle, node = divmod(int(flat_actions[0]["option"]), self._n_nodes)
            actions = {0: {"vehicle": vehicle}, 1: {"node": node}}
            if observations is not None and flat_observations is not None:
                observations[1] = self._nodes(flat_observations[0], vehicle)
        return observations, actions


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

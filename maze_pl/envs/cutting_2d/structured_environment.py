"""The structured cutting environment: one actor chooses the piece, a second one the cuts."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs.cutting_2d.demand import Demand
from maze_pl.envs.cutting_2d.environment import maze_env_factory
from maze_pl.envs.cutting_2d.objects import Piece
from maze_pl.envs.structured_env import (
    Action,
    Array,
    Dicts,
    Observation,
    ResetResult,
    StepParts,
    StructuredEnv,
)
from maze_pl.envs.wrapper import Wrapper

_HEADS: dict[StepKey, tuple[str, ...]] = {0: ("piece_idx",), 1: ("cut_rotation", "cut_order")}


class StructuredCutting2DEnvironment(Wrapper):
    """Splits each step of the flat environment into two sub-steps, 0 and 1.

    Sub-step 0 observes the whole stock and chooses a piece, with reward 0. Sub-step 1 observes that
    piece and the order, chooses the cuts and completes the step. Each of the two actors is credited
    with half of the reward.

    Args:
        maze_env: The flat environment, with or without wrappers; wrappers must not change the
            pieces and orders.

    Raises:
        ValueError: The observations or actions differ from the flat cutting environment's.

    Example:
        >>> env = struct_env_factory(50, (4, 3), (1, 2))
        >>> observation, _ = env.reset(seed=0)
        >>> observation, reward, *_ = env.step({"piece_idx": 0})
        >>> sorted(observation), observation["selected_piece"].tolist(), reward
        (['ordered_piece', 'selected_piece'], [4.0, 3.0], 0.0)
        >>> observation, reward, *_ = env.step({"cut_rotation": 0, "cut_order": 0})
        >>> observation["inventory"][:3].tolist(), reward
        ([[3.0, 3.0], [1.0, 1.0], [4.0, 3.0]], -2.0)
    """

    def __init__(self, maze_env: StructuredEnv) -> None:
        super().__init__(maze_env)
        flat: Any = maze_env.observation_spaces_dict.get(0, ())
        heads: Any = maze_env.action_spaces_dict.get(0, ())
        if not {"inventory", "ordered_piece"} <= set(flat) or set(heads) != {
            *_HEADS[0],
            *_HEADS[1],
        }:
            wanted = "the flat cutting environment, with inventory and ordered_piece among its observations"
            raise ValueError(f"{type(self).__name__} wraps {wanted}; got {maze_env}, which shows {sorted(flat)}")
        cutting = dict.fromkeys(("selected_piece", "ordered_piece"), flat["ordered_piece"])
        self._observation_spaces = {0: spaces.Dict({**flat.spaces}), 1: spaces.Dict(cutting)}
        self._action_spaces = {}
        for key, names in _HEADS.items():
            self._action_spaces[key] = spaces.Dict({head: heads[head] for head in names})
        self._flat_observation: Observation | None = None
        self._piece_idx: int | None = None  # chosen in sub-step 0, None before
        self._reward = 0.0

    def step_in_parts(self, action: Action) -> StepParts:
        """Choose a piece (sub-step 0) or cut it (sub-step 1)."""
        if self._flat_observation is None:
            raise ResetNeeded(f"step of {type(self).__name__} was called before reset; start an episode first")
        if self._piece_idx is None:
            self.begin_env_step()
            self._piece_idx = int(action["piece_idx"])
            return (
                self._cutting_observation(self._flat_observation, self._piece_idx),
                0.0,
                False,
                False,
                {},
            )
        flat_action = {**action, "piece_idx": self._piece_idx}
        self._flat_observation, self._reward, terminated, truncated, info = yield flat_action
        self._piece_idx = None
        return (
            self._selection_observation(self._flat_observation),
            self._reward,
            terminated,
            truncated,
            info,
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode with the choice of a piece."""
        self._flat_observation, info = self.env.reset(seed=seed, options=options)
        self._piece_idx = None
        return self._selection_observation(self._flat_observation), info

    def _selection_observation(self, flat: Observation) -> Observation:
        """Observation of sub-step 0."""
        return flat.copy()

    def _cutting_observation(self, flat: Observation, piece_idx: int) -> Observation:
        """Observation of sub-step 1; an empty slot gives a piece of extent 0."""
        inventory, order = flat["inventory"], flat["ordered_piece"].copy()
        piece = inventory[piece_idx].copy() if 0 <= piece_idx < len(inventory) else np.zeros_like(order)
        return {"selected_piece": piece, "ordered_piece": order}

    def actor_id(self) -> ActorID:
        """Agent 0 of sub-step 0 or 1."""
        return ActorID(0 if self._piece_idx is None else 1, 0)

    @property
    def agent_counts_dict(self) -> Mapping[StepKey, int]:
        """Number of agents of each sub-step: one in both."""
        return {0: 1, 1: 1}

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
            observations = {0: self._selection_observation(flat_observations[0])}
        if flat_actions is not None:
            action = flat_actions[0]
            actions = {}
            for key, names in _HEADS.items():
                actions[key] = {head: action[head] for head in names}
            if observations is not None and flat_observations is not None:
                observations[1] = self._cutting_observation(flat_observations[0], int(action["piece_idx"]))
        return observations, actions


def struct_env_factory(max_pieces_in_inventory: int, raw_piece_size: Piece, static_demand: Demand) -> Wrapper:
    """Make the structured environment; see `maze_env_factory`."""
    return StructuredCutting2DEnvironment(maze_env_factory(max_pieces_in_inventory, raw_piece_size, static_demand))

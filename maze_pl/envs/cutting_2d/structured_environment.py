"""The structured cutting environment: one actor chooses the piece, a second one the cuts."""

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.cutting_2d.demand import Demand
from maze_pl.envs.cutting_2d.environment import maze_env_factory
from maze_pl.envs.cutting_2d.objects import Cutting2DMazeState, Piece
from maze_pl.envs.structured_env import Action, Observation, StructuredEnv
from maze_pl.envs.two_decisions_wrapper import TwoDecisionsWrapper
from maze_pl.envs.wrapper import Wrapper

_HEADS: dict[StepKey, tuple[str, ...]] = {0: ("piece_idx",), 1: ("cut_rotation", "cut_order")}


class StructuredCutting2DEnvironment(TwoDecisionsWrapper):
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

    def get_simulation_state(self) -> Any:
        """Return the state that rules get, in sub-step 1 with the chosen piece."""
        state: Cutting2DMazeState = self.env.get_simulation_state()
        return state if self.first_decision is None else state.with_choice(int(self.first_decision["piece_idx"]))

    def first_observation(self, flat: Observation) -> Observation:
        """Show the whole stock."""
        return flat.copy()

    def second_observation(self, flat: Observation, first: Action) -> Observation:
        """Show the chosen piece; an empty slot gives a piece of extent 0."""
        piece_idx = int(first["piece_idx"])
        inventory, order = flat["inventory"], flat["ordered_piece"].copy()
        piece = inventory[piece_idx].copy() if 0 <= piece_idx < len(inventory) else np.zeros_like(order)
        return {"selected_piece": piece, "ordered_piece": order}

    def joined_action(self, first: Action, second: Action) -> Action:
        """Return the choice of a piece with its cuts."""
        return {**second, "piece_idx": int(first["piece_idx"])}

    def split_action(self, flat: Action) -> tuple[Action, Action]:
        """Return the choice of the piece, and the cuts."""
        piece, cuts = ({head: flat[head] for head in names} for names in _HEADS.values())
        return piece, cuts


def struct_env_factory(max_pieces_in_inventory: int, raw_piece_size: Piece, static_demand: Demand) -> Wrapper:
    """Make the structured environment; see `maze_env_factory`."""
    return StructuredCutting2DEnvironment(maze_env_factory(max_pieces_in_inventory, raw_piece_size, static_demand))

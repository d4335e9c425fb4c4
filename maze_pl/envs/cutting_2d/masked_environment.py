"""The flat cutting environment with one choice among all cuts, and a mask that allows valid cuts only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.cutting_2d.demand import Demand
from maze_pl.envs.cutting_2d.environment import maze_env_factory
from maze_pl.envs.cutting_2d.events import InventoryEvents
from maze_pl.envs.cutting_2d.objects import Piece
from maze_pl.envs.structured_env import Action, Dicts, Observation, ResetResult, StepParts, StructuredEnv
from maze_pl.envs.wrapper import Wrapper

CUTS_PER_PIECE = 4


class MaskedCutting2DEnvironment(Wrapper):
    """The flat environment, with one action for each combination of piece, rotation and first cut.

    The action is `cut` = 4 `piece_idx` + 2 `cut_rotation` + `cut_order`, so that a mask can state
    which combinations are valid. `cut_mask` [4 max_pieces_in_inventory] is 1 for cuts of pieces
    that the order fits into with the rotation. If the order fits into no piece, the episode
    terminates (`no_piece_fits`).

    Args:
        maze_env: The flat environment, with or without wrappers; wrappers must not change the
            pieces and orders.

    Raises:
        ValueError: The observations or actions differ from the flat cutting environment's.

    Example:
        >>> env = masked_env_factory(2, (4, 1), (3, 1))
        >>> env.reset(seed=0)[0]["cut_mask"].tolist(), env.action_masks_dict
        ([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], {0: {'cut': 'cut_mask'}})
    """

    def __init__(self, maze_env: StructuredEnv) -> None:
        super().__init__(maze_env)
        flat: Any = maze_env.observation_spaces_dict.get(0, ())
        heads: Any = maze_env.action_spaces_dict.get(0, ())
        if not {"inventory", "ordered_piece"} <= set(flat) or set(heads) != {"piece_idx", "cut_rotation", "cut_order"}:
            wanted = "the flat cutting environment, with inventory and ordered_piece among its observations"
            raise ValueError(f"{type(self).__name__} wraps {wanted}; got {maze_env}, which shows {sorted(flat)}")
        n_cuts = CUTS_PER_PIECE * int(heads["piece_idx"].n)
        self._observation_spaces = {0: spaces.Dict({**flat.spaces, "cut_mask": spaces.Box(0, 1, (n_cuts,))})}
        self._action_spaces = {0: spaces.Dict(cut=spaces.Discrete(n_cuts))}
        self._inventory_events = self.pubsub.create_event_topic(InventoryEvents)

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """The mask of the cuts."""
        return {0: {"cut": "cut_mask"}}

    def step_in_parts(self, action: Action) -> StepParts:
        """Cut a piece; the episode terminates if the next order fits into no piece."""
        flat, reward, terminated, truncated, info = yield _choices(int(action["cut"]))
        observation = _with_mask(flat)
        if not observation["cut_mask"].any():
            self._inventory_events.no_piece_fits(tuple(observation["ordered_piece"].astype(int).tolist()))
            terminated, truncated = True, False
        return observation, reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode."""
        flat, info = self.env.reset(seed=seed, options=options)
        return _with_mask(flat), info

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action."""
        flat = self.env.get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        flat_observations, flat_actions = flat
        observations: dict[StepKey, Observation] | None = None
        actions: dict[StepKey, Action] | None = None
        if flat_observations is not None:
            observations = {0: _with_mask(flat_observations[0])}
        if flat_actions is not None:
            actions = {0: {"cut": _number(flat_actions[0])}}
        return observations, actions


def masked_env_factory(max_pieces_in_inventory: int, raw_piece_size: Piece, static_demand: Demand) -> Wrapper:
    """Make the flat environment with a mask; see `maze_env_factory`."""
    return MaskedCutting2DEnvironment(maze_env_factory(max_pieces_in_inventory, raw_piece_size, static_demand))


def _choices(cut: int) -> Action:
    """Split a cut into the three choices of the flat environment."""
    piece, choice = divmod(cut, CUTS_PER_PIECE)
    rotation, order = divmod(choice, 2)
    return {"piece_idx": piece, "cut_rotation": rotation, "cut_order": order}


def _number(choices: Action) -> int:
    """Number of the cut that the three choices make."""
    rotation, order = int(choices["cut_rotation"]), int(choices["cut_order"])
    return CUTS_PER_PIECE * int(choices["piece_idx"]) + 2 * rotation + order


def _with_mask(flat: Observation) -> Observation:
    """Add the mask to an observation; slots without a piece have extent 0, so that no order fits."""
    pieces, order = flat["inventory"], flat["ordered_piece"]
    upright = (pieces >= order).all(-1)
    turned = (pieces >= order[::-1]).all(-1)
    mask = np.stack([upright, upright, turned, turned], -1).reshape(-1)
    return {**flat, "cut_mask": mask.astype(np.float32)}

"""The structured cutting environment with masks that allow valid cuts only."""

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.cutting_2d.demand import Demand
from maze_pl.envs.cutting_2d.environment import maze_env_factory
from maze_pl.envs.cutting_2d.events import InventoryEvents
from maze_pl.envs.cutting_2d.objects import Piece
from maze_pl.envs.cutting_2d.structured_environment import StructuredCutting2DEnvironment
from maze_pl.envs.structured_env import Action, Observation, StepParts, StructuredEnv
from maze_pl.envs.wrapper import Wrapper


class MaskedStructuredCutting2DEnvironment(StructuredCutting2DEnvironment):
    """The structured environment with masks that allow valid cuts only.

    `inventory_mask` is 1 for each piece that the order fits into; `cutting_mask` is 1 for each
    `cut_rotation` with which the order fits. If the order fits into no piece, the episode
    terminates (`no_piece_fits`).

    Args:
        maze_env: The flat environment, with or without wrappers; wrappers must not change the
            pieces and orders.

    Example:
        >>> env = masked_struct_env_factory(3, (4, 3), (1, 2))
        >>> env.reset(seed=0)[0]["inventory_mask"].tolist(), env.action_masks_dict
        ([1.0, 0.0, 0.0], {0: {'piece_idx': 'inventory_mask'}, 1: {'cut_rotation': 'cutting_mask'}})
    """

    def __init__(self, maze_env: StructuredEnv) -> None:
        super().__init__(maze_env)
        self._inventory_events = self.pubsub.create_event_topic(InventoryEvents)
        selection, cutting = self.observation_spaces_dict[0], self.observation_spaces_dict[1]
        selection["inventory_mask"] = spaces.Box(0, 1, (selection["inventory"].shape or ())[:1])
        cutting["cutting_mask"] = spaces.Box(0, 1, (2,))

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """The masks of both sub-steps."""
        return {0: {"piece_idx": "inventory_mask"}, 1: {"cut_rotation": "cutting_mask"}}

    def step_in_parts(self, action: Action) -> StepParts:
        """Choose a piece or cut it; the episode terminates if the next order fits into no piece."""
        observation, reward, terminated, truncated, info = yield from super().step_in_parts(action)
        if self.first_decision is None and not observation["inventory_mask"].any():
            self._inventory_events.no_piece_fits(tuple(observation["ordered_piece"].astype(int).tolist()))
            terminated, truncated = True, False
        return observation, reward, terminated, truncated, info

    def first_observation(self, flat: Observation) -> Observation:
        """Show the whole stock, and the pieces that the order fits into."""
        pieces, order = flat["inventory"], flat["ordered_piece"]
        upright, turned = pieces >= order, pieces >= order[::-1]
        mask = (upright[:, 0] & upright[:, 1]) | (turned[:, 0] & turned[:, 1])
        return {**flat, "inventory_mask": mask.astype(np.float32)}

    def second_observation(self, flat: Observation, first: Action) -> Observation:
        """Show the chosen piece, and the rotations with which the order fits."""
        observation = super().second_observation(flat, first)
        x, y = observation["selected_piece"].tolist()
        width, height = observation["ordered_piece"].tolist()
        fits_upright = width <= x and height <= y
        fits_turned = height <= x and width <= y
        return {**observation, "cutting_mask": np.array([fits_upright, fits_turned], np.float32)}


def masked_struct_env_factory(max_pieces_in_inventory: int, raw_piece_size: Piece, static_demand: Demand) -> Wrapper:
    """Make the structured environment with masks; see `maze_env_factory`."""
    flat_env = maze_env_factory(max_pieces_in_inventory, raw_piece_size, static_demand)
    return MaskedStructuredCutting2DEnvironment(flat_env)

"""Conversion of the actions of PettingZoo environments."""

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from maze_pl.envs.gym_action_conversion import GymActionConversion
from maze_pl.envs.pettingzoo_observation_conversion import MASK


class PettingZooActionConversion(GymActionConversion):
    """Names the action of an agent: `action`, or the parts of a Dict.

    Args:
        space: Action space of the agents of a policy.
        has_mask: Whether their observations contain a mask of the actions.

    Raises:
        TypeError: The space or a part of it is of an unsupported type.
    """

    def __init__(self, space: spaces.Space[Any], has_mask: bool) -> None:
        super().__init__(space)
        self._masks = {"action": MASK} if has_mask else {}

    @property
    def action_masks(self) -> Mapping[str, str]:
        """Head -> name of its mask."""
        return self._masks

"""The baseline: cut the smallest piece that fits, so that the largest leftover stays whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.cutting_2d.inventory import residuals
from maze_pl.envs.cutting_2d.objects import Piece

if TYPE_CHECKING:
    from maze_pl.core.policy import PolicyBatch, PolicyStep


class GreedyCuttingPolicy:
    """Chooses the smallest piece that fits, and the cuts that leave the largest single rectangle.

    Ties between pieces of equal area go to the first one; ties between cuts prefer not to rotate
    the order, then not to reverse the cutting order. The policy works in all forms of
    the environment.

    Args:
        action_spaces_dict: Action space of each sub-step.
        masks: Not used, since the pieces and the order show what fits; accepted because any policy
            may be given masks.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict], masks: Any = None) -> None:
        self.heads = {key: tuple(space) for key, space in action_spaces_dict.items()}

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        """Choose the heads that the sub-step asks for, deterministically."""
        from maze_pl.core.policy import PolicyStep  # here, as environments can do without torch

        observation, orders = batch.observation, batch.observation["ordered_piece"]
        stock = observation.get("inventory")
        if stock is None:
            stock = observation["selected_piece"][:, np.newaxis]
        fits = (np.sort(stock) >= np.sort(orders)[:, np.newaxis]).all(axis=-1)
        index = np.where(fits, stock.prod(axis=-1), np.inf).argmin(axis=-1)
        pieces = stock[np.arange(len(stock)), index]
        pairs = zip(pieces.tolist(), orders.tolist(), strict=True)
        cuts = np.array([_best_cuts(piece, order) for piece, order in pairs])
        chosen = {"piece_idx": index, "cut_rotation": cuts[:, 0], "cut_order": cuts[:, 1]}
        chosen["cut"] = 4 * index + 2 * cuts[:, 0] + cuts[:, 1]
        return PolicyStep({head: chosen[head] for head in self.heads[batch.step_key]})


def _best_cuts(piece: Piece, order: Piece) -> tuple[int, int]:
    """Return `cut_rotation` and `cut_order` of the best cuts; (0, 0) if the order does not fit."""
    best, largest = (0, 0), -1.0
    for rotate, turned in enumerate((order, order[::-1])):
        if turned[0] > piece[0] or turned[1] > piece[1]:
            continue
        for reverse in (0, 1):
            area = max(x * y for x, y in residuals(piece, turned, bool(reverse)))
            if area > largest:  # the first one in a tie
                best, largest = (rotate, reverse), area
    return best

"""The heuristic to compare with: cut the smallest piece that will do, so that the largest rest stays in one piece."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.cutting_2d.core_env import residuals
from maze_pl.envs.cutting_2d.demand import Piece

if TYPE_CHECKING:
    from maze_pl.core.policy import PolicyBatch, PolicyStep


class GreedyCuttingPolicy:
    """Takes the smallest piece that the order fits into, and the cuts that leave the largest single rectangle.

    Among pieces of the same area it takes the first one, among cuts that are as good those that neither turn the order
    nor reverse the cutting order. It works in the flat environment and in both structured ones.

    Args:
        action_spaces_dict: Action space of each sub-step.
        masks: Not needed, since pieces and order show what fits; every policy can be given them.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict], masks: Any = None) -> None:
        self.heads = {key: tuple(space) for key, space in action_spaces_dict.items()}

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        """Choose piece and cuts, as far as the sub-step asks for them; nothing here is random."""
        from maze_pl.core.policy import PolicyStep  # not above: environments can be used without torch

        seen, orders = batch.observation, batch.observation["ordered_piece"]
        stock = seen["inventory"] if "inventory" in seen else seen["selected_piece"][:, np.newaxis]
        fits = (np.sort(stock) >= np.sort(orders)[:, np.newaxis]).all(axis=-1)
        index = np.where(fits, stock.prod(axis=-1), np.inf).argmin(axis=-1)
        pieces = stock[np.arange(len(stock)), index]
        cuts = np.array([_best_cuts(*both) for both in zip(pieces.tolist(), orders.tolist(), strict=True)])
        chosen = {"piece_idx": index, "cut_rotation": cuts[:, 0], "cut_order": cuts[:, 1]}
        return PolicyStep({head: chosen[head] for head in self.heads[batch.step_key]})


def _best_cuts(piece: Piece, order: Piece) -> tuple[int, int]:
    """Whether to turn the order, and whether to reverse the cutting order; neither if it does not fit at all."""
    options = [
        (max(x * y for x, y in residuals(piece, turned, bool(reverse))), rotate, reverse)
        for rotate, turned in enumerate((order, order[::-1]))
        if turned[0] <= piece[0] and turned[1] <= piece[1]
        for reverse in (0, 1)
    ]
    return max(options, key=lambda option: option[0], default=(0, 0, 0))[1:]  # the first of those that are as good

"""The baseline: cut the smallest piece that fits, so that the largest leftover stays whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.core.rule_heads import RuleHeads
from maze_pl.envs.cutting_2d.inventory import residuals
from maze_pl.envs.cutting_2d.objects import ChosenPieceMazeState, Cutting2DMazeState, Piece

if TYPE_CHECKING:
    import torch

_NO_PIECE = (0, 0)


class GreedyCuttingPolicy(MazeStatePolicy):
    """Chooses the smallest piece that fits, and the cuts that leave the largest single rectangle.

    Ties between pieces of equal area go to the first one; ties between cuts prefer not to rotate
    the order, then not to reverse the cutting order. The policy works in all forms of the
    environment. It reads the state of the simulation, so that wrappers of observations do not matter.

    Args:
        action_spaces_dict: Action space of each sub-step.
        masks: Not used, since the pieces and the order show what fits; accepted because any policy
            may be given masks.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict], masks: Any = None) -> None:
        self._heads = RuleHeads(action_spaces_dict)

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Choose the heads that the sub-step asks for; nothing here is random.

        Raises:
            ValueError: The batch has no states of the simulation, or the heads are not those of a cut.
        """
        states = self.states_of(batch)
        heads = self._heads.of(self, batch.step_key, lambda _: _known_heads(states[0]))
        choices = np.array([_best_choice(state) for state in states])
        chosen = {"piece_idx": choices[:, 0], "cut_rotation": choices[:, 1], "cut_order": choices[:, 2]}
        chosen["cut"] = 4 * choices[:, 0] + 2 * choices[:, 1] + choices[:, 2]
        return PolicyStep({head: chosen[head] for head in heads.spaces})


def _known_heads(state: Cutting2DMazeState) -> dict[str, spaces.Space[Any]]:
    """Return the heads of all forms."""
    n_pieces = state.max_pieces_in_inventory
    return {
        "piece_idx": spaces.Discrete(n_pieces),
        "cut_rotation": spaces.Discrete(2),
        "cut_order": spaces.Discrete(2),
        "cut": spaces.Discrete(4 * n_pieces),
    }


def _best_choice(state: Cutting2DMazeState) -> tuple[int, int, int]:
    """Return `piece_idx`, `cut_rotation` and `cut_order` of the best cuts, of the chosen piece if there is one."""
    pieces = state.inventory
    index = state.piece_id if isinstance(state, ChosenPieceMazeState) else _smallest_fitting(state)
    piece = pieces[index] if 0 <= index < len(pieces) else _NO_PIECE
    return index, *_best_cuts(piece, state.current_demand)


def _smallest_fitting(state: Cutting2DMazeState) -> int:
    """Return the position of the smallest piece that the order fits into, the first one in a tie; 0 if none fits."""
    short, long = sorted(state.current_demand)
    areas = [
        (x * y, place)
        for place, (x, y) in enumerate(state.inventory)
        if (x >= short and y >= long) or (x >= long and y >= short)
    ]
    return min(areas)[1] if areas else 0


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

"""A rule as it is, under `ResidualActionWrapper`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.rule_heads import require_heads

if TYPE_CHECKING:
    import torch


class NoCorrectionPolicy:
    """Corrects nothing, so that `ResidualActionWrapper` plays its rule.

    Args:
        action_spaces_dict: Action space of each sub-step; all heads are corrections.

    Raises:
        ValueError: A head is not a Box from -1 to 1.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict]) -> None:
        self.action_spaces_dict = dict(action_spaces_dict)
        for space in self.action_spaces_dict.values():
            known = {head: spaces.Box(-1, 1, part.shape) for head, part in space.spaces.items()}
            require_heads(self, space, known)

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Corrections of 0 for the actors of a batch."""
        heads = self.action_spaces_dict[batch.step_key].spaces
        n = len(batch.agent_id)
        return PolicyStep({head: np.zeros((n, *(space.shape or ())), space.dtype) for head, space in heads.items()})

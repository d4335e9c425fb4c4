"""A rule that uses the state, as it is, under a `ResidualActionWrapper` that corrects some heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrappers.partly_corrected_policy import PartlyCorrectedPolicy

if TYPE_CHECKING:
    import torch


class PartlyCorrectedStatePolicy(MazeStatePolicy):
    """Plays a rule that uses the state as `PartlyCorrectedPolicy` plays other rules.

    Args:
        env: The environment with its wrappers.

    Raises:
        ValueError: No wrapper corrects a rule, or other wrappers replace its heads.
    """

    def __init__(self, env: StructuredEnv) -> None:
        self._policy = PartlyCorrectedPolicy(env)

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Corrections of 0, and the rule's actions in the other heads."""
        return self._policy.act(batch)

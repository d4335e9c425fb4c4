"""Base of policies that choose a job and one of its alternatives from the state of the simulation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.core.rule_heads import RuleHeads
from maze_pl.envs.job_shop.objects import JobShopMazeState

if TYPE_CHECKING:
    import torch


class OptionPolicy(MazeStatePolicy):
    """Chooses a job and one of its alternatives, in the flat and in the structured form.

    Args:
        action_spaces_dict: Action space of each sub-step.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict]) -> None:
        self._heads = RuleHeads(action_spaces_dict)

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Choose the heads that the sub-step asks for.

        Raises:
            ValueError: The batch has no states of the simulation, or the heads are not those of an option.
        """
        states = self.states_of(batch)
        heads = self._heads.of(self, batch.step_key, lambda _: _known_heads(states[0]))
        choices = np.array([self.choose(state) for state in states])
        n_alternatives = states[0].exists.shape[1]
        chosen = {
            "option": choices[:, 0] * n_alternatives + choices[:, 1],
            "job": choices[:, 0],
            "alternative": choices[:, 1],
        }
        return PolicyStep({head: chosen[head] for head in heads.spaces})

    @abstractmethod
    def choose(self, state: JobShopMazeState) -> tuple[int, int]:
        """Return a job and one of its alternatives.

        Args:
            state: A state in which something may be chosen.
        """


def _known_heads(state: JobShopMazeState) -> dict[str, spaces.Space[Any]]:
    """Return the heads of both forms."""
    n_jobs, n_alternatives = state.exists.shape
    return {
        "option": spaces.Discrete(n_jobs * n_alternatives),
        "job": spaces.Discrete(n_jobs),
        "alternative": spaces.Discrete(n_alternatives),
    }

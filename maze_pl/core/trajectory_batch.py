"""Acts drawn from recorded episodes: the batches of algorithms that learn from demonstrations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import mapped

Tree = dict[str, Tensor]


@dataclass
class Acts:
    """n acts of one sub-step, in any order, from any episodes.

    Attributes:
        observation: Name -> [n, ...], what the actors saw.
        action: Head -> [n, ...], what they did.
        agent_id: [n] int64, who they were.
        next_observation: Name -> [n, ...], what the same actor saw at its next act, or would have seen where the
            episode was cut off. None where it was not asked for, as is the rest.
        reward: [n] float64, what came of the act until then, discounted.
        discount: [n] float64, what the value of the next observation counts for; 0 where terminated.
        terminated: [n] bool, whether the episode ended for the actor before it acted again; the next observation is the
            act's own then, since there is none.
        truncated: [n] bool, whether the episode was cut off before it acted again.
    """

    observation: Tree
    action: Tree
    agent_id: Tensor
    next_observation: Tree | None = None
    reward: Tensor | None = None
    discount: Tensor | None = None
    terminated: Tensor | None = None
    truncated: Tensor | None = None

    def __len__(self) -> int:
        return len(self.agent_id)


@dataclass
class TrajectoryBatch:
    """Acts of all sub-steps.

    Attributes:
        acts: Those of each sub-step, in the order of the specification; possibly none, but never missing.
    """

    acts: dict[StepKey, Acts]

    def __len__(self) -> int:
        """Number of acts."""
        return sum(map(len, self.acts.values()))

    def to(self, device: torch.device | str) -> TrajectoryBatch:
        """The batch on a device; its tensors are the same where they are there."""
        return TrajectoryBatch(mapped(lambda tensor: tensor.to(device), self.acts))

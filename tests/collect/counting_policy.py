"""A policy whose state counts what it did."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.spec import Spec


class CountingPolicy:
    """Carries how often the actor has acted, and the sum of the numbers that it saw; acts at random."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.batches: list[PolicyBatch] = []

    def act(self, batch: PolicyBatch, *, generator: torch.Generator | None = None, **_: Any) -> PolicyStep:
        n = len(batch.agent_id)
        state = batch.policy_state or {"count": np.zeros((n, 1)), "sum": np.zeros((n, 2, 1))}
        self.batches.append(PolicyBatch(batch.step_key, dict(batch.observation), batch.agent_id.copy(), state))
        seen = sum(array.reshape(n, -1).sum(1) for array in batch.observation.values())
        action = {
            head: torch.randint(2, (n, *space.shape), generator=generator).numpy().astype(space.dtype)
            for head, space in self.spec.steps[batch.step_key].action_space.spaces.items()
        }
        after = {"count": state["count"] + 1, "sum": state["sum"] + seen.reshape(n, 1, 1)}
        return PolicyStep(action, policy_state=after)

"""A policy that shows with which weights it acted; in a module that workers import quickly."""

from __future__ import annotations

import numpy as np
import torch

from maze_pl.core.batches import Rollout
from maze_pl.core.policy import PolicyBatch, PolicyStep


class Counter(torch.nn.Module):
    """Acts by its weight, plus less than 0.5 where it samples; keeps what it saw and in which mode it was."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.modes: set[bool] = set()
        self.seen: list[np.ndarray] = []

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        self.modes.add(self.training)
        self.seen.append(batch.observation["observation"].copy())
        shape = (len(batch.agent_id), 1)
        noise = np.zeros(shape) if deterministic else torch.rand(shape, generator=generator).numpy() / 2
        return PolicyStep({"action": (self.weight.item() + noise).astype(np.float32)})

    def note_log_probs(self, rollout: Rollout) -> None:
        """As certain of its actions as of any others."""
        for segment in rollout.segments.values():
            segment.log_prob = torch.zeros(segment.active.shape)

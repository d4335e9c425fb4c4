"""A policy and critics of the small problems, for tests of values and searches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from maze_pl.agents.torch_state_critic import StateCritic
from maze_pl.core.policy import PolicyBatch, PolicyStep

GAMMA = 0.5


class SumOfHistory(StateCritic):
    """Ten times the sum of the choices so far."""

    kind: ClassVar[Literal["shared", "step", "delta"]] = "step"

    def value(self, step_key: Any, observation: Mapping[str, Tensor], agent_id: Tensor | None = None) -> Tensor:
        return 10 * observation["history"].clamp(min=0).sum(-1)


class StepCritic(SumOfHistory):
    """Values every state at 1."""

    def value(self, step_key: Any, observation: Mapping[str, Tensor], agent_id: Tensor | None = None) -> Tensor:
        return torch.ones(len(next(iter(observation.values()))))


class SharedSumOfHistory(SumOfHistory):
    kind: ClassVar[Literal["shared", "step", "delta"]] = "shared"


class LastAllowed:
    """Takes the last allowed choice."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        allowed = batch.observation["allowed"]
        return PolicyStep({"choice": allowed.shape[1] - 1 - allowed[:, ::-1].argmax(1)})

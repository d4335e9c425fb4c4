"""Mistakes that a learner of structured environments may make, as changes of its rollouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from maze_pl.core.batches import Rollout
from maze_pl.modules import PPO

Sabotage = Callable[[Rollout], Rollout]


class SabotagedPPO(PPO):
    """PPO that is shown rollouts with a mistake in them.

    Args:
        sabotage: The mistake.
        options: Of PPO.
    """

    def __init__(self, *, sabotage: Sabotage, **options: Any) -> None:
        super().__init__(**options)
        self.sabotage = sabotage

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        super().training_step(self.sabotage(rollout), batch_idx)


def gamma_for_each_act(rollout: Rollout) -> Rollout:
    """Time passes with every sub-step."""
    n_acts = torch.zeros_like(rollout.rows.env_steps)
    for key, segment in rollout.segments.items():
        n_acts += segment.active.unflatten(1, (rollout.n_envs, rollout.n_slots(key))).sum(-1)  # [T, N]
    return replace(rollout, rows=replace(rollout.rows, env_steps=n_acts))


def rewards_of_predecessor(rollout: Rollout) -> Rollout:
    """Every agent gets the reward of the agent before it."""
    segments = {}
    for key, segment in rollout.segments.items():
        assert segment.actor_reward is not None
        by_agent = segment.actor_reward.unflatten(1, (rollout.n_envs, rollout.n_slots(key)))  # [T, N, A]
        segments[key] = replace(segment, actor_reward=by_agent.roll(1, -1).flatten(1))
    return replace(rollout, segments=segments)

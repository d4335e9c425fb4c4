"""Pure maths of reinforcement learning: tensors in, tensors out, nothing reduced, nothing logged."""

from __future__ import annotations

from maze_pl.functional.losses import approx_kl, explained_variance, ppo_clip_loss, value_loss
from maze_pl.functional.returns import gae, lambda_return, n_step_return

__all__ = [
    "approx_kl",
    "explained_variance",
    "gae",
    "lambda_return",
    "n_step_return",
    "ppo_clip_loss",
    "value_loss",
]

"""Pure maths of reinforcement learning: tensors in, tensors out, nothing reduced, nothing logged."""

from __future__ import annotations

from maze_pl.functional.losses import approx_kl as approx_kl
from maze_pl.functional.losses import explained_variance as explained_variance
from maze_pl.functional.losses import ppo_clip_loss as ppo_clip_loss
from maze_pl.functional.losses import value_loss as value_loss
from maze_pl.functional.returns import gae as gae
from maze_pl.functional.returns import lambda_return as lambda_return
from maze_pl.functional.returns import n_step_return as n_step_return

"""Pure maths of reinforcement learning: tensors in, tensors out, nothing reduced, nothing logged."""

from maze_pl.functional.losses import approx_kl as approx_kl
from maze_pl.functional.losses import ppo_clip_loss as ppo_clip_loss
from maze_pl.functional.losses import value_loss as value_loss
from maze_pl.functional.returns import gae as gae
from maze_pl.functional.returns import lambda_return as lambda_return
from maze_pl.functional.returns import n_step_return as n_step_return
from maze_pl.functional.value_transforms import reduce_scale as reduce_scale
from maze_pl.functional.value_transforms import restore_scale as restore_scale
from maze_pl.functional.value_transforms import scalar_to_support as scalar_to_support
from maze_pl.functional.value_transforms import support_to_scalar as support_to_scalar

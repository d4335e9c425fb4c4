"""Pure maths of reinforcement learning: tensors in, tensors out, nothing reduced, nothing logged.

Whatever holds state or knows a configuration belongs to `maze_pl.modules`.
"""

from .losses import approx_kl as approx_kl, is_ratio_clipped as is_ratio_clipped
from .losses import ppo_clip_loss as ppo_clip_loss, value_loss as value_loss
from .returns import gae as gae, lambda_return as lambda_return, n_step_return as n_step_return
from .value_transforms import reduce_scale as reduce_scale, restore_scale as restore_scale
from .value_transforms import (
    scalar_to_support as scalar_to_support,
    support_to_scalar as support_to_scalar,
)
from .vtrace import vtrace as vtrace

"""Building blocks of networks: modules that take a dict of tensors and give one."""

from maze_pl.perception.blocks.action_masking import ActionMaskingBlock as ActionMaskingBlock
from maze_pl.perception.blocks.perception_block import PerceptionBlock as PerceptionBlock

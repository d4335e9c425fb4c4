"""Building blocks of networks: modules that take a dict of tensors and give one."""

from maze_pl.perception.blocks.action_masking import ActionMaskingBlock as ActionMaskingBlock
from maze_pl.perception.blocks.dense import DenseBlock as DenseBlock
from maze_pl.perception.blocks.dense import LinearOutputBlock as LinearOutputBlock
from maze_pl.perception.blocks.inference import InferenceBlock as InferenceBlock
from maze_pl.perception.blocks.perception_block import PerceptionBlock as PerceptionBlock
from maze_pl.perception.blocks.shape_normalization import ShapeNormalizationBlock as ShapeNormalizationBlock

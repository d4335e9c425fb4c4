"""Building blocks of networks: modules that take a dict of tensors and return one.

Whole networks, which know the spaces of an agent, belong to `maze_pl.perception.models`.
"""

from .action_masking_block import ActionMaskingBlock as ActionMaskingBlock
from .attention import MultiHeadAttentionBlock as MultiHeadAttentionBlock
from .attention import SelfAttentionConvBlock as SelfAttentionConvBlock
from .attention import SelfAttentionSeqBlock as SelfAttentionSeqBlock
from .composed import FlattenDenseBlock as FlattenDenseBlock
from .composed import InferenceBlock as InferenceBlock
from .composed import LSTMLastStepBlock as LSTMLastStepBlock
from .composed import StridedConvolutionDenseBlock as StridedConvolutionDenseBlock
from .composed import VGGConvolutionDenseBlock as VGGConvolutionDenseBlock
from .composed import VGGConvolutionGAPBlock as VGGConvolutionGAPBlock
from .concatenation_block import ConcatenationBlock as ConcatenationBlock
from .convolution import StridedConvolutionBlock as StridedConvolutionBlock
from .convolution import VGGConvolutionBlock as VGGConvolutionBlock
from .correlation_block import CorrelationBlock as CorrelationBlock
from .dense import DenseBlock as DenseBlock
from .dense import LinearOutputBlock as LinearOutputBlock
from .flatten_block import FlattenBlock as FlattenBlock
from .functional_block import FunctionalBlock as FunctionalBlock
from .global_average_pooling_block import GlobalAveragePoolingBlock as GlobalAveragePoolingBlock
from .graphs import GraphAttentionBlock as GraphAttentionBlock
from .graphs import GraphConvBlock as GraphConvBlock
from .masked_global_pooling_block import MaskedGlobalPoolingBlock as MaskedGlobalPoolingBlock
from .multi_index_slicing_block import MultiIndexSlicingBlock as MultiIndexSlicingBlock
from .one_hot_block import OneHotBlock as OneHotBlock
from .perception_block import PerceptionBlock as PerceptionBlock
from .perception_block import ShapeNormalizationBlock as ShapeNormalizationBlock
from .perception_block import TorchModelBlock as TorchModelBlock
from .point_net import PointNetFeatureBlock as PointNetFeatureBlock
from .recurrent import LSTMBlock as LSTMBlock
from .recurrent import RecurrentBlock as RecurrentBlock
from .repeat_to_match_block import RepeatToMatchBlock as RepeatToMatchBlock
from .slicing_block import SlicingBlock as SlicingBlock
from .unsqueeze_block import UnsqueezeBlock as UnsqueezeBlock

"""Building blocks of networks: modules that take a dict of tensors and give one."""

from .composed import FlattenDenseBlock as FlattenDenseBlock, InferenceBlock as InferenceBlock
from .composed import LSTMLastStepBlock as LSTMLastStepBlock, VGGConvolutionDenseBlock as VGGConvolutionDenseBlock
from .composed import StridedConvolutionDenseBlock as StridedConvolutionDenseBlock
from .composed import VGGConvolutionGAPBlock as VGGConvolutionGAPBlock
from .general import ActionMaskingBlock as ActionMaskingBlock, ConcatenationBlock as ConcatenationBlock
from .general import CorrelationBlock as CorrelationBlock, FlattenBlock as FlattenBlock, SlicingBlock as SlicingBlock
from .general import FunctionalBlock as FunctionalBlock, GlobalAveragePoolingBlock as GlobalAveragePoolingBlock
from .general import MaskedGlobalPoolingBlock as MaskedGlobalPoolingBlock, RepeatToMatchBlock as RepeatToMatchBlock
from .general import MultiIndexSlicingBlock as MultiIndexSlicingBlock
from .general import OneHotBlock as OneHotBlock, UnsqueezeBlock as UnsqueezeBlock
from .layers import DenseBlock as DenseBlock, LinearOutputBlock as LinearOutputBlock, LSTMBlock as LSTMBlock
from .layers import RecurrentBlock as RecurrentBlock, StridedConvolutionBlock as StridedConvolutionBlock
from .layers import VGGConvolutionBlock as VGGConvolutionBlock
from .perception_block import PerceptionBlock as PerceptionBlock, ShapeNormalizationBlock as ShapeNormalizationBlock
from .perception_block import TorchModelBlock as TorchModelBlock
from .sets import GraphAttentionBlock as GraphAttentionBlock, GraphConvBlock as GraphConvBlock
from .sets import MultiHeadAttentionBlock as MultiHeadAttentionBlock, PointNetFeatureBlock as PointNetFeatureBlock
from .sets import SelfAttentionConvBlock as SelfAttentionConvBlock, SelfAttentionSeqBlock as SelfAttentionSeqBlock

"""Building blocks of networks: modules that take a dict of tensors and return one.

Whole networks, which know the spaces of an agent, belong to `maze_pl.perception.models`.
"""

from .action_masking_block import ActionMaskingBlock as ActionMaskingBlock
from .multi_head_attention_block import MultiHeadAttentionBlock as MultiHeadAttentionBlock
from .self_attention_conv_block import SelfAttentionConvBlock as SelfAttentionConvBlock
from .self_attention_seq_block import SelfAttentionSeqBlock as SelfAttentionSeqBlock
from .flatten_dense_block import FlattenDenseBlock as FlattenDenseBlock
from .inference_block import InferenceBlock as InferenceBlock
from .lstm_last_step_block import LSTMLastStepBlock as LSTMLastStepBlock
from .strided_convolution_dense_block import (
    StridedConvolutionDenseBlock as StridedConvolutionDenseBlock,
)
from .vgg_convolution_dense_block import VGGConvolutionDenseBlock as VGGConvolutionDenseBlock
from .vgg_convolution_gap_block import VGGConvolutionGAPBlock as VGGConvolutionGAPBlock
from .concatenation_block import ConcatenationBlock as ConcatenationBlock
from .strided_convolution_block import StridedConvolutionBlock as StridedConvolutionBlock
from .vgg_convolution_block import VGGConvolutionBlock as VGGConvolutionBlock
from .correlation_block import CorrelationBlock as CorrelationBlock
from .deep_set_block import DeepSetBlock as DeepSetBlock
from .dense_block import DenseBlock as DenseBlock
from .levels_block import LevelsBlock as LevelsBlock
from .linear_output_block import LinearOutputBlock as LinearOutputBlock
from .flatten_block import FlattenBlock as FlattenBlock
from .functional_block import FunctionalBlock as FunctionalBlock
from .global_average_pooling_block import GlobalAveragePoolingBlock as GlobalAveragePoolingBlock
from .graph_attention_block import GraphAttentionBlock as GraphAttentionBlock
from .graph_conv_block import GraphConvBlock as GraphConvBlock
from .masked_global_pooling_block import MaskedGlobalPoolingBlock as MaskedGlobalPoolingBlock
from .multi_index_slicing_block import MultiIndexSlicingBlock as MultiIndexSlicingBlock
from .one_hot_block import OneHotBlock as OneHotBlock
from .perception_block import PerceptionBlock as PerceptionBlock
from .shape_normalization_block import ShapeNormalizationBlock as ShapeNormalizationBlock
from .torch_model_block import TorchModelBlock as TorchModelBlock
from .pointer_block import PointerBlock as PointerBlock
from .attention_pointer_block import AttentionPointerBlock as AttentionPointerBlock
from .point_net import PointNetFeatureBlock as PointNetFeatureBlock
from .lstm_block import LSTMBlock as LSTMBlock
from .recurrent import RecurrentBlock as RecurrentBlock
from .repeat_to_match_block import RepeatToMatchBlock as RepeatToMatchBlock
from .slicing_block import SlicingBlock as SlicingBlock
from .transformer_memory_block import TransformerMemoryBlock as TransformerMemoryBlock
from .unsqueeze_block import UnsqueezeBlock as UnsqueezeBlock
from .image_block import ImageBlock as ImageBlock
from .scaling_block import ScalingBlock as ScalingBlock
from .set_block import SetBlock as SetBlock

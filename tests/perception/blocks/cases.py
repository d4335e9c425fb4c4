"""The table of blocks that the contract tests go through: a new block gets an entry here."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from maze_pl import perception
from tests.perception.blocks.case import (
    Case,
    by_name,
    edges,
    levels,
    mask,
    neighbours,
    slots,
    torch_model,
    two_modalities,
    with_random_weights,
)

IMAGE = {"in": (2, 8, 6)}
CASES = {
    # ---- dense, convolution, lstm, joint, torch_model
    "dense": Case(perception.DenseBlock, {"in": (5,)}, {"hidden_units": [4, 3], "non_lin": "torch.nn.Tanh"}),
    "dense_batch_norm": Case(
        perception.DenseBlock,
        {"in": (5,)},
        {"hidden_units": [4, 3], "non_lin": nn.Tanh, "normalization": "batch", "dropout": 0.1},
    ),
    "dense_layer_norm": Case(
        perception.DenseBlock, {"in": (5,)}, {"hidden_units": [4, 3], "non_lin": nn.Tanh, "normalization": "layer"}
    ),
    "linear_output": Case(perception.LinearOutputBlock, {"in": (5,)}, {"output_units": 2}),
    "vgg": Case(perception.VGGConvolutionBlock, IMAGE, {"hidden_channels": [3, 2], "non_lin": nn.Tanh}),
    "strided": Case(
        perception.StridedConvolutionBlock,
        IMAGE,
        {
            "hidden_channels": [3, 2],
            "hidden_kernels": [[3, 2], 2],
            "hidden_strides": [2, 1],
            "hidden_padding": [[1, 0], 1],
            "non_lin": nn.Tanh,
        },
    ),
    "vgg_layer_norm": Case(
        perception.VGGConvolutionBlock,
        IMAGE,
        {"hidden_channels": [3, 2], "non_lin": nn.Tanh, "normalization": "layer", "dropout": 0.1},
    ),
    "strided_sequence": Case(
        perception.StridedConvolutionBlock,
        {"in": (2, 9)},
        {
            "hidden_channels": [3, 2],
            "hidden_kernels": [3, 2],
            "hidden_padding": [1, [1]],
            "hidden_dilations": [2, 1],
            "padding_mode": "circular",
            "convolution_dimension": 1,
            "non_lin": nn.Tanh,
            "normalization": "batch",
            "dropout": 0.1,
        },
    ),
    "strided_volume": Case(
        perception.StridedConvolutionBlock,
        {"in": (2, 3, 4, 5)},
        {
            "hidden_channels": [3],
            "hidden_kernels": [2],
            "hidden_padding": [[1, 0, 1]],
            "hidden_dilations": [[1, 2, 2]],
            "padding_mode": "replicate",
            "convolution_dimension": 3,
            "non_lin": nn.Tanh,
            "normalization": "layer",
        },
    ),
    "lstm": Case(perception.LSTMBlock, {"in": (4, 3)}, {"hidden_size": 3, "non_lin": nn.Tanh}),
    "lstm_bidirectional": Case(
        perception.LSTMBlock,
        {"in": (4, 3)},
        {"hidden_size": 2, "num_layers": 2, "bidirectional": True, "non_lin": nn.Tanh},
    ),
    "flatten_dense": Case(
        perception.FlattenDenseBlock,
        {"in": (3, 2)},
        {"num_flatten_dims": 2, "hidden_units": [4], "non_lin": nn.Tanh},
    ),
    "vgg_dense": Case(
        perception.VGGConvolutionDenseBlock, IMAGE, {"hidden_channels": [3], "hidden_units": [4], "non_lin": nn.Tanh}
    ),
    "vgg_gap": Case(perception.VGGConvolutionGAPBlock, IMAGE, {"hidden_channels": [3], "non_lin": nn.Tanh}),
    "strided_dense": Case(
        perception.StridedConvolutionDenseBlock,
        IMAGE,
        {"hidden_channels": [3], "hidden_kernels": [3], "hidden_strides": [2], "hidden_units": [4], "non_lin": nn.Tanh},
    ),
    "lstm_last_step": Case(perception.LSTMLastStepBlock, {"in": (4, 3)}, {"hidden_size": 3, "non_lin": nn.Tanh}),
    "strided_sequence_dense": Case(
        perception.StridedConvolutionDenseBlock,
        {"in": (2, 9)},
        {
            "hidden_channels": [3],
            "hidden_kernels": [3],
            "hidden_padding": [2],
            "hidden_units": [4],
            "non_lin": nn.Tanh,
            "convolution_dimension": 1,
            "padding_mode": "reflect",
            "normalization": "layer",
            "dropout": 0.1,
        },
    ),
    "lstm_last_step_batch_norm": Case(
        perception.LSTMLastStepBlock,
        {"in": (4, 3)},
        {"hidden_size": 3, "num_layers": 2, "non_lin": nn.Tanh, "normalization": "batch", "dropout": 0.1},
    ),
    "torch_model": Case(torch_model, {"a": (3,), "b": (2,)}),
    "inference": Case(two_modalities, {"image": (2, 4, 4), "vector": (3,)}, outputs=("move", "use")),
    # ---- sets of items
    "pointer": Case(
        with_random_weights(perception.PointerBlock),
        {"items": (5, 3), "mask": (5,), "latent": (4,), "chosen": ()},
        {
            "mask_key": "mask",
            "chosen_keys": ["chosen"],
            "hidden_units": [4, 6],
            "non_lin": nn.Tanh,
            "score": "dot",
            "n_glimpses": 2,
            "n_heads": 3,
            "clip": 2.0,
        },
        draw={"mask": mask, "chosen": slots},
    ),
    "pointer_whole_numbers": Case(
        with_random_weights(perception.PointerBlock),
        {"items": (5, 2), "mask": (5,), "order": (3,), "chosen": (2,)},
        {
            "mask_key": "mask",
            "chosen_keys": ["chosen"],
            "compare_keys": ["order"],
            "hidden_units": [4],
            "levels": 3,
            "any_order": True,
            "skip_zeros": True,
            "skip_masked": False,
        },
        draw={"mask": mask, "chosen": slots, "items": levels, "order": levels},
    ),
    "attention_pointer": Case(
        with_random_weights(perception.AttentionPointerBlock),
        {"items": (5, 3), "mask": (5,), "latent": (4,)},
        {
            "mask_key": "mask",
            "hidden_units": [4, 6],
            "n_layers": 2,
            "n_heads": 3,
            "feed_forward_units": 5,
            "non_lin": nn.Tanh,
        },
        draw={"mask": mask},
    ),
    "attention_pointer_all_slots": Case(
        with_random_weights(perception.AttentionPointerBlock),
        {"items": (5, 3), "mask": (5,)},
        {"mask_key": "mask", "hidden_units": [4], "n_heads": 2, "feed_forward_units": 3, "skip_masked": False},
        draw={"mask": mask},
    ),
    "deep_set": Case(
        with_random_weights(perception.DeepSetBlock),
        {"items": (5, 3), "chosen": (), "mask": (5,)},
        {"mask_key": "mask", "chosen_keys": ["chosen"], "hidden_units": [4, 6], "pooling_func": "max"},
        draw={"mask": mask, "chosen": slots},
    ),
    "levels": Case(
        perception.LevelsBlock,
        {"in": (2,), "other": (3,)},
        {"levels": 3, "compare_keys": ["other"]},
        draw={"in": levels, "other": levels},
    ),
    # ---- general
    "action_masking": Case(perception.ActionMaskingBlock, {"logits": (5,), "mask": (5,)}, draw={"mask": mask}),
    "concatenation": Case(perception.ConcatenationBlock, {"a": (2, 3), "b": (2, 4)}, {"concat_dim": -1}),
    "correlation": Case(perception.CorrelationBlock, {"a": (2, 3), "b": (2, 3)}, {"reduce": True}),
    "correlation_of_all": Case(perception.CorrelationBlock, {"a": (3,), "b": (4, 3)}, {"reduce": False}),
    "flatten": Case(perception.FlattenBlock, {"in": (4, 2, 3)}, {"num_flatten_dims": 2}),
    "functional": Case(perception.FunctionalBlock, {"in": (4, 2)}, {"func": "torch.tanh"}),
    "functional_of_two": Case(perception.FunctionalBlock, {"y": (2,), "x": (2,)}, {"func": by_name}),
    "global_average_pooling": Case(perception.GlobalAveragePoolingBlock, IMAGE),
    "masked_global_pooling": Case(
        perception.MaskedGlobalPoolingBlock,
        {"set": (4, 3), "mask": (4,)},
        {"pooling_func": "max", "pooling_dim": -2},
        draw={"mask": mask},
    ),
    "masked_global_pooling_of_two": Case(
        perception.MaskedGlobalPoolingBlock,
        {"set": (4, 3, 2), "mask": (4, 3)},
        {"pooling_func": "mean", "pooling_dim": (-3, -2)},
        draw={"mask": mask},
    ),
    "multi_index_slicing": Case(
        perception.MultiIndexSlicingBlock, {"in": (4, 2)}, {"select_dim": -2, "select_idxs": [3, 0]}
    ),
    "one_hot": Case(
        perception.OneHotBlock,
        {"in": (2,)},
        {"n_categories": [3, 2], "unit_variance": True},
        draw={"in": lambda shape, generator: torch.randint(3, shape, generator=generator)},
        shape_is_fixed="each number has categories of its own",
    ),
    "repeat_to_match": Case(perception.RepeatToMatchBlock, {"game": (1, 3), "units": (4, 2)}, {"repeat_at_idx": -2}),
    "unsqueeze": Case(perception.UnsqueezeBlock, {"in": (4, 2)}, {"unsqueeze_dim": -2}),
    "slicing": Case(perception.SlicingBlock, {"in": (4, 2)}, {"slice_dim": -2, "slice_idx": -1}),
    # ---- attention, graph, point net
    "multi_head_attention": Case(
        perception.MultiHeadAttentionBlock,
        {"query": (3, 4), "key": (5, 2), "value": (5, 6), "mask": (3, 5)},
        {"num_heads": 2},
        draw={"mask": mask},
    ),
    "multi_head_self_attention": Case(
        perception.MultiHeadAttentionBlock,
        {"set": (5, 4), "mask": (5,)},
        {"num_heads": 2, "use_key_padding_mask": True},
        draw={"mask": mask},
    ),
    "multi_head_attention_weights": Case(
        perception.MultiHeadAttentionBlock,
        {"query": (3, 4), "key": (5, 2), "value": (5, 6), "mask": (3, 5)},
        {
            "num_heads": 2,
            "add_bias_kv": True,
            "add_zero_attn": True,
            "add_input_to_output": True,
            "bias": False,
            "dropout": 0.1,
        },
        outputs=("out", "weights"),
        draw={"mask": mask},
    ),
    "self_attention_seq_weights": Case(
        perception.SelfAttentionSeqBlock,
        {"set": (5, 4), "mask": (5,)},
        {"embed_dim": 4, "num_heads": 2, "bias": False, "add_input_to_output": False, "dropout": 0.1},
        outputs=("out", "weights"),
        draw={"mask": mask},
    ),
    "self_attention_conv_weights": Case(
        with_random_weights(perception.SelfAttentionConvBlock),
        {"in": (2, 3, 4), "mask": (3, 4)},
        {"embed_dim": 4, "num_heads": 2, "bias": False},
        outputs=("out", "weights"),
        draw={"mask": mask},
    ),
    "self_attention_seq": Case(
        perception.SelfAttentionSeqBlock, {"set": (5, 4), "mask": (5,)}, {"embed_dim": 2}, draw={"mask": mask}
    ),
    "self_attention_conv": Case(with_random_weights(perception.SelfAttentionConvBlock), IMAGE, {"embed_dim": 3}),
    "self_attention_conv_mask": Case(
        with_random_weights(perception.SelfAttentionConvBlock),
        {"in": (2, 3, 4), "mask": (3, 4)},
        {"embed_dim": 3},
        draw={"mask": mask},
    ),
    "graph_conv": Case(
        perception.GraphConvBlock,
        {"nodes": (4, 3), "adjacency": (4, 4), "mask": (4,)},
        {"hidden_features": [3, 2], "non_lin": nn.Tanh},
        draw={"adjacency": neighbours, "mask": mask},
    ),
    "graph_conv_edges": Case(
        perception.GraphConvBlock,
        {"nodes": (4, 3), "edges": (6, 2)},
        {"hidden_features": [3, 2], "non_lin": nn.Tanh, "edge_list": True},
        draw={"edges": edges},
    ),
    "graph_conv_options": Case(
        perception.GraphConvBlock,
        {"nodes": (4, 3), "adjacency": (4, 4), "mask": (4,)},
        {
            "hidden_features": [3, 2],
            "non_lin": nn.Tanh,
            "node_self_importance": 0.5,
            "trainable_node_self_importance": True,
            "normalization": "batch",
            "dropout": 0.1,
        },
        draw={"adjacency": neighbours, "mask": mask},
    ),
    "graph_conv_as_given": Case(
        perception.GraphConvBlock,
        {"nodes": (4, 3), "adjacency": (4, 4)},
        {"hidden_features": [3, 2], "non_lin": nn.Tanh, "preprocess_adj": False, "bias": False},
        draw={"adjacency": neighbours},
    ),
    "graph_attention_options": Case(
        perception.GraphAttentionBlock,
        {"nodes": (4, 3), "adjacency": (4, 4), "mask": (4,)},
        {
            "hidden_features": [3, 2],
            "n_heads": 2,
            "attention_alpha": 0.1,
            "avg_last_head_attentions": False,
            "attention_dropout": 0.1,
            "bias": True,
            "normalization": "layer",
        },
        draw={"adjacency": neighbours, "mask": mask},
    ),
    "graph_attention": Case(
        perception.GraphAttentionBlock,
        {"nodes": (4, 3), "adjacency": (4, 4), "mask": (4,)},
        {"hidden_features": [3, 2], "n_heads": 2},
        draw={"adjacency": neighbours, "mask": mask},
    ),
    "graph_attention_edges": Case(
        perception.GraphAttentionBlock,
        {"nodes": (4, 3), "edges": (6, 2)},
        {"hidden_features": [3], "n_heads": 2, "edge_list": True},
        draw={"edges": edges},
    ),
    "point_net": Case(
        with_random_weights(perception.PointNetFeatureBlock),
        {"points": (5, 3), "mask": (5,)},
        {"embedding_dim": 8, "non_lin": nn.Tanh},
        draw={"mask": mask},
    ),
    "point_net_options": Case(
        with_random_weights(perception.PointNetFeatureBlock),
        {"points": (5, 3), "mask": (5,)},
        {
            "embedding_dim": 8,
            "non_lin": nn.Tanh,
            "pooling_func_name": "mean",
            "use_feature_transform": True,
            "normalization": "batch",
        },
        draw={"mask": mask},
    ),
    # ---- image, scaling, set
    "image": Case(
        perception.ImageBlock,
        {"in": (8, 6, 2)},
        {
            "channels": "last",
            "hidden_channels": [3, 2],
            "hidden_kernels": [[3, 2], 2],
            "hidden_strides": [2, 1],
            "hidden_padding": [[1, 0], 1],
            "hidden_units": [4],
            "non_lin": nn.Tanh,
        },
    ),
    "image_stack": Case(
        perception.ImageBlock,
        {"in": (3, 8, 6, 2)},
        {
            "channels": "last",
            "hidden_channels": [3],
            "hidden_kernels": [3],
            "hidden_units": [4],
            "non_lin": nn.Tanh,
            "stacked": True,
        },
    ),
    "image_of_numbers": Case(
        partial(perception.ImageBlock, low=-1, high=3),
        {"in": (8, 6)},
        {"channels": "none", "hidden_channels": [3], "hidden_kernels": [3], "hidden_units": [4], "non_lin": nn.Tanh},
    ),
    "scaling": Case(
        partial(perception.ScalingBlock, low=[-1, 0], high=[2, 0]),
        {"in": (2,)},
        shape_is_fixed="each number has bounds of its own",
    ),
    "set": Case(perception.SetBlock, {"in": (5, 3)}, {"hidden_units": [4], "non_lin": nn.Tanh}),
    "set_of_numbers": Case(
        partial(perception.SetBlock, low=-2, high=[1, 2, 3]), {"in": (5, 3)}, {"hidden_units": [4], "non_lin": nn.Tanh}
    ),
    # ---- recurrent
    "recurrent_lstm": Case(
        perception.RecurrentBlock, {"in": (3,)}, {"hidden_size": 2, "num_layers": 2}, shape_is_fixed="acts are vectors"
    ),
    "transformer_memory": Case(
        with_random_weights(perception.TransformerMemoryBlock),
        {"in": (3,)},
        {"hidden_size": 4, "memory_length": 2, "num_layers": 2, "num_heads": 2},
        shape_is_fixed="acts are vectors",
    ),
    "recurrent_gru": Case(
        perception.RecurrentBlock, {"in": (3,)}, {"hidden_size": 2, "cell": "gru"}, shape_is_fixed="acts are vectors"
    ),
}

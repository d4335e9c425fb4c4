"""Networks around single blocks, for the observations of the kit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from maze_pl import perception
from maze_pl.agents import TorchActorCritic, TorchPolicy, TorchSharedStateCritic
from maze_pl.perception import PerceptionBlock
from tests.modules.kit import FLAT_SPEC

DENSE: dict[str, Any] = {"hidden_units": [8], "non_lin": nn.Tanh}
SET = {"x": (4, 2), "mask": (4,)}
GRAPH = {"x": (4, 2), "graph": (4, 4), "mask": (4,)}
Block = tuple[type[PerceptionBlock], Mapping[str, tuple[int, ...]], dict[str, Any]]

BLOCKS: dict[str, Block] = {
    "layer norm": (perception.DenseBlock, {"x": (3,)}, {**DENSE, "normalization": "layer"}),
    "dropout": (perception.DenseBlock, {"x": (3,)}, {**DENSE, "dropout": 0.5}),
    "batch norm": (perception.DenseBlock, {"x": (3,)}, {**DENSE, "normalization": "batch"}),
    "images": (
        perception.VGGConvolutionBlock,
        {"x": (2, 4, 4)},
        {"hidden_channels": [3], "normalization": "layer", "dropout": 0.2},
    ),
    "sequence": (
        perception.StridedConvolutionDenseBlock,
        {"x": (2, 6)},
        {
            "hidden_channels": [3],
            "hidden_kernels": [3],
            "hidden_padding": [2],
            "hidden_dilations": [2],
            "hidden_units": [4],
            "padding_mode": "circular",
            "convolution_dimension": 1,
        },
    ),
    "volume": (
        perception.StridedConvolutionBlock,
        {"x": (2, 3, 3, 3)},
        {
            "hidden_channels": [2],
            "hidden_kernels": [2],
            "hidden_padding": [1],
            "padding_mode": "reflect",
            "convolution_dimension": 3,
        },
    ),
    "several heads": (
        perception.MultiHeadAttentionBlock,
        SET,
        {
            "num_heads": 2,
            "use_key_padding_mask": True,
            "dropout": 0.3,
            "add_bias_kv": True,
            "add_zero_attn": True,
            "add_input_to_output": True,
        },
    ),
    "self-attention": (
        perception.SelfAttentionSeqBlock,
        SET,
        {"embed_dim": 4, "num_heads": 2, "bias": False, "dropout": 0.3},
    ),
    "graph convolution": (
        perception.GraphConvBlock,
        GRAPH,
        {
            "hidden_features": [3, 2],
            "non_lin": [nn.Tanh, nn.ReLU],
            "node_self_importance": 2.0,
            "trainable_node_self_importance": True,
            "normalization": "layer",
            "dropout": 0.2,
        },
    ),
    "graph attention": (
        perception.GraphAttentionBlock,
        GRAPH,
        {"hidden_features": [3, 2], "n_heads": 2, "bias": True, "attention_dropout": 0.3},
    ),
    "graph batch norm": (perception.GraphConvBlock, GRAPH, {"hidden_features": [3], "normalization": "batch"}),
    "points": (
        perception.PointNetFeatureBlock,
        SET,
        {"embedding_dim": 8, "pooling_func_name": "mean", "use_feature_transform": True, "normalization": "layer"},
    ),
    "points batch norm": (
        perception.PointNetFeatureBlock,
        SET,
        {"embedding_dim": 8, "use_feature_transform": True, "normalization": "batch"},
    ),
    "pooling of two": (
        perception.MaskedGlobalPoolingBlock,
        {"x": (3, 4, 2), "mask": (3, 4)},
        {"pooling_func": "max", "pooling_dim": [0, 1]},
    ),
}


class AroundBlock(nn.Module):
    """Observations (3,) through a linear layer, a block, and a linear layer; about a third of the mask is 0."""

    def __init__(self, name: str, output: str, n_outputs: int) -> None:
        super().__init__()
        kind, self.shapes, options = BLOCKS[name]
        self.output = output
        self.before = nn.Linear(3, math.prod(self.shapes["x"]))
        self.block = kind([*self.shapes], "out", [*self.shapes.values()], **options)
        self.after = nn.Linear(math.prod(self.block.out_shapes()[0]), n_outputs)

    def forward(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        x = observation["observation"]
        tensors = {"x": self.before(x).unflatten(-1, self.shapes["x"])}
        for name in ("mask", "graph"):
            if name in self.shapes:
                tensors[name] = (x[..., :1] > torch.linspace(-2, 1, math.prod(self.shapes[name]))).float()
                tensors[name] = tensors[name].unflatten(-1, self.shapes[name])
        return {self.output: self.after(self.block(tensors)["out"].flatten(x.dim() - 1))}


def around_block(name: str) -> TorchActorCritic:
    """Policy and critic with a block each, for the specification of the kit."""
    torch.manual_seed(0)
    policy = TorchPolicy([AroundBlock(name, "action", 2)], FLAT_SPEC)
    return TorchActorCritic(policy, TorchSharedStateCritic([AroundBlock(name, "value", 1)], FLAT_SPEC))

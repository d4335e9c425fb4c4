"""Block of graph attention layers."""

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.graphs import GraphBlock
from maze_pl.perception.blocks.layer_options import Activations, Layers, Normalization
from maze_pl.perception.blocks.perception_block import Keys, Shapes, is_number


class GraphAttentionBlock(GraphBlock):
    """Graph attention: nodes aggregate neighbours and themselves, weighted by attention scores.

        x'_i = f(sum_j a_ij W x_j),   a_ij = softmax_j LeakyReLU(u W x_i + v W x_j)

    for all j with A_ij not 0, and i itself.
    Heads are concatenated, but averaged in the last layer. Velickovic et al. 2018,
    arXiv:1710.10903.

    Args:
        in_keys: Names of nodes, graph and, optionally, a mask.
        out_keys: Name of the output, (N, hidden_features[-1]); without `avg_last_head_attentions`,
            (N, n_heads * hidden_features[-1]); 0 for nodes that do not exist.
        in_shapes: Shapes of the nodes (N, F); of the adjacency (N, N) or the edges (E, 2); and of
            the mask (N,), which is 1 where a node exists. Other nodes and their edges have no
            effect.
        hidden_features: Width of each head of each layer.
        non_lin: Activation, a class or its path; or a list with one for each layer.
        edge_list: Whether the graph is a list of edges (source, target), in which rows of -1 are
            padding.
        n_heads: Number of heads of each layer.
        attention_alpha: Slope of the LeakyReLU below 0.
        avg_last_head_attentions: Whether the heads of the last layer are averaged; otherwise they
            are concatenated, too.
        attention_dropout: Probability of setting a weight a_ij to 0 in training mode.
        bias: Whether W x is W x + b.
        normalization: "batch" or "layer" normalises each layer before its activation; None does not.
        dropout: Probability of setting an output of a layer to 0 in training mode.

    Example:
        >>> block = GraphAttentionBlock(
        ...     ["nodes", "edges"], "out", [[5, 3], [9, 2]], hidden_features=[8], n_heads=2, edge_list=True
        ... )
        >>> block.out_shapes()
        [(5, 8)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_features: Layers,
        non_lin: Activations = nn.ELU,
        edge_list: bool = False,
        n_heads: int = 1,
        attention_alpha: float = 0.2,
        avg_last_head_attentions: bool = True,
        attention_dropout: float = 0.0,
        bias: bool = False,
        normalization: Normalization | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            in_keys,
            out_keys,
            in_shapes,
            hidden_features,
            non_lin,
            edge_list,
            bias,
            normalization,
            dropout,
            n_heads,
            is_last_averaged=avg_last_head_attentions is not False,
        )
        good = is_number(attention_alpha) and attention_alpha >= 0.0
        self.require(good, f"attention_alpha of at least 0, not {attention_alpha!r}")
        self.require_flags(avg_last_head_attentions=avg_last_head_attentions)
        self.require_probability(attention_dropout=attention_dropout)
        self.attention_alpha = float(attention_alpha)
        self.avg_last_head_attentions = avg_last_head_attentions
        self.attention_dropout = attention_dropout
        scores = (torch.empty(n_heads, width, 2) for width in hidden_features)  # u and v of each head
        self.scores = nn.ParameterList(nn.init.xavier_uniform_(score) for score in scores)

    def _run(self, x: Tensor, adjacency: Tensor, exists: Tensor | None) -> Tensor:
        neighbours = (adjacency != 0) | torch.eye(self.n_nodes, dtype=torch.bool, device=x.device)
        for index, (layer, score) in enumerate(zip(self.layers, self.scores, strict=True)):
            x = torch.unflatten(layer(x), -1, score.shape[:2]).transpose(-3, -2)  # [..., heads, N, n]
            to, come = (x @ score).chunk(2, -1)
            logits = nn.functional.leaky_relu(to + come.mT, self.attention_alpha)
            weights = logits.masked_fill(~neighbours.unsqueeze(-3), -torch.inf).softmax(-1)
            if self.attention_dropout > 0.0 and self.training:
                weights = nn.functional.dropout(weights, self.attention_dropout)
            x = weights @ x
            is_averaged = self.avg_last_head_attentions and index == len(self.layers) - 1
            x = x.mean(-3) if is_averaged else x.transpose(-3, -2).flatten(-2)
            x = self._activate(index, x, exists)
        return x

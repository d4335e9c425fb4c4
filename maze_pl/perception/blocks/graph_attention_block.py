"""Block of graph attention layers."""

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.graphs import GraphBlock
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class GraphAttentionBlock(GraphBlock):
    """Graph attention: nodes aggregate neighbours and themselves, weighted by attention scores.

        x'_i = f(sum_j a_ij W x_j),   a_ij = softmax_j LeakyReLU(u W x_i + v W x_j)

    for all j with A_ij not 0, and i itself.
    Heads are concatenated, but averaged in the last layer; the LeakyReLU has a slope of 0.2 below
    0. Velickovic et al. 2018, arXiv:1710.10903, without dropout.

    Args:
        in_keys: Names of nodes, graph and, optionally, a mask.
        out_keys: Name of the output, (N, hidden_features[-1]); 0 for nodes that do not exist.
        in_shapes: Shapes of the nodes (N, F); of the adjacency (N, N) or the edges (E, 2); and of
            the mask (N,), which is 1 where a node exists. Other nodes and their edges have no
            effect.
        hidden_features: Width of each head of each layer.
        non_lin: Activation, a class or its path.
        edge_list: Whether the graph is a list of edges (source, target), in which rows of -1 are
            padding.
        n_heads: Number of heads of each layer.

    Example:
        >>> block = GraphAttentionBlock(
        ...     ["nodes", "edges"], "out", [[5, 3], [9, 2]], hidden_features=[8], n_heads=2, edge_list=True
        ... )
        >>> block.out_shapes()
        [(5, 8)]
    """

    _has_bias = False

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_features: Layers,
        non_lin: ModuleClass = nn.ELU,
        edge_list: bool = False,
        n_heads: int = 1,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes, hidden_features, non_lin, edge_list, n_heads)
        scores = (torch.empty(n_heads, width, 2) for width in hidden_features)  # u and v of each head
        self.scores = nn.ParameterList(nn.init.xavier_uniform_(score) for score in scores)

    def _run(self, x: Tensor, adjacency: Tensor) -> Tensor:
        neighbours = (adjacency != 0) | torch.eye(self.n_nodes, dtype=torch.bool, device=x.device)
        for layer, non_lin, score in zip(self.layers, self.non_lins, self.scores, strict=True):
            x = torch.unflatten(layer(x), -1, score.shape[:2]).transpose(-3, -2)  # [..., heads, N, n]
            to, come = (x @ score).chunk(2, -1)
            logits = nn.functional.leaky_relu(to + come.mT, 0.2)
            x = logits.masked_fill(~neighbours.unsqueeze(-3), -torch.inf).softmax(-1) @ x
            x = non_lin(x.mean(-3) if score is self.scores[-1] else x.transpose(-3, -2).flatten(-2))
        return x

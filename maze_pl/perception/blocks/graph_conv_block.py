"""Block of graph convolutions."""

import torch
from torch import Tensor

from maze_pl.perception.blocks.graphs import GraphBlock


class GraphConvBlock(GraphBlock):
    """Graph convolutions: nodes aggregate neighbours and themselves with degree-normalised weights.

        X' = f(D^-1/2 (A + I) D^-1/2 X W + b),   D_ii = sum_j (A + I)_ij

    Kipf & Welling 2017, arXiv:1609.02907.

    Args:
        in_keys: Names of nodes, graph and, optionally, a mask.
        out_keys: Name of the output, (N, hidden_features[-1]); 0 for nodes that do not exist.
        in_shapes: Shapes of the nodes (N, F); of the adjacency (N, N), with non-negative weights,
            or the edges (E, 2); and of the mask (N,), which is 1 where a node exists. Other nodes
            and their edges have no effect.
        hidden_features: Width of each layer.
        non_lin: Activation, a class or its path.
        edge_list: Whether the graph is a list of edges (source, target), in which rows of -1 are
            padding.

    Example:
        >>> GraphConvBlock(["nodes", "graph"], "out", [[5, 3], [5, 5]], hidden_features=[16, 8]).out_shapes()
        [(5, 8)]
    """

    def _run(self, x: Tensor, adjacency: Tensor) -> Tensor:
        adjacency = adjacency + torch.eye(self.n_nodes, dtype=x.dtype, device=x.device)
        scale = adjacency.sum(-1, keepdim=True).rsqrt()
        adjacency = scale * adjacency * scale.mT
        for layer, non_lin in zip(self.layers, self.non_lins, strict=True):
            x = non_lin(layer(adjacency @ x))
        return x

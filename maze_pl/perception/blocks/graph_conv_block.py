"""Block of graph convolutions."""

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.graphs import GraphBlock
from maze_pl.perception.blocks.layer_options import Activations, Layers, Normalization
from maze_pl.perception.blocks.perception_block import Keys, Shapes, is_number


class GraphConvBlock(GraphBlock):
    """Graph convolutions: nodes aggregate neighbours and themselves with degree-normalised weights.

        X' = f(D^-1/2 (A + s I) D^-1/2 X W + b),   D_ii = sum_j (A + s I)_ij

    s is the importance of nodes for themselves. Kipf & Welling 2017, arXiv:1609.02907, where s = 1.
    A node with D_ii = 0, which s = 0 allows, has D_ii^-1/2 = 0.

    Args:
        in_keys: Names of nodes, graph and, optionally, a mask.
        out_keys: Name of the output, (N, hidden_features[-1]); 0 for nodes that do not exist.
        in_shapes: Shapes of the nodes (N, F); of the adjacency (N, N), with non-negative weights,
            or the edges (E, 2); and of the mask (N,), which is 1 where a node exists. Other nodes
            and their edges have no effect.
        hidden_features: Width of each layer.
        non_lin: Activation, a class or its path; or a list with one for each layer.
        edge_list: Whether the graph is a list of edges (source, target), in which rows of -1 are
            padding.
        bias: Whether b is added. Batch normalisation, which would subtract it again, replaces it.
        node_self_importance: s, at least 0.
        trainable_node_self_importance: Whether s is learned, as exp of a parameter, so that it
            stays positive; it starts at `node_self_importance`.
        preprocess_adj: Whether s is added and degrees are normalised; otherwise the layers are X' =
            f(A X W + b) for the adjacency as it is given, for instance one that the environment has
            normalised.
        normalization: "batch" or "layer" normalises each layer before its activation; None does not.
        dropout: Probability of setting an output of a layer to 0 in training mode.

    Example:
        >>> GraphConvBlock(["nodes", "graph"], "out", [[5, 3], [5, 5]], hidden_features=[16, 8]).out_shapes()
        [(5, 8)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_features: Layers,
        non_lin: Activations = nn.ReLU,
        edge_list: bool = False,
        bias: bool = True,
        node_self_importance: float = 1.0,
        trainable_node_self_importance: bool = False,
        preprocess_adj: bool = True,
        normalization: Normalization | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            in_keys, out_keys, in_shapes, hidden_features, non_lin, edge_list, bias, normalization, dropout
        )
        self.require_flags(trainable_node_self_importance=trainable_node_self_importance, preprocess_adj=preprocess_adj)
        good = is_number(node_self_importance) and node_self_importance >= 0.0
        self.require(good, f"node_self_importance of at least 0, not {node_self_importance!r}")
        is_given = node_self_importance != 1.0 or trainable_node_self_importance
        self.require(
            preprocess_adj or not is_given,
            "no node_self_importance with preprocess_adj=False, which adds nothing to the adjacency",
        )
        self.require(
            node_self_importance > 0.0 or not trainable_node_self_importance,
            "node_self_importance above 0 if it is trainable",
        )
        self.preprocess_adj = preprocess_adj
        self.node_self_importance = float(node_self_importance)
        self.log_self_importance = None
        if trainable_node_self_importance:
            self.log_self_importance = nn.Parameter(torch.tensor(self.node_self_importance).log())

    def _run(self, x: Tensor, adjacency: Tensor, exists: Tensor | None) -> Tensor:
        if self.preprocess_adj:
            adjacency = self._normalized(adjacency, x)
        for index, layer in enumerate(self.layers):
            x = self._activate(index, layer(adjacency @ x), exists)
        return x

    def _normalized(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """Return D^-1/2 (A + s I) D^-1/2."""
        itself = torch.eye(self.n_nodes, dtype=x.dtype, device=x.device)
        if self.log_self_importance is not None:
            itself = self.log_self_importance.exp() * itself
        elif self.node_self_importance != 1.0:
            itself = self.node_self_importance * itself
        adjacency = adjacency + itself
        degree = adjacency.sum(-1, keepdim=True)
        if self.node_self_importance > 0.0:
            scale = degree.rsqrt()
        else:
            has_neighbours = degree > 0.0
            scale = torch.where(has_neighbours, torch.where(has_neighbours, degree, 1.0).rsqrt(), 0.0)
        return scale * adjacency * scale.mT

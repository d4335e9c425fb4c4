"""Graph blocks.

Node i aggregates node j where entry (i, j) of the adjacency matrix is not 0. A graph is given by
its adjacency matrix or by a list of edges (source, target); the target aggregates the source. Masks
are 1 where a node exists; others do not affect the result, whatever their values.
"""

import itertools
from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.layer_options import Layers, ModuleClass
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes


def edges_to_adjacency(edges: Tensor, n_nodes: int) -> Tensor:
    """Return the adjacency [..., N, N] of an edge list: 1 at (target, source), even if repeated.

    Args:
        edges: Pairs (source, target) [..., E, 2] of nodes 0 to N - 1; pairs with any other number,
            such as -1, are ignored.
        n_nodes: N.

    Example:
        >>> import torch
        >>> edges_to_adjacency(torch.tensor([[0, 1], [0, 1], [-1, -1]]), 2)
        tensor([[0., 0.],
                [1., 0.]])
    """
    edges = edges.long()
    real = ((edges >= 0) & (edges < n_nodes)).all(-1)
    index = torch.where(real, edges[..., 1] * n_nodes + edges[..., 0], n_nodes**2)
    # the last entry collects ignored pairs
    flat = torch.zeros(*index.shape[:-1], n_nodes**2 + 1, device=edges.device)
    return torch.unflatten(flat.scatter(-1, index, 1.0)[..., :-1], -1, (n_nodes, n_nodes))


class _GraphBlock(PerceptionBlock):
    """Graph layers, each with a linear map and an activation."""

    _has_bias = True

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_features: Layers,
        non_lin: ModuleClass = nn.ReLU,
        edge_list: bool = False,
        n_heads: int = 1,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_lists(hidden_features=hidden_features)
        self.require_flags(edge_list=edge_list)
        self.require_numbers(n_heads=n_heads)
        shape, graph = (*self.in_shapes, ())[:2]
        wanted = (*shape[:-2], *graph[-2:-1], 2) if edge_list else (*shape[:-1], *shape[-2:-1])
        good = self.in_shapes[1:] in ([wanted], [wanted, shape[:-1]]) and len(shape) == len(graph) >= 2
        known = "edges (E, 2)" if edge_list else "adjacency (N, N)"
        self.require(
            good and len(self.out_keys) == 1,
            f"nodes (N, F), {known}, maybe a mask (N,); one output",
        )
        self.n_nodes = shape[-2]
        self.edge_list = edge_list
        sizes = itertools.pairwise([shape[-1], *(n_heads * width for width in hidden_features)])
        activation = self.module_class(non_lin=non_lin)
        self.layers = nn.ModuleList(nn.Linear(*pair, self._has_bias) for pair in sizes)
        self.non_lins = nn.ModuleList(activation() for _ in hidden_features)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return node features [..., N, n], 0 for nodes that do not exist."""
        x, graph, *masks = (block_input[key] for key in self.in_keys)
        adjacency = (edges_to_adjacency(graph, self.n_nodes) if self.edge_list else graph).to(x.dtype)
        if not masks:
            return {self.out_keys[0]: self._run(x, adjacency)}
        exists = (masks[0] != 0).unsqueeze(-1)
        adjacency = torch.where(exists & exists.mT, adjacency, 0.0)
        output = self._run(torch.where(exists, x, 0.0), adjacency)
        return {self.out_keys[0]: torch.where(exists, output, 0.0)}

    @abstractmethod
    def _run(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Apply all layers to nodes [..., N, F] with adjacency [..., N, N]."""


class GraphConvBlock(_GraphBlock):
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


class GraphAttentionBlock(_GraphBlock):
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

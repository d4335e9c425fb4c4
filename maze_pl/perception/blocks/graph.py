"""Graph blocks: nodes take in their neighbours, layer by layer.

Node i takes in node j where entry (i, j) of the adjacency is not 0. A graph is given by its adjacency or by a list of
its edges (source, target), of which each lets the target take in the source.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes
from maze_pl.perception.module_class import ModuleClass, module_class

_Activations = ModuleClass | Sequence[ModuleClass]


def edges_to_adjacency(edges: Tensor, n_nodes: int) -> Tensor:
    """The adjacency [..., N, N] of a list of edges: 1 at (target, source), however often an edge is listed.

    Args:
        edges: Pairs (source, target) [..., E, 2] of nodes 0 to N - 1; pairs with any other number, such as -1, are no
            edges.
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
    flat = torch.zeros(*index.shape[:-1], n_nodes**2 + 1, device=edges.device)  # the last entry is for no edges
    return torch.unflatten(flat.scatter(-1, index, 1.0)[..., :-1], -1, (n_nodes, n_nodes))


class _GraphBlock(PerceptionBlock, ABC):
    """Layers over a graph, each followed by an activation."""

    def _build(self, widths: Sequence[int], bias: bool, non_lins: _Activations, edge_list: bool) -> None:
        """Check the shapes, and make a linear map and an activation for each layer."""
        shape, graph = (*self.in_shapes, ())[:2]
        wanted = (*shape[:-2], *graph[-2:-1], 2) if edge_list else (*shape[:-1], *shape[-2:-1])
        good = self.in_shapes[1:] in ([wanted], [wanted, shape[:-1]]) and len(shape) == len(graph) >= 2
        known = "edges (E, 2)" if edge_list else "adjacency (N, N)"
        self.require(good and len(self.out_keys) == 1, f"nodes (N, F), {known}, maybe a mask (N,); one output")
        kinds = [non_lins] * len(widths) if isinstance(non_lins, (str, type)) else list(non_lins)
        good = len(kinds) == len(widths) > 0 and min(widths) > 0
        self.require(good, "hidden_features above 0, and non_lins one for all of them or one for each")
        self.n_nodes, self.edge_list = shape[-2], edge_list
        self.non_lins = nn.ModuleList(module_class(kind)() for kind in kinds)
        self.layers = nn.ModuleList(nn.Linear(*sizes, bias) for sizes in itertools.pairwise([shape[-1], *widths]))

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Features of nodes [..., N, n], 0 for those that do not exist."""
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
        """All layers, from nodes [..., N, F] and adjacency [..., N, N]."""


class GraphConvBlock(_GraphBlock):
    """Graph convolutions: each node takes in its neighbours and itself, weighted by how many they have.

        X' = f(D^-1/2 (A + s I) D^-1/2 X W + b),   D_ii = sum_j (A + s I)_ij

    Nodes without neighbours and with s = 0 take in nothing. Kipf & Welling 2017, arXiv:1609.02907.

    Args:
        in_keys: Names of nodes, graph, and of a mask if there is one.
        out_keys: Name of what comes out, (N, hidden_features[-1]); 0 for nodes that do not exist.
        in_shapes: Shapes of nodes (N, F), of the adjacency (N, N), whose weights are not negative, or edges (E, 2), and
            of the mask (N,), which is 1 where a node exists; others change nothing, nor do their edges.
        hidden_features: Width of each layer.
        bias: Whether layers have a bias.
        non_lins: Activation, a class or its path; for all layers or for each.
        node_self_importance: s.
        trainable_node_self_importance: Whether s is learned, one for all layers.
        preprocess_adj: Whether the adjacency becomes what is above; otherwise it is used as it comes.
        edge_list: Whether the graph is a list of edges (source, target), in which rows of -1 are padding.

    Example:
        >>> GraphConvBlock(["nodes", "graph"], "out", [[5, 3], [5, 5]], hidden_features=[16, 8]).out_shapes()
        [(5, 8)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_features: Sequence[int],
        bias: bool = True,
        non_lins: _Activations = nn.ReLU,
        node_self_importance: float = 1.0,
        trainable_node_self_importance: bool = False,
        preprocess_adj: bool = True,
        edge_list: bool = False,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self._build(hidden_features, bias, non_lins, edge_list)
        used = preprocess_adj or (node_self_importance == 1 and not trainable_node_self_importance)
        self.require(used, "preprocess_adj, as there is a node_self_importance")
        kind = nn.Parameter if trainable_node_self_importance else nn.Buffer
        self.node_self_importance = kind(torch.tensor(float(node_self_importance)))
        self.preprocess_adj = preprocess_adj

    def _run(self, x: Tensor, adjacency: Tensor) -> Tensor:
        if self.preprocess_adj:
            adjacency = adjacency + self.node_self_importance * torch.eye(self.n_nodes, dtype=x.dtype, device=x.device)
            degree = adjacency.sum(-1, keepdim=True)
            scale = torch.where(degree > 0, degree, torch.inf).rsqrt()
            adjacency = scale * adjacency * scale.mT
        for layer, non_lin in zip(self.layers, self.non_lins, strict=True):
            x = non_lin(layer(adjacency @ x))
        return x


class GraphAttentionBlock(_GraphBlock):
    """Graph attention: each node weighs its neighbours and itself by what they are.

        x'_i = f(sum_j a_ij W x_j),   a_ij = softmax_j LeakyReLU(u W x_i + v W x_j),   j with A_ij not 0, and i itself

    Heads are joined, or averaged in the last layer. Velickovic et al. 2018, arXiv:1710.10903.

    Args:
        in_keys: Names of nodes, graph, and of a mask if there is one.
        out_keys: Name of what comes out, (N, hidden_features[-1] * number of heads), or (N, hidden_features[-1]) if
            they are averaged; 0 for nodes that do not exist.
        in_shapes: Shapes of nodes (N, F), of the adjacency (N, N) or edges (E, 2), and of the mask (N,), which is 1
            where a node exists; others change nothing, nor do their edges.
        hidden_features: Width of each head of each layer.
        non_lins: Activation, a class or its path; for all layers or for each.
        n_heads: Number of heads of each layer.
        attention_alpha: Slope of the LeakyReLU below 0.
        avg_last_head_attentions: Whether heads of the last layer are averaged.
        attention_dropout: Probability with which a weight a_ij is 0 in training.
        edge_list: Whether the graph is a list of edges (source, target), in which rows of -1 are padding.

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
        hidden_features: Sequence[int],
        non_lins: _Activations = nn.ELU,
        n_heads: int = 1,
        attention_alpha: float = 0.2,
        avg_last_head_attentions: bool = True,
        attention_dropout: float = 0.0,
        edge_list: bool = False,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        good = n_heads > 0 and 0 <= attention_dropout < 1
        self.require(good, f"n_heads above 0, attention_dropout in [0, 1), not {n_heads} and {attention_dropout}")
        self._build([n_heads * width for width in hidden_features], False, non_lins, edge_list)
        scores = (torch.empty(n_heads, width, 2) for width in hidden_features)  # u and v of each head
        self.scores = nn.ParameterList(nn.init.xavier_uniform_(score) for score in scores)
        self.dropout, self.attention_alpha = nn.Dropout(attention_dropout), attention_alpha
        self.avg_last_head_attentions = avg_last_head_attentions

    def _run(self, x: Tensor, adjacency: Tensor) -> Tensor:
        neighbours = (adjacency != 0) | torch.eye(self.n_nodes, dtype=torch.bool, device=x.device)
        for layer, non_lin, score in zip(self.layers, self.non_lins, self.scores, strict=True):
            x = torch.unflatten(layer(x), -1, score.shape[:2]).transpose(-3, -2)  # [..., heads, N, n]
            to, come = (x @ score).chunk(2, -1)
            logits = nn.functional.leaky_relu(to + come.mT, self.attention_alpha)
            x = self.dropout(logits.masked_fill(~neighbours.unsqueeze(-3), -torch.inf).softmax(-1)) @ x
            is_mean = self.avg_last_head_attentions and score is self.scores[-1]
            x = non_lin(x.mean(-3) if is_mean else x.transpose(-3, -2).flatten(-2))
        return x

"""Base of graph blocks.

Node i aggregates node j where entry (i, j) of the adjacency matrix is not 0. A graph is given by
its adjacency matrix or by a list of edges (source, target); the target aggregates the source. Masks
are 1 where a node exists; others do not affect the result, whatever their values.
"""

import itertools
from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.layer_options import Activations, Layers, Normalization
from maze_pl.perception.blocks.normalization import apply_layers, normalization_layers
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


class GraphBlock(PerceptionBlock):
    """Graph layers, each with a linear map, normalisation, activation and dropout.

    Args:
        in_keys: Names of nodes, graph and, optionally, a mask.
        out_keys: Name of the output.
        in_shapes: Shapes of the inputs.
        hidden_features: Width of each layer.
        non_lin: Activation, or one for each layer.
        edge_list: Whether the graph is a list of edges.
        bias: Whether the linear maps have biases; with batch normalisation, which would subtract
            them again, they have none.
        normalization: "batch", "layer" or None.
        dropout: Probability of setting an output of a layer to 0 in training mode.
        n_heads: Number of heads of each layer.
        is_last_averaged: Whether the heads of the last layer are averaged, not concatenated.
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_features: Layers,
        non_lin: Activations,
        edge_list: bool,
        bias: bool,
        normalization: Normalization | None,
        dropout: float,
        n_heads: int = 1,
        is_last_averaged: bool = True,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_lists(hidden_features=hidden_features)
        self.require_flags(edge_list=edge_list, bias=bias)
        self.require_numbers(n_heads=n_heads)
        self.require_normalization(normalization)
        self.require_probability(dropout=dropout)
        known = "edges (E, 2)" if edge_list else "adjacency (N, N)"
        self.require(
            self._shapes_fit(edge_list) and len(self.out_keys) == 1,
            f"nodes (N, F), {known}, maybe a mask (N,); one output",
        )
        self.n_nodes = self.in_shapes[0][-2]
        self.edge_list = edge_list
        widths = [n_heads * width for width in hidden_features]  # heads are concatenated
        activations = self.module_classes(len(hidden_features), non_lin=non_lin)
        has_bias = bias and normalization != "batch"
        layers: list[nn.Module] = []
        for n_in, n_out in itertools.pairwise([self.in_shapes[0][-1], *widths]):
            layers.append(nn.Linear(n_in, n_out, has_bias))
        self.layers = nn.ModuleList(layers)
        self.non_lins = nn.ModuleList(activation() for activation in activations)
        if is_last_averaged:
            widths[-1] = hidden_features[-1]
        norms: list[nn.Module] = []
        for width in widths:
            norms += normalization_layers(normalization, width)
        self.norms = nn.ModuleList(norms)
        self.dropout = dropout

    def _shapes_fit(self, edge_list: bool) -> bool:
        """True for nodes, a graph and maybe a mask, with the same leading dimensions."""
        if len(self.in_shapes) not in (2, 3):
            return False
        nodes, graph = self.in_shapes[:2]
        if len(nodes) < 2 or len(graph) != len(nodes):
            return False
        *leading, n_nodes, _ = nodes
        wanted = (*leading, graph[-2], 2) if edge_list else (*leading, n_nodes, n_nodes)
        return graph == wanted and self.in_shapes[2:] in ([], [(*leading, n_nodes)])

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return node features [..., N, n], 0 for nodes that do not exist."""
        x = self.as_floats(block_input[self.in_keys[0]])
        graph = block_input[self.in_keys[1]]
        adjacency = (edges_to_adjacency(graph, self.n_nodes) if self.edge_list else graph).to(x.dtype)
        if len(self.in_keys) == 2:
            return {self.out_keys[0]: self._run(x, adjacency, None)}
        mask = block_input[self.in_keys[2]]
        exists = (mask != 0).unsqueeze(-1)
        adjacency = torch.where(exists & exists.mT, adjacency, 0.0)
        output = self._run(torch.where(exists, x, 0.0), adjacency, exists.squeeze(-1))
        return {self.out_keys[0]: torch.where(exists, output, 0.0)}

    @abstractmethod
    def _run(self, x: Tensor, adjacency: Tensor, exists: Tensor | None) -> Tensor:
        """Apply all layers to nodes.

        Args:
            x: [..., N, F].
            adjacency: [..., N, N].
            exists: [..., N] bool, nodes that exist; None for all.
        """

    def _activate(self, index: int, x: Tensor, exists: Tensor | None) -> Tensor:
        """Apply normalisation, activation and dropout of a layer to its outputs [..., N, n]."""
        if self.norms:
            x = apply_layers([self.norms[index]], x, exists)
        x = self.non_lins[index](x)
        return nn.functional.dropout(x, self.dropout) if self.dropout > 0.0 and self.training else x

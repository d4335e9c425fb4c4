"""Blocks for sequences, sets and graphs: attention, graph layers, and unordered points.

All masks are 1 where an element exists or may be attended to, and 0 elsewhere. Elements that do not
exist do not affect the others, whatever their values. An element that may not attend to anything
gets output 0 and gradients 0.

In a graph, node i aggregates node j where entry (i, j) of the adjacency matrix is not 0. A graph is
given by its adjacency matrix or by a list of edges (source, target); the target aggregates the
source.
"""

import itertools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.general import masked_pooling
from maze_pl.perception.blocks.layers import Layers, ModuleClass, dense_layers, make_module_init_normc
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, ShapeNormalizationBlock, Shapes, as_keys


def _attend(attention: Callable[..., Tensor], tensors: list[Tensor], mask: Tensor | None) -> Tensor:
    """Return attention outputs [..., L, E], 0 for queries that may not attend to anything.

    A softmax over nothing is NaN, and so is its gradient. Such queries therefore attend to
    everything, and their results are dropped. Keys and values that no query attends to are replaced
    by 0, because infinity and NaN do not vanish with a weight of 0.

    Args:
        attention: Function of query, key, value and a mask of allowed pairs [..., L, S].
        tensors: Query [..., L, E], key [..., S, K] and value [..., S, V], or one tensor for all
            three.
        mask: Mask of elements [..., S] or of pairs [..., L, S].
    """
    query, key, value = tensors if len(tensors) == 3 else tensors * 3
    if mask is None:
        return attention(query, key, value, None)
    allowed = mask != 0
    if allowed.dim() < query.dim():  # elements that do not exist do not attend, either
        rows = allowed if len(tensors) == 1 else torch.ones_like(query[..., 0], dtype=torch.bool)
        allowed = rows.unsqueeze(-1) & allowed.unsqueeze(-2)
    attends, attended = allowed.any(-1, keepdim=True), allowed.any(-2).unsqueeze(-1)
    clean = [torch.where(used, tensor, 0.0) for used, tensor in ((attends, query), (attended, key), (attended, value))]
    return torch.where(attends, attention(*clean, allowed | ~attends), 0.0)


class MultiHeadAttentionBlock(ShapeNormalizationBlock):
    """Multi-head attention as in torch.nn.MultiheadAttention, but masks are 1 where it is allowed.

    Vaswani et al. 2017, arXiv:1706.03762, without dropout.

    Args:
        in_keys: Names of query, key and value, or one name for all three; then, optionally, the
            name of a mask.
        out_keys: Name of the output.
        in_shapes: Shapes of query (L, E), key (S, K) and value (S, V), and of the mask, see `use_key_padding_mask`.
        num_heads: Number of heads, which divides E.
        use_key_padding_mask: If true, the mask (S,) is 1 where a key exists; otherwise the mask (L,
            S) is 1 where a query may attend to a key. With one name for all three, elements that do
            not exist do not attend.

    Example:
        >>> import torch
        >>> block = MultiHeadAttentionBlock(
        ...     ["units", "exists"], "out", [[5, 8], [5]], num_heads=2, use_key_padding_mask=True
        ... )
        >>> block({"units": torch.randn(5, 8), "exists": torch.tensor([1, 1, 1, 0, 0])})["out"][3:].any()
        tensor(False)
    """

    def __init__(
        self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, num_heads: int, use_key_padding_mask: bool = False
    ) -> None:
        n_keys = len(as_keys(in_keys, f"{type(self).__name__}: in_keys"))
        mask_dims = [] if n_keys % 2 else [2 if use_key_padding_mask else 3]
        n_tensors = n_keys - len(mask_dims)
        super().__init__(in_keys, out_keys, in_shapes, [3] * n_tensors + mask_dims, 3)
        self.require_numbers(num_heads=num_heads)
        self.require_flags(use_key_padding_mask=use_key_padding_mask)
        query, key, value = (self.in_shapes[index % n_tensors][-2:] for index in range(3))
        mask = (key[0],) if use_key_padding_mask else (query[0], key[0])
        fits = key[0] == value[0] and all(self.in_shapes[-1][1 - number :] == mask for number in mask_dims)
        known = n_tensors in (1, 3) and len(self.out_keys) == 1 and len(mask_dims) >= use_key_padding_mask
        names = "query (L, E), key (S, K) and value (S, V), or one for all"
        good = fits and known and query[1] % num_heads == 0
        self.require(good, f"{names}, with {use_key_padding_mask=} a mask {mask}; num_heads that divides E; one output")
        self.attention = nn.MultiheadAttention(query[1], num_heads, kdim=key[1], vdim=value[1], batch_first=True)

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [B, L, E]."""
        inputs = [block_input[key] for key in self.in_keys]
        mask = inputs.pop() if len(inputs) % 2 == 0 else None
        return {self.out_keys[0]: _attend(self._attention, inputs, mask)}

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
        # The module's `forward` would fix the batch size in exported programs.
        attention = self.attention
        packed = attention.in_proj_weight
        separate = (attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight)
        weights = separate if packed is None else packed.chunk(3)
        split = []
        for tensor, weight, bias in zip((query, key, value), weights, attention.in_proj_bias.chunk(3), strict=True):
            projected = nn.functional.linear(tensor, weight, bias)
            heads = torch.unflatten(projected, -1, (attention.num_heads, attention.head_dim))
            split.append(heads.transpose(1, 2))  # [B, L, E] -> [B, heads, L, E / heads]
        mask = None if allowed is None else allowed.unsqueeze(1)
        mixed = nn.functional.scaled_dot_product_attention(split[0], split[1], split[2], mask)
        output: Tensor = attention.out_proj(mixed.transpose(1, 2).flatten(2))
        return output


class _SelfAttentionBlock(ShapeNormalizationBlock):
    """Single-head self-attention with a bottleneck, over elements of a sequence or pixels."""

    _of_images = False

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, embed_dim: int) -> None:
        n_dims = 4 if self._of_images else 3
        n_masks = len(as_keys(in_keys, f"{type(self).__name__}: in_keys")) - 1
        super().__init__(in_keys, out_keys, in_shapes, [n_dims] + [n_dims - 1] * n_masks, n_dims)
        self.require_numbers(embed_dim=embed_dim)
        shape = self.in_shapes[0][1 - n_dims :]
        n_features, elements = (shape[0], shape[1:]) if self._of_images else (shape[1], shape[:1])
        masks = [shape[2 - n_dims :] for shape in self.in_shapes[1:]]
        wanted = "(C, H, W), maybe a mask (H, W)" if self._of_images else "(L, n), maybe a mask (L,)"
        good = masks in ([], [elements]) and len(self.out_keys) == 1
        self.require(good, f"{wanted}; one output")
        self.query, self.key, self.value = (nn.Linear(n_features, embed_dim) for _ in range(3))
        self.output = nn.Linear(embed_dim, n_features)
        self.scale = 1.0 if self._of_images else float(embed_dim) ** -0.5
        self.gamma = nn.Parameter(torch.zeros(1)) if self._of_images else 1.0

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the output, of the same shape as the input."""
        x, *masks = (block_input[key] for key in self.in_keys)
        elements = x.flatten(2).mT if self._of_images else x  # [B, L, n]
        output = _attend(self._attention, [elements], masks[0].flatten(1) if masks else None)
        output = output.mT.reshape(x.shape) if self._of_images else output
        return {self.out_keys[0]: x + self.gamma * output}

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Any:
        # add a dimension for the one head: fast kernels need four dimensions
        query, key, value = (part.unsqueeze(1) for part in (self.query(query), self.key(key), self.value(value)))
        allowed = None if allowed is None else allowed.unsqueeze(1)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, allowed, scale=self.scale)
        return self.output(mixed.squeeze(1))


class SelfAttentionSeqBlock(_SelfAttentionBlock):
    """Single-head self-attention over the elements of a sequence or set.

        y = x + softmax(Q K^T / sqrt(embed_dim)) V W_o,   Q, K, V = x W_q, x W_k, x W_v

    Vaswani et al. 2017, arXiv:1706.03762, without layer normalisation.

    Args:
        in_keys: Name of the input and, optionally, of a mask.
        out_keys: Name of the output.
        in_shapes: Shape of the input (L, n) and of the mask (L,), which is 1 where an element
            exists.
        embed_dim: Width of Q, K and V.

    Example:
        >>> SelfAttentionSeqBlock("sequence", "out", [5, 8], embed_dim=4).out_shapes()
        [(5, 8)]
    """


class SelfAttentionConvBlock(_SelfAttentionBlock):
    """Self-attention over the pixels of an image.

        y = x + gamma * softmax(Q K^T) V W_o,   Q, K, V = x W_q, x W_k, x W_v   (1 x 1 convolutions)

    gamma is learned and starts at 0, so that the block is the identity at first. Zhang et al. 2018,
    arXiv:1805.08318.

    Args:
        in_keys: Name of the input and, optionally, of a mask.
        out_keys: Name of the output.
        in_shapes: Shape of the input (C, H, W) and of the mask (H, W), which is 1 where a pixel
            exists.
        embed_dim: Channels of Q, K and V; C / 8 in the paper.

    Example:
        >>> SelfAttentionConvBlock("image", "out", [16, 5, 5], embed_dim=2).out_shapes()
        [(16, 5, 5)]
    """

    _of_images = True


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
    flat = torch.zeros(*index.shape[:-1], n_nodes**2 + 1, device=edges.device)  # the last entry collects ignored pairs
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
        self.require(good and len(self.out_keys) == 1, f"nodes (N, F), {known}, maybe a mask (N,); one output")
        self.n_nodes, self.edge_list = shape[-2], edge_list
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
        edge_list: Whether the graph is a list of edges (source, target), in which rows of -1 are padding.

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

        x'_i = f(sum_j a_ij W x_j),   a_ij = softmax_j LeakyReLU(u W x_i + v W x_j),   j with A_ij not 0, and i itself

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
        edge_list: Whether the graph is a list of edges (source, target), in which rows of -1 are padding.
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


class PointNetFeatureBlock(PerceptionBlock):
    """Embeds each point by shared layers, then pools: [..., P, D] to [..., embedding_dim].

        y = max_p MLP(64, 128, embedding_dim)(T x_p)

    T is a matrix that a smaller network of the same kind predicts from all points; it starts as the
    identity. Qi et al. 2017, arXiv:1612.00593, without batch normalisation and without the feature
    transform.

    Args:
        in_keys: Name of the points and, optionally, of a mask.
        out_keys: Name of the output.
        in_shapes: Shapes of the points (P, D) and of the mask (P,), which is 1 where a point
            exists. Other points have no effect, whatever their values; if none exists, the output
            is 0.
        embedding_dim: Width of the output, at least 4; 1024 in the paper.
        non_lin: Activation, a class or its path.

    Example:
        >>> PointNetFeatureBlock("points", "vector", [20, 3], embedding_dim=32).out_shapes()
        [(32,)]
    """

    def __init__(
        self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, embedding_dim: int, non_lin: ModuleClass = nn.ReLU
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        shape, *masks = self.in_shapes
        good = len(shape) >= 2 and masks in ([], [shape[:-1]]) and len(self.out_keys) == 1
        self.require(good, "points (P, D), maybe a mask (P,), and one output")
        self.require_numbers(4, embedding_dim=embedding_dim)
        activation = self.module_class(non_lin=non_lin)
        n = shape[-1]
        last = nn.Linear(embedding_dim // 4, n * n).apply(make_module_init_normc(0.0))
        self.all_points = dense_layers([n, 64, 128, embedding_dim], activation)
        self.matrix = dense_layers([embedding_dim, embedding_dim // 2, embedding_dim // 4], activation).append(last)
        self.matrix.append(nn.Unflatten(-1, (n, n)))
        self.embed = dense_layers([n, 64, 128, embedding_dim], activation)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the embedding [..., embedding_dim]."""
        x, *masks = (block_input[key] for key in self.in_keys)
        mask = masks[0] if masks else None
        x = x if mask is None else torch.where(mask.unsqueeze(-1) != 0, x, 0.0)
        matrix = self.matrix(masked_pooling(self.all_points(x), mask, pooling_func="max", dim=-2))
        transformed = x @ (matrix + torch.eye(x.shape[-1], dtype=matrix.dtype, device=x.device))
        return {self.out_keys[0]: masked_pooling(self.embed(transformed), mask, pooling_func="max", dim=-2)}

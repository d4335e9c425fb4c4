"""Blocks for sequences, sets and graphs: attention, layers over graphs, and points in any order.

Everywhere a mask is 1 where an element exists, or may be attended, and 0 where it does not. Elements that do not exist
change nothing for the others, whatever they are. Who may attend nothing gets 0, and so are its gradients.

In a graph node i takes in node j where entry (i, j) of the adjacency is not 0. A graph is given by its adjacency or by
a list of its edges (source, target), of which each lets the target take in the source.
"""

import itertools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from maze_pl.core.class_path import import_class
from maze_pl.perception.blocks.general import masked_pooling
from maze_pl.perception.blocks.layers import Layers, ModuleClass, dense_layers, make_module_init_normc
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, ShapeNormalizationBlock, Shapes


def _attend(attention: Callable[..., Tensor], tensors: list[Tensor], mask: Tensor | None) -> Tensor:
    """What attention gives [..., L, E], with 0 for those who may attend nothing.

    A softmax over nothing is NaN and so is its gradient; so who may attend nothing attends everything, and the result
    is dropped. What nobody attends is replaced by 0, as infinity and NaN do not vanish with a weight of 0.

    Args:
        attention: From query, key, value and who may attend what [..., L, S].
        tensors: Query [..., L, E], key [..., S, K] and value [..., S, V], or one for all of them.
        mask: Of elements [..., S] or of pairs [..., L, S].
    """
    query, key, value = tensors if len(tensors) == 3 else tensors * 3
    if mask is None:
        return attention(query, key, value, None)
    allowed = mask != 0
    if allowed.dim() < query.dim():  # elements that do not exist do not attend either
        rows = allowed if len(tensors) == 1 else torch.ones_like(query[..., 0], dtype=torch.bool)
        allowed = rows.unsqueeze(-1) & allowed.unsqueeze(-2)
    attends, attended = allowed.any(-1, keepdim=True), allowed.any(-2).unsqueeze(-1)
    clean = [torch.where(used, tensor, 0.0) for used, tensor in ((attends, query), (attended, key), (attended, value))]
    return torch.where(attends, attention(*clean, allowed | ~attends), 0.0)


def _count(keys: Keys) -> int:
    return 1 if isinstance(keys, str) else len(keys)


class MultiHeadAttentionBlock(ShapeNormalizationBlock):
    """Several attentions side by side, as in torch.nn.MultiheadAttention, with masks that are 1 where they allow.

    Vaswani et al. 2017, arXiv:1706.03762, without dropout.

    Args:
        in_keys: Names of query, key and value, or one name for all three; then the name of a mask if there is one.
        out_keys: Name of what comes out.
        in_shapes: Shapes of query (L, E), key (S, K) and value (S, V), and of the mask, see `use_key_padding_mask`.
        num_heads: Number of attentions, which divides E.
        use_key_padding_mask: Whether the mask (S,) is 1 where a key exists; otherwise the mask (L, S) is 1 where a
            query may attend a key. With one name for all three, elements that do not exist attend nothing.

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
        mask_dims = [] if _count(in_keys) % 2 else [2 if use_key_padding_mask else 3]
        n_tensors = _count(in_keys) - len(mask_dims)
        super().__init__(in_keys, out_keys, in_shapes, [3] * n_tensors + mask_dims, 3)
        query, key, value = (self.in_shapes[index % n_tensors][-2:] for index in range(3))
        mask = (key[0],) if use_key_padding_mask else (query[0], key[0])
        fits = key[0] == value[0] and all(self.in_shapes[-1][1 - number :] == mask for number in mask_dims)
        known = n_tensors in (1, 3) and len(self.out_keys) == 1 and len(mask_dims) >= use_key_padding_mask
        names = "query (L, E), key (S, K) and value (S, V), or one for all"
        good = fits and known and query[1] % num_heads == 0
        self.require(good, f"{names}, with {use_key_padding_mask=} a mask {mask}; num_heads that divides E; one output")
        self.attention = nn.MultiheadAttention(query[1], num_heads, kdim=key[1], vdim=value[1], batch_first=True)

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Output [B, L, E]."""
        inputs = [block_input[key] for key in self.in_keys]
        mask = inputs.pop() if len(inputs) % 2 == 0 else None
        return {self.out_keys[0]: _attend(self._attention, inputs, mask)}

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Any:
        blocked = None if allowed is None else (~allowed).repeat_interleave(self.attention.num_heads, 0)
        # torch 2.13 cannot reshape the mask of an empty batch if no weights are wanted
        return self.attention(query, key, value, attn_mask=blocked, need_weights=len(query) == 0)[0]


class _SelfAttentionBlock(ShapeNormalizationBlock):
    """Attention with one head and a bottleneck, of the elements of a sequence or the pixels of an image."""

    _of_images = False

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, embed_dim: int) -> None:
        n_dims = 4 if self._of_images else 3
        super().__init__(in_keys, out_keys, in_shapes, [n_dims] + [n_dims - 1] * (_count(in_keys) - 1), n_dims)
        shape = self.in_shapes[0][1 - n_dims :]
        n_features, elements = (shape[0], shape[1:]) if self._of_images else (shape[1], shape[:1])
        masks = [shape[2 - n_dims :] for shape in self.in_shapes[1:]]
        wanted = "(C, H, W), maybe a mask (H, W)" if self._of_images else "(L, n), maybe a mask (L,)"
        good = masks in ([], [elements]) and len(self.out_keys) == 1 and embed_dim > 0
        self.require(good, f"{wanted}; one output; embed_dim above 0, not {embed_dim}")
        self.query, self.key, self.value = (nn.Linear(n_features, embed_dim) for _ in range(3))
        self.output = nn.Linear(embed_dim, n_features)
        self.scale = 1.0 if self._of_images else float(embed_dim) ** -0.5
        self.gamma = nn.Parameter(torch.zeros(1)) if self._of_images else 1.0

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """The shape of what goes in."""
        x, *masks = (block_input[key] for key in self.in_keys)
        elements = x.flatten(2).mT if self._of_images else x  # [B, L, n]
        output = _attend(self._attention, [elements], masks[0].flatten(1) if masks else None)
        output = output.mT.reshape(x.shape) if self._of_images else output
        return {self.out_keys[0]: x + self.gamma * output}

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Any:
        # one head, as fast kernels want four dimensions
        query, key, value = (part.unsqueeze(1) for part in (self.query(query), self.key(key), self.value(value)))
        allowed = None if allowed is None else allowed.unsqueeze(1)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, allowed, scale=self.scale)
        return self.output(mixed.squeeze(1))


class SelfAttentionSeqBlock(_SelfAttentionBlock):
    """Each element of a sequence or set attends to all, with one head.

        y = x + softmax(Q K^T / sqrt(embed_dim)) V W_o,   Q, K, V = x W_q, x W_k, x W_v

    Vaswani et al. 2017, arXiv:1706.03762, without layer normalisation.

    Args:
        in_keys: Name of what goes in, and of a mask if there is one.
        out_keys: Name of what comes out.
        in_shapes: Its shape (L, n), and that of the mask (L,), which is 1 where an element exists.
        embed_dim: Width of Q, K and V.

    Example:
        >>> SelfAttentionSeqBlock("sequence", "out", [5, 8], embed_dim=4).out_shapes()
        [(5, 8)]
    """


class SelfAttentionConvBlock(_SelfAttentionBlock):
    """Each pixel of an image attends to all.

        y = x + gamma * softmax(Q K^T) V W_o,   Q, K, V = x W_q, x W_k, x W_v   (1 x 1 convolutions)

    gamma is learned and starts at 0, so that the block changes nothing at first. Zhang et al. 2018, arXiv:1805.08318.

    Args:
        in_keys: Name of what goes in, and of a mask if there is one.
        out_keys: Name of what comes out.
        in_shapes: Its shape (C, H, W), and that of the mask (H, W), which is 1 where a pixel exists.
        embed_dim: Channels of Q, K and V; C / 8 in the paper.

    Example:
        >>> SelfAttentionConvBlock("image", "out", [16, 5, 5], embed_dim=2).out_shapes()
        [(16, 5, 5)]
    """

    _of_images = True


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


class _GraphBlock(PerceptionBlock):
    """Layers over a graph: a linear map and an activation each."""

    _has_bias = True

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_features: Layers,
        non_lin: ModuleClass = nn.ReLU,
        edge_list: bool = False,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        shape, graph = (*self.in_shapes, ())[:2]
        wanted = (*shape[:-2], *graph[-2:-1], 2) if edge_list else (*shape[:-1], *shape[-2:-1])
        good = self.in_shapes[1:] in ([wanted], [wanted, shape[:-1]]) and len(shape) == len(graph) >= 2
        known = "edges (E, 2)" if edge_list else "adjacency (N, N)"
        self.require(good and len(self.out_keys) == 1, f"nodes (N, F), {known}, maybe a mask (N,); one output")
        self.require(min(hidden_features, default=0) > 0, "hidden_features, and n_heads if there are heads, above 0")
        self.n_nodes, self.edge_list = shape[-2], edge_list
        sizes, activation = itertools.pairwise([shape[-1], *hidden_features]), import_class(non_lin, nn.Module)
        self.layers = nn.ModuleList(nn.Linear(*pair, self._has_bias) for pair in sizes)
        self.non_lins = nn.ModuleList(activation() for _ in hidden_features)

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

        X' = f(D^-1/2 (A + I) D^-1/2 X W + b),   D_ii = sum_j (A + I)_ij

    Kipf & Welling 2017, arXiv:1609.02907.

    Args:
        in_keys: Names of nodes, graph, and of a mask if there is one.
        out_keys: Name of what comes out, (N, hidden_features[-1]); 0 for nodes that do not exist.
        in_shapes: Shapes of nodes (N, F), of the adjacency (N, N), whose weights are not negative, or edges (E, 2), and
            of the mask (N,), which is 1 where a node exists; others change nothing, nor do their edges.
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
    """Graph attention: each node weighs its neighbours and itself by what they are.

        x'_i = f(sum_j a_ij W x_j),   a_ij = softmax_j LeakyReLU(u W x_i + v W x_j),   j with A_ij not 0, and i itself

    Heads are joined, and averaged in the last layer; the LeakyReLU has a slope of 0.2 below 0. Velickovic et al. 2018,
    arXiv:1710.10903, without dropout.

    Args:
        in_keys: Names of nodes, graph, and of a mask if there is one.
        out_keys: Name of what comes out, (N, hidden_features[-1]); 0 for nodes that do not exist.
        in_shapes: Shapes of nodes (N, F), of the adjacency (N, N) or edges (E, 2), and of the mask (N,), which is 1
            where a node exists; others change nothing, nor do their edges.
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
        super().__init__(in_keys, out_keys, in_shapes, [n_heads * n for n in hidden_features], non_lin, edge_list)
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
    """Embeds each point by the same layers, then pools: [..., P, D] to [..., embedding_dim].

        y = max_p MLP(64, 128, embedding_dim)(T x_p)

    T is a matrix that a smaller network of the same kind makes of all points; it starts as the identity. Qi et al.
    2017, arXiv:1612.00593, without batch normalisation and without a transform of features.

    Args:
        in_keys: Name of the points, and of a mask if there is one.
        out_keys: Name of what comes out.
        in_shapes: Shapes of the points (P, D), and of the mask (P,), which is 1 where a point exists; others change
            nothing, whatever they are, and without any points 0 comes out.
        embedding_dim: Width of what comes out, at least 4; 1024 in the paper.
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
        self.require(embedding_dim >= 4, f"embedding_dim of at least 4, not {embedding_dim}")
        n = shape[-1]
        last = nn.Linear(embedding_dim // 4, n * n).apply(make_module_init_normc(0.0))
        self.all_points = dense_layers([n, 64, 128, embedding_dim], non_lin)
        self.matrix = dense_layers([embedding_dim, embedding_dim // 2, embedding_dim // 4], non_lin).append(last)
        self.matrix.append(nn.Unflatten(-1, (n, n)))
        self.embed = dense_layers([n, 64, 128, embedding_dim], non_lin)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """[..., embedding_dim]."""
        x, *masks = (block_input[key] for key in self.in_keys)
        mask = masks[0] if masks else None
        x = x if mask is None else torch.where(mask.unsqueeze(-1) != 0, x, 0.0)
        matrix = self.matrix(masked_pooling(self.all_points(x), mask, pooling_func="max", dim=-2))
        transformed = x @ (matrix + torch.eye(x.shape[-1], dtype=matrix.dtype, device=x.device))
        return {self.out_keys[0]: masked_pooling(self.embed(transformed), mask, pooling_func="max", dim=-2)}

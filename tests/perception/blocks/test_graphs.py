"""Graph blocks against numbers by hand and loops over nodes, and what masks and padding keep out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from maze_pl.perception import GraphAttentionBlock, GraphConvBlock, PerceptionBlock
from maze_pl.perception.blocks.graphs import edges_to_adjacency


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def graph(*shape: int, seed: int = 0) -> Tensor:
    """About half of the edges; no symmetry, and node 0 without any."""
    adjacency = (draw(*shape, seed=seed) > 0).double()
    adjacency[..., 0, :] = 0
    adjacency[..., :, 0] = 0
    return adjacency


def test_an_edge_lets_its_target_take_in_its_source() -> None:
    edges = torch.tensor([[0, 1], [2, 0], [0, 1], [-1, -1], [1, 1]])
    assert edges_to_adjacency(edges, 3).tolist() == [[0, 0, 1], [1, 1, 0], [0, 0, 0]]
    assert torch.equal(edges_to_adjacency(edges.double(), 3), edges_to_adjacency(edges, 3))


def test_pairs_with_unknown_nodes_are_no_edges() -> None:
    for pair in ([-1, -1], [0, -1], [-1, 2], [3, 0], [0, 3], [2, 9]):
        assert not edges_to_adjacency(torch.tensor([pair]), 3).any()
    assert edges_to_adjacency(torch.zeros(0, 2), 3).tolist() == [[0] * 3] * 3


def test_lists_of_edges_give_what_a_loop_over_them_gives() -> None:
    edges = torch.randint(-1, 5, (4, 3, 12, 2), generator=torch.Generator().manual_seed(0))
    expected = np.zeros((4, 3, 5, 5))
    for index in np.ndindex(4, 3, 12):
        source, target = edges[index].tolist()
        if source >= 0 and target >= 0:
            expected[(*index[:2], target, source)] = 1
    assert np.array_equal(edges_to_adjacency(edges, 5).numpy(), expected)


def test_a_graph_convolution_by_hand() -> None:
    block = GraphConvBlock(["x", "a"], "out", [[3, 1], [3, 3]], [1], non_lin=nn.Identity)
    nn.init.ones_(block.layers[0].weight)
    nn.init.zeros_(block.layers[0].bias)
    path = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    output = block({"x": torch.tensor([[1.0], [2.0], [4.0]]), "a": path})["out"]
    # degrees with themselves are 2, 3, 2
    ends, middle = 1 / 6**0.5, 1 / 3
    expected = [[1 / 2 + 2 * ends], [ends + 2 * middle + 4 * ends], [2 * ends + 4 / 2]]
    np.testing.assert_allclose(output.detach().numpy(), expected, rtol=1e-6)


def convolved(x: np.ndarray, adjacency: np.ndarray, layers: list[tuple[Any, Any]]) -> np.ndarray:
    """All layers with tanh, by loops over nodes."""
    n_nodes = len(x)
    with_self = adjacency + np.eye(n_nodes)
    degree = [sum(with_self[node]) for node in range(n_nodes)]
    for weight, bias in layers:
        mixed = np.zeros_like(x)
        for i, j in np.ndindex(n_nodes, n_nodes):
            mixed[i] += with_self[i, j] / np.sqrt(degree[i] * degree[j]) * x[j]
        x = np.tanh(mixed @ weight.T + bias)
    return x


def test_graph_convolutions_are_those_of_a_loop_over_nodes() -> None:
    block = GraphConvBlock(["x", "a"], "out", [[5, 3], [5, 5]], [4, 2], "torch.nn.Tanh").double()
    x, adjacency = draw(3, 5, 3), graph(3, 5, 5, seed=1)
    adjacency[2] *= 0.7
    output = block({"x": x, "a": adjacency})["out"].detach().numpy()
    layers = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in block.layers]
    for b in range(3):
        np.testing.assert_allclose(output[b], convolved(x[b].numpy(), adjacency[b].numpy(), layers), atol=1e-12)


@pytest.mark.parametrize("of_values", [torch.int64, torch.uint8, torch.int8, torch.bool], ids=str)
@pytest.mark.parametrize("has_mask", [False, True])
def test_weights_of_edges_count_between_nodes_of_integers(has_mask: bool, of_values: torch.dtype) -> None:
    shapes = {"x": (5, 3), "a": (5, 5)} | ({"m": (5,)} if has_mask else {})
    block = GraphConvBlock([*shapes], "out", [*shapes.values()], [4, 2], "torch.nn.Tanh").double()
    nodes = torch.randint(90, (5, 3), generator=torch.Generator().manual_seed(0)).to(of_values)
    adjacency = 0.3 * graph(5, 5, seed=1)
    adjacency[0, 1] = adjacency[1, 0] = 300.5
    output = block({"x": nodes, "a": adjacency, "m": torch.ones(5)})["out"].detach().numpy()
    layers = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in block.layers]
    expected = convolved(nodes.double().numpy(), adjacency.double().numpy(), layers)
    np.testing.assert_allclose(output, expected, atol=1e-12)


def attended(x: np.ndarray, adjacency: np.ndarray, block: GraphAttentionBlock) -> np.ndarray:
    """All layers, by loops over heads and nodes."""
    n_nodes = len(x)
    for number, (layer, score) in enumerate(zip(block.layers, block.scores, strict=True)):
        heads = []
        for head, vectors in enumerate(score.detach().numpy()):
            width = len(vectors)
            mapped = x @ layer.weight.detach().numpy()[head * width : (head + 1) * width].T
            output = np.zeros((n_nodes, width))
            for i in range(n_nodes):
                near = [j for j in range(n_nodes) if adjacency[i, j] != 0 or i == j]
                logits = np.array([np.concatenate([mapped[i], mapped[j]]) @ vectors.T.flatten() for j in near])
                weights = np.exp(np.where(logits > 0, logits, 0.2 * logits))
                output[i] = (weights / weights.sum()) @ mapped[near]
            heads.append(output)
        is_last = number == len(block.layers) - 1
        x = np.tanh(np.mean(heads, 0) if is_last else np.concatenate(heads, 1))
    return x


@pytest.mark.parametrize("n_heads", [1, 3])
def test_graph_attention_is_that_of_a_loop_over_nodes(n_heads: int) -> None:
    block = GraphAttentionBlock(["x", "a"], "out", [[5, 3], [5, 5]], [4, 2], nn.Tanh, n_heads=n_heads).double()
    x, adjacency = draw(3, 5, 3), graph(3, 5, 5, seed=1)
    output = block({"x": x, "a": adjacency})["out"].detach().numpy()
    assert output.shape == (3, 5, 2)
    for b in range(3):
        np.testing.assert_allclose(output[b], attended(x[b].numpy(), adjacency[b].numpy(), block), atol=1e-12)


def test_graph_attention_by_hand() -> None:
    block = GraphAttentionBlock(["x", "a"], "out", [[2, 1], [2, 2]], [1], nn.Identity)
    nn.init.ones_(block.layers[0].weight)
    block.scores[0].data = torch.tensor([[[0.0, -5.0]]])
    x = torch.tensor([[0.0], [np.log(3.0)]], dtype=torch.float32)
    output = block({"x": x, "a": torch.tensor([[0.0, 1.0], [0.0, 0.0]])})["out"]
    # node 0 attends itself with a logit of 0, and node 1 with 0.2 * -5 log(3) = -log(3); node 1 itself only
    np.testing.assert_allclose(output.detach().numpy(), [[0.25 * np.log(3.0)], [np.log(3.0)]], rtol=1e-6)


def test_self_importance_by_hand() -> None:
    options: Any = {"non_lin": nn.Identity, "node_self_importance": 3.0}
    x, edge = torch.tensor([[1.0], [5.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    for trainable in (False, True):
        block = GraphConvBlock(
            ["x", "a"], "out", [[2, 1], [2, 2]], [1], trainable_node_self_importance=trainable, **options
        )
        nn.init.ones_(block.layers[0].weight)
        nn.init.zeros_(block.layers[0].bias)
        output = block({"x": x, "a": edge})["out"]
        # both degrees are 4: three quarters of itself and one of the other
        np.testing.assert_allclose(output.detach().numpy(), [[2.0], [4.0]], rtol=1e-6)
    output[0].sum().backward()
    # d/ds of (s + 5) / (s + 1) is -4 / (s + 1)^2, times s for its logarithm
    assert block.log_self_importance is not None and block.log_self_importance.grad is not None
    np.testing.assert_allclose(float(block.log_self_importance.grad), 3 * -4 / 16, rtol=1e-6)


def test_nodes_without_importance_for_themselves_and_neighbours_get_nothing() -> None:
    block = GraphConvBlock(
        ["x", "a"], "out", [[3, 1], [3, 3]], [1], non_lin=nn.Identity, bias=False, node_self_importance=0
    )
    nn.init.ones_(block.layers[0].weight)
    x = torch.tensor([[1.0], [2.0], [4.0]], requires_grad=True)
    adjacency = torch.tensor([[0.0, 4.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    output = block({"x": x, "a": adjacency})["out"]
    # degrees 4, 1 and 0: 4 / sqrt(4 * 1) * 2, 1 / sqrt(1 * 4) * 1, and nothing
    np.testing.assert_allclose(output.detach().numpy(), [[4.0], [0.5], [0.0]], rtol=1e-6)
    output.sum().backward()
    for tensor in (x, adjacency):
        assert tensor.grad is not None and bool(tensor.grad.isfinite().all())


def test_an_adjacency_may_be_taken_as_it_is() -> None:
    block = GraphConvBlock(["x", "a"], "out", [[5, 3], [5, 5]], [4, 2], nn.Tanh, preprocess_adj=False).double()
    x, adjacency = draw(3, 5, 3), draw(3, 5, 5, seed=1)
    expected = x
    for layer in block.layers:
        mixed = torch.einsum("bij,bjf->bif", adjacency, expected)
        expected = (mixed @ layer.weight.T + layer.bias).tanh()
    torch.testing.assert_close(block({"x": x, "a": adjacency})["out"], expected)


def test_graph_layers_have_activations_and_biases_of_their_own() -> None:
    for kind in (GraphConvBlock, GraphAttentionBlock):
        block = kind(["x", "a"], "o", [[5, 3], [5, 5]], [4, 2], [nn.Tanh, "torch.nn.SELU"], bias=False)
        assert [type(item) for item in block.non_lins] == [nn.Tanh, nn.SELU]
        assert all(layer.bias is None for layer in block.layers)
        with pytest.raises(ValueError, match="non_lin to be one class, or a list of 2, one for each layer"):
            kind(["x", "a"], "o", [[5, 3], [5, 5]], [4, 2], [nn.Tanh])


def test_heads_slope_and_biases_of_graph_attention() -> None:
    options: Any = {"n_heads": 3, "attention_alpha": 0.5, "bias": True, "avg_last_head_attentions": False}
    block = GraphAttentionBlock(["x", "a"], "out", [[5, 3], [5, 5]], [2], nn.Tanh, **options).double()
    x, adjacency = draw(4, 5, 3), graph(4, 5, 5, seed=1)
    mapped = block.layers[0](x).unflatten(-1, (3, 2))  # [B, N, heads, n]
    vectors = block.scores[0]
    to = torch.einsum("bihf,hf->bhi", mapped, vectors[..., 0])
    come = torch.einsum("bjhf,hf->bhj", mapped, vectors[..., 1])
    logits = to.unsqueeze(-1) + come.unsqueeze(-2)
    logits = torch.where(logits > 0, logits, 0.5 * logits)
    near = (adjacency != 0) | torch.eye(5, dtype=torch.bool)
    weights = torch.where(near.unsqueeze(1), logits, -torch.inf).softmax(-1)
    expected = torch.einsum("bhij,bjhf->bihf", weights, mapped).flatten(-2).tanh()
    assert block.out_shapes() == [(5, 6)]
    torch.testing.assert_close(block({"x": x, "a": adjacency})["out"], expected)


def test_attention_dropout_drops_whole_neighbours_in_training_only() -> None:
    block = GraphAttentionBlock(["x", "a"], "out", [[4, 1], [4, 4]], [1], nn.Identity, attention_dropout=0.5)
    nn.init.ones_(block.layers[0].weight)
    block.scores[0].data.zero_()
    tensors = {"x": torch.tensor([[1.0], [10.0], [100.0], [1000.0]]), "a": torch.ones(200, 4, 4)}
    assert torch.allclose(block.eval()(tensors | {"x": tensors["x"].expand(200, 4, 1)})["out"], torch.tensor(1111 / 4))
    torch.manual_seed(0)
    output = block.train()(tensors | {"x": tensors["x"].expand(200, 4, 1)})["out"] * 2
    # each of the four neighbours is there with twice its weight of a quarter, or is not
    digits = {round(value) for value in output.flatten().tolist()}
    assert digits == {sum(10**place for place in range(4) if number >> place & 1) for number in range(16)}


@pytest.mark.parametrize("index", range(2))
def test_dropout_drops_outputs_of_nodes_in_training_only(index: int) -> None:
    kind: Any = [GraphConvBlock, GraphAttentionBlock][index]
    block = kind(["x", "a"], "out", [[5, 3], [5, 5]], [200], nn.Softplus, dropout=0.5)
    tensors = {"x": draw(5, 3).float(), "a": graph(5, 5, seed=1).float()}
    evaluated = block.eval()(tensors)["out"]
    torch.manual_seed(0)
    output = block.train()(tensors)["out"]
    assert abs(float((output == 0).float().mean()) - 0.5) < 0.05 and evaluated.min() > 0
    torch.testing.assert_close(output[output != 0], 2 * evaluated[output != 0])


@pytest.mark.parametrize("index", range(2))
def test_nodes_that_do_not_exist_are_not_part_of_batch_statistics(index: int) -> None:
    kind: Any = [GraphConvBlock, GraphAttentionBlock][index]
    torch.manual_seed(0)
    masked = kind(["x", "a", "m"], "out", [[5, 3], [5, 5], [5]], [2], nn.Tanh, normalization="batch")
    plain = kind(["x", "a"], "out", [[3, 3], [3, 3]], [2], nn.Tanh, normalization="batch")
    plain.load_state_dict(masked.state_dict())
    x, adjacency, mask = draw(4, 5, 3).float(), graph(4, 5, 5, seed=1).float(), torch.tensor([1, 1, 1, 0, 0])
    x[:, 3:] = torch.nan
    for _ in range(2):
        given = masked({"x": x, "a": adjacency, "m": mask.expand(4, 5)})["out"]
        expected = plain({"x": x[:, :3], "a": adjacency[:, :3, :3]})["out"]
        torch.testing.assert_close(given[:, :3], expected)
        assert not given[:, 3:].any()
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(masked.state_dict()[name], value)


def blocks(n_nodes: int, n_edges: int | None, has_mask: bool) -> list[PerceptionBlock]:
    """Both kinds, with two layers."""
    torch.manual_seed(0)
    names, kind = ["x", "a", "mask"][: 2 + has_mask], (n_nodes, n_nodes) if n_edges is None else (n_edges, 2)
    shapes, is_list = [(n_nodes, 3), kind, (n_nodes,)][: 2 + has_mask], n_edges is not None
    return [
        GraphConvBlock(names, "out", shapes, [4, 2], nn.Tanh, edge_list=is_list),
        GraphAttentionBlock(names, "out", shapes, [4, 2], n_heads=2, edge_list=is_list),
    ]


@pytest.mark.parametrize("index", range(2))
def test_a_list_of_edges_is_as_good_as_an_adjacency(index: int) -> None:
    edges = torch.randint(-1, 5, (4, 9, 2), generator=torch.Generator().manual_seed(0))
    x, adjacency = draw(4, 5, 3).float(), edges_to_adjacency(edges, 5)
    by_edges, dense = blocks(5, 9, False)[index], blocks(5, None, False)[index]
    expected = dense({"x": x, "a": adjacency})["out"]
    assert torch.equal(by_edges({"x": x, "a": edges})["out"], expected)
    padded = torch.cat([edges, edges.flip(1), torch.full((4, 3, 2), -1)], 1)
    assert torch.equal(blocks(5, 21, False)[index]({"x": x, "a": padded})["out"], expected)


@pytest.mark.parametrize("other", [2.0, torch.inf, torch.nan])
@pytest.mark.parametrize("index", range(2))
def test_nodes_that_do_not_exist_and_their_edges_change_nothing(index: int, other: float) -> None:
    block = blocks(5, None, True)[index]
    mask = torch.tensor([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    exists, x, adjacency = mask != 0, draw(3, 5, 3).float(), graph(3, 5, 5, seed=1).float()
    expected = block({"x": x, "a": adjacency, "mask": mask})["out"]
    changed = torch.where(exists.unsqueeze(-1), x, other).requires_grad_()
    both = exists.unsqueeze(-1) & exists.unsqueeze(-2)
    given = block({"x": changed, "a": torch.where(both, adjacency, other), "mask": mask})["out"]
    assert torch.equal(given, expected) and not given[~exists].any() and bool(given[exists].any())
    given.sum().backward()
    assert changed.grad is not None and not changed.grad[~exists].any()
    for tensor in (changed, *block.parameters()):
        assert tensor.grad is not None and bool(tensor.grad.isfinite().all())


@pytest.mark.parametrize("index", range(2))
def test_a_padded_graph_gives_what_it_gives_without_padding(index: int) -> None:
    x, adjacency = draw(5, 3).float(), graph(5, 5, seed=1).float()
    small, large = blocks(3, None, False)[index], blocks(5, None, True)[index]
    expected = small({"x": x[:3], "a": adjacency[:3, :3]})["out"]
    given = large({"x": x, "a": adjacency, "mask": torch.tensor([1, 1, 1, 0, 0])})["out"]
    torch.testing.assert_close(given[:3], expected)


@pytest.mark.parametrize("index", range(2))
def test_nodes_without_neighbours_are_finite_and_so_are_gradients(index: int) -> None:
    block = blocks(5, None, False)[index]
    x = draw(5, 3).float().requires_grad_()
    adjacency = torch.zeros(5, 5, requires_grad=True)
    output = block({"x": x, "a": adjacency})["out"]
    output.square().sum().backward()
    assert bool(output.isfinite().all()) and x.grad is not None and bool(x.grad.isfinite().all())
    assert adjacency.grad is None or bool(adjacency.grad.isfinite().all())
    other = block({"x": x.detach() + torch.eye(5)[0].unsqueeze(-1), "a": adjacency})["out"]
    assert torch.equal(other[1:], output[1:])


@pytest.mark.parametrize("index", range(2))
def test_gradients_with_masks_are_those_of_small_changes(index: int) -> None:
    block = blocks(5, None, True)[index].double()
    mask = torch.tensor([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0]])

    def run(x: Tensor) -> Tensor:
        return block({"x": x, "a": graph(2, 5, 5, seed=1), "mask": mask})["out"]

    assert torch.autograd.gradcheck(run, draw(2, 5, 3).requires_grad_())


CONVOLUTION: dict[str, Any] = {"hidden_features": [4, 2]}
WRONG: list[tuple[type[PerceptionBlock], Any, Any, Any, dict[str, Any], str]] = [
    (kind, *rest)
    for kind in (GraphConvBlock, GraphAttentionBlock)
    for rest in (
        ("x", "o", [5, 3], CONVOLUTION, "nodes (N, F), adjacency (N, N), maybe a mask (N,); one output"),
        (["x", "a"], "o", [[5, 3], [5, 4]], CONVOLUTION, "adjacency (N, N)"),
        (["x", "a"], "o", [[5, 3], [4, 4]], CONVOLUTION, "adjacency (N, N)"),
        (["x", "a"], "o", [[5], [5]], CONVOLUTION, "adjacency (N, N)"),
        (["x", "a"], "o", [[5, 3], [7, 5, 5]], CONVOLUTION, "adjacency (N, N)"),
        (["x", "a"], "o", [[5, 3], [5, 5]], {**CONVOLUTION, "edge_list": True}, "edges (E, 2)"),
        (["x", "a"], "o", [[5, 3], [2]], {**CONVOLUTION, "edge_list": True}, "edges (E, 2)"),
        (["x", "a", "m"], "o", [[5, 3], [5, 5], [3]], CONVOLUTION, "maybe a mask (N,)"),
        (["x", "a", "m", "n"], "o", [[5, 3], [5, 5], [5], [5]], CONVOLUTION, "maybe a mask (N,)"),
        (["x", "a"], ["o", "p"], [[5, 3], [5, 5]], CONVOLUTION, "one output"),
        (["x", "a"], "o", [[5, 3], [5, 5]], {"hidden_features": []}, "hidden_features to be a list"),
        (["x", "a"], "o", [[5, 3], [5, 5]], {"hidden_features": [4, 0]}, "hidden_features to be a list"),
    )
]
WRONG += [
    (
        GraphAttentionBlock,
        ["x", "a"],
        "o",
        [[5, 3], [5, 5]],
        {**CONVOLUTION, "n_heads": 0},
        "n_heads to be a whole number of at least 1",
    ),
]
for changed, problem in (
    ({"node_self_importance": -1.0}, "node_self_importance of at least 0, not -1.0"),
    ({"node_self_importance": torch.nan}, "node_self_importance of at least 0, not nan"),
    ({"node_self_importance": 2.0, "preprocess_adj": False}, "no node_self_importance with preprocess_adj=False"),
    ({"trainable_node_self_importance": True, "preprocess_adj": False}, "no node_self_importance with preprocess_adj"),
    ({"node_self_importance": 0.0, "trainable_node_self_importance": True}, "above 0 if it is trainable"),
):
    WRONG.append((GraphConvBlock, ["x", "a"], "o", [[5, 3], [5, 5]], CONVOLUTION | changed, problem))
WRONG.append(
    (
        GraphAttentionBlock,
        ["x", "a"],
        "o",
        [[5, 3], [5, 5]],
        {**CONVOLUTION, "attention_alpha": -0.1},
        "attention_alpha of at least 0, not -0.1",
    )
)


@pytest.mark.parametrize(("kind", "in_keys", "out_keys", "in_shapes", "options", "message"), WRONG)
def test_invalid_options_are_refused_by_name(
    kind: type[PerceptionBlock], in_keys: Any, out_keys: Any, in_shapes: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as error:
        kind(in_keys, out_keys, in_shapes, **options)
    assert str(error.value).startswith(f"{kind.__name__} from 'x' (") and message in str(error.value)


def test_activations_are_module_classes() -> None:
    with pytest.raises(ValueError, match=r"'torch\.tanh' is not a subclass of Module"):
        GraphConvBlock(["x", "a"], "o", [[5, 3], [5, 5]], [4], non_lin="torch.tanh")

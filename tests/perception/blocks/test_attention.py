"""Attention against loops over queries, keys and heads, and what masks keep out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from maze_pl.perception import MultiHeadAttentionBlock, PerceptionBlock, SelfAttentionConvBlock, SelfAttentionSeqBlock

Arrays = dict[str, np.ndarray]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def randomised(block: PerceptionBlock) -> PerceptionBlock:
    """In double precision, with biases and gamma that are not 0."""
    for seed, parameter in enumerate(block.double().parameters()):
        parameter.data = draw(*parameter.shape, seed=seed)
    return block.eval()


def arrays(module: nn.Module) -> Arrays:
    return {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def attend(query: np.ndarray, key: np.ndarray, value: np.ndarray, allowed: np.ndarray, scale: float) -> np.ndarray:
    """Output [L, V], of one query after the other."""
    output = np.zeros((len(query), value.shape[1]))
    for row, one in enumerate(query):
        who = [index for index in range(len(key)) if allowed[row, index]]
        if who:
            weights = softmax(np.array([scale * one @ key[index] for index in who]))
            output[row] = weights @ value[who]
    return output


def several_heads(
    weights: Arrays, n_heads: int, query: np.ndarray, key: np.ndarray, value: np.ndarray, allowed: np.ndarray
) -> np.ndarray:
    """What torch's documents say of nn.MultiheadAttention with weights of different sizes."""
    bias = np.split(weights["attention.in_proj_bias"], 3)
    query = query @ weights["attention.q_proj_weight"].T + bias[0]
    key = key @ weights["attention.k_proj_weight"].T + bias[1]
    value = value @ weights["attention.v_proj_weight"].T + bias[2]
    size = query.shape[1] // n_heads
    heads = [slice(head * size, (head + 1) * size) for head in range(n_heads)]
    results = [attend(query[:, one], key[:, one], value[:, one], allowed, size**-0.5) for one in heads]
    output = np.concatenate(results, 1) @ weights["attention.out_proj.weight"].T + weights["attention.out_proj.bias"]
    output[~allowed.any(1)] = 0
    return output


@pytest.mark.parametrize("masked", ["", "keys", "pairs"])
def test_several_heads_attend_side_by_side(masked: str) -> None:
    query, key, value = draw(4, 3, 6), draw(4, 5, 3, seed=1), draw(4, 5, 2, seed=2)
    masks = {"": torch.ones(4, 5), "keys": draw(4, 5, seed=3) > 0, "pairs": draw(4, 3, 5, seed=4) > 0.4}
    mask = masks[masked]
    mask[1] = masked == ""
    mask[-1, -1] = masked == ""
    names, shapes = ["query", "key", "value", "mask"], [[3, 6], [5, 3], [5, 2], mask.shape[1:]]
    block = randomised(
        MultiHeadAttentionBlock(
            names[: 4 if masked else 3],
            "out",
            shapes[: 4 if masked else 3],
            num_heads=2,
            use_key_padding_mask=masked == "keys",
        )
    )
    output = block(dict(zip(names, (query, key, value, mask), strict=True)))
    allowed = (mask if masked == "pairs" else mask.unsqueeze(1).expand(4, 3, 5)).numpy() != 0
    for b in range(4):
        expected = several_heads(arrays(block), 2, query[b].numpy(), key[b].numpy(), value[b].numpy(), allowed[b])
        np.testing.assert_allclose(output["out"][b].detach().numpy(), expected, atol=1e-12)
    if masked:
        assert not output["out"][1].any()


def test_attention_to_itself_by_hand() -> None:
    block = MultiHeadAttentionBlock(["x", "mask"], "out", [[3, 1], [3]], 1, use_key_padding_mask=True)
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            parameter.fill_(0.0 if "bias" in name else 1.0)
    half = torch.log(torch.tensor(3.0))
    output = block({"x": torch.stack([torch.tensor(1.0), half, torch.tensor(9.0)])[:, None], "mask": torch.ones(3) * 0})
    assert not output["out"].any()
    # scores of the second are 0 and log(3) * log(3) if the first is 0
    output = block({"x": torch.tensor([[0.0], [half], [9.0]]), "mask": torch.tensor([1, 1, 0])})
    weight = 1 / (1 + np.exp(-(np.log(3) ** 2)))
    np.testing.assert_allclose(
        output["out"].detach().numpy(), [[0.5 * np.log(3)], [weight * np.log(3)], [0.0]], atol=1e-6
    )


def test_elements_of_a_sequence_attend_to_each_other() -> None:
    x, mask = draw(3, 5, 4), torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    block = randomised(SelfAttentionSeqBlock(["x", "mask"], "out", [[5, 4], [5]], 2))
    given, w = block({"x": x, "mask": mask}), arrays(block)
    for b in range(3):
        exists = mask[b].numpy() == 1
        mapped = [x[b].numpy() @ w[f"{name}.weight"].T + w[f"{name}.bias"] for name in ("query", "key", "value")]
        mixed = attend(*mapped, exists[:, None] & exists, 2**-0.5)
        expected = mixed @ w["output.weight"].T + w["output.bias"]
        expected[~exists] = 0
        expected = expected + x[b].numpy()
        np.testing.assert_allclose(given["out"][b].detach().numpy(), expected, atol=1e-12)


def test_pixels_attend_to_each_other_through_convolutions() -> None:
    block = randomised(SelfAttentionConvBlock("x", "out", [4, 2, 3], 2))
    x, given = draw(3, 4, 2, 3), block({"x": draw(3, 4, 2, 3)})

    def convolve(image: Tensor, layer: nn.Linear) -> Tensor:
        return nn.functional.conv2d(image, layer.weight[:, :, None, None], layer.bias)

    query, key, value = (convolve(x, layer).flatten(2) for layer in (block.query, block.key, block.value))
    weights = torch.einsum("bci,bcj->bij", query, key).softmax(2)
    mixed = convolve(torch.einsum("bij,bcj->bci", weights, value).unflatten(2, (2, 3)), block.output)
    torch.testing.assert_close(given["out"], x + block.gamma * mixed)


def test_attention_of_pixels_starts_as_nothing() -> None:
    block, x = SelfAttentionConvBlock("x", "out", [4, 2, 3], 2), draw(3, 4, 2, 3).float()
    assert torch.equal(block({"x": x})["out"], x)
    block({"x": x})["out"].sum().backward()
    assert block.gamma.grad is not None and block.gamma.grad.abs() > 0


def as_torch(block: MultiHeadAttentionBlock, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Any:
    """What torch's own layer with the same weights returns."""
    reference = block.attention
    refused = None if mask is None else (mask == 0).repeat_interleave(reference.num_heads, 0)
    return reference(query, key, value, attn_mask=refused, average_attn_weights=True)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"add_bias_kv": True, "add_zero_attn": True}],
    ids=str,
)
def test_heads_and_weights_are_those_of_torch(options: dict[str, Any], masked: bool) -> None:
    query, key, value = draw(4, 3, 6), draw(4, 5, 3, seed=1), draw(4, 5, 2, seed=2)
    mask = draw(4, 3, 5, seed=4) > 0
    mask[..., 0] = True  # torch's result for a query without any key is NaN
    names, shapes = ["query", "key", "value", "mask"], [[3, 6], [5, 3], [5, 2], [3, 5]]
    n = 4 if masked else 3
    block = randomised(MultiHeadAttentionBlock(names[:n], ["out", "weights"], shapes[:n], num_heads=2, **options))
    given = block(dict(zip(names[:n], (query, key, value, mask)[:n], strict=True)))
    output, weights = as_torch(block, query, key, value, mask if masked else None)
    torch.testing.assert_close(given["out"], output)
    torch.testing.assert_close(given["weights"], weights)
    assert block.out_shapes() == [(3, 6), (3, 5 + len({*options} & {"add_bias_kv", "add_zero_attn"}))]


@pytest.mark.parametrize("kind", [MultiHeadAttentionBlock, SelfAttentionSeqBlock])
def test_weights_do_not_change_the_output(kind: Any) -> None:
    options = {"num_heads": 2} if kind is MultiHeadAttentionBlock else {"num_heads": 2, "embed_dim": 4}
    if kind is MultiHeadAttentionBlock:
        options["use_key_padding_mask"] = True
    x, mask = draw(3, 5, 4), torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    with_weights = randomised(kind(["x", "mask"], ["out", "weights"], [[5, 4], [5]], **options))
    alone = randomised(kind(["x", "mask"], "out", [[5, 4], [5]], **options))
    given = with_weights({"x": x, "mask": mask})
    torch.testing.assert_close(given["out"], alone({"x": x, "mask": mask})["out"])
    sums = given["weights"].sum(-1)
    torch.testing.assert_close(sums, mask.double())  # elements that do not exist attend to nothing
    assert not given["weights"].mT[mask == 0].any()  # and nothing attends to them


@pytest.mark.parametrize("of_images", [False, True])
def test_self_attention_of_several_heads_is_theirs_side_by_side(of_images: bool) -> None:
    kind, shape = (SelfAttentionConvBlock, (4, 2, 3)) if of_images else (SelfAttentionSeqBlock, (6, 4))
    block: Any = randomised(kind("x", ["out", "weights"], shape, 6, num_heads=3))
    x = draw(5, *shape)
    elements = x.flatten(2).mT if of_images else x
    query, key, value = (layer(elements).unflatten(-1, (3, 2)) for layer in (block.query, block.key, block.value))
    scores = torch.einsum("blhe,bshe->bhls", query, key) * (1.0 if of_images else 2**-0.5)
    weights = scores.softmax(-1)
    output = block.output(torch.einsum("bhls,bshe->blhe", weights, value).flatten(2))
    expected = x + block.gamma * (output.mT.unflatten(2, (2, 3)) if of_images else output)
    given = block({"x": x})
    torch.testing.assert_close(given["out"], expected)
    torch.testing.assert_close(given["weights"], weights.mean(1))


@pytest.mark.parametrize("of_images", [False, True])
def test_self_attention_without_its_input_and_without_biases(of_images: bool) -> None:
    kind, shape = (SelfAttentionConvBlock, (4, 2, 3)) if of_images else (SelfAttentionSeqBlock, (6, 4))
    block: Any = randomised(kind("x", "out", shape, 2, add_input_to_output=False, bias=False))
    assert all(parameter.dim() == 2 for parameter in block.parameters()) and len([*block.parameters()]) == 4
    x = draw(5, *shape)
    elements = x.flatten(2).mT if of_images else x
    scores = torch.einsum("ble,bse->bls", block.query(elements), block.key(elements))
    mixed = (scores * (1.0 if of_images else 2**-0.5)).softmax(-1) @ block.value(elements)
    expected = block.output(mixed)
    expected = expected.mT.unflatten(2, (2, 3)) if of_images else expected
    torch.testing.assert_close(block({"x": x})["out"], expected)


def test_the_query_is_added_to_the_output() -> None:
    query, key = draw(4, 3, 6), draw(4, 5, 2, seed=1)
    names, shapes = ["query", "key", "value"], [[3, 6], [5, 2], [5, 2]]
    plain = randomised(MultiHeadAttentionBlock(names, "out", shapes, num_heads=2))
    residual = randomised(MultiHeadAttentionBlock(names, "out", shapes, num_heads=2, add_input_to_output=True))
    tensors = {"query": query, "key": key, "value": key}
    torch.testing.assert_close(residual(tensors)["out"], query + plain(tensors)["out"])


def test_a_learned_key_is_attended_to_where_nothing_else_exists() -> None:
    names, shapes = ["query", "key", "value", "mask"], [[2, 4], [3, 4], [3, 4], [3]]
    options: Any = {"num_heads": 2, "use_key_padding_mask": True, "add_bias_kv": True}
    block: Any = randomised(MultiHeadAttentionBlock(names, ["out", "weights"], shapes, **options))
    query, key = draw(1, 2, 4), draw(1, 3, 4, seed=1).fill_(torch.nan)
    given = block({"query": query, "key": key, "value": key, "mask": torch.zeros(1, 3)})
    assert given["weights"].tolist() == [[[0.0, 0.0, 0.0, 1.0]] * 2]
    expected = block.attention.out_proj(block.attention.bias_v[0]).expand(1, 2, 4)
    torch.testing.assert_close(given["out"], expected)
    # elements of a set that do not exist attend to nothing, not even to it
    options["add_zero_attn"] = True
    itself = randomised(MultiHeadAttentionBlock(["x", "mask"], "out", [[3, 4], [3]], **options))
    output = itself({"x": draw(3, 4), "mask": torch.tensor([1, 0, 1])})["out"]
    assert not output[1].any() and bool(output[::2].any(-1).all())


@pytest.mark.parametrize("name", ["heads", "sequence", "image"])
def test_dropout_sets_weights_to_zero_in_training_only(name: str) -> None:
    torch.manual_seed(0)
    block: Any
    if name == "heads":
        block, shape = MultiHeadAttentionBlock("x", ["out", "w"], [6, 4], 1, dropout=0.5), (6, 4)
        value = nn.functional.linear
        weight, bias = block.attention.in_proj_weight[8:], block.attention.in_proj_bias[8:]
        out = block.attention.out_proj
    else:
        kind, shape = (SelfAttentionConvBlock, (4, 2, 3)) if name == "image" else (SelfAttentionSeqBlock, (6, 4))
        block = kind("x", ["out", "w"], shape, 2, add_input_to_output=False, dropout=0.5)
        value, weight, bias, out = nn.functional.linear, block.value.weight, block.value.bias, block.output
    x = draw(2, *shape).float()
    elements = x.flatten(2).mT if name == "image" else x
    evaluated = block.eval()({"x": x})
    block.train()
    torch.manual_seed(1)
    given = block({"x": x})
    torch.testing.assert_close(given["w"], evaluated["w"])  # those before dropout
    torch.manual_seed(1)
    dropped = nn.functional.dropout(evaluated["w"].unsqueeze(1), 0.5).squeeze(1)
    expected = out(dropped @ value(elements, weight, bias))
    expected = expected.mT.unflatten(2, (2, 3)) if name == "image" else expected
    torch.testing.assert_close(given["out"], expected)
    assert not torch.allclose(given["out"], evaluated["out"])


def masked_blocks() -> dict[str, tuple[PerceptionBlock, tuple[int, ...]]]:
    """Blocks with a mask of six elements that attend to each other, and the shape of x."""
    torch.manual_seed(0)
    heads = MultiHeadAttentionBlock(["x", "mask"], "out", [[6, 4], [6]], 2, use_key_padding_mask=True)
    sequence = SelfAttentionSeqBlock(["x", "mask"], "out", [[6, 4], [6]], 2)
    image = SelfAttentionConvBlock(["x", "mask"], "out", [[4, 2, 3], [2, 3]], 2)
    nn.init.ones_(image.gamma)
    return {"heads": (heads, (6, 4)), "sequence": (sequence, (6, 4)), "image": (image, (4, 2, 3))}


@pytest.mark.parametrize("other", [3.0, -1e30, torch.inf, torch.nan])
@pytest.mark.parametrize("name", ["heads", "sequence", "image"])
def test_masked_elements_change_nothing(name: str, other: float) -> None:
    block, shape = masked_blocks()[name]
    mask = torch.tensor([[1, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]])
    x = draw(3, *shape).float()
    mask = mask.reshape(3, *((2, 3) if name == "image" else (6,)))
    exists = mask.unsqueeze(1 if name == "image" else -1).expand_as(x) != 0
    expected = block({"x": x, "mask": mask})
    changed = torch.where(exists, x, other).requires_grad_()
    given = block({"x": changed, "mask": mask})
    assert torch.equal(given["out"][exists], expected["out"][exists])
    wanted = torch.zeros_like(x) if name == "heads" else changed
    torch.testing.assert_close(given["out"][~exists], wanted[~exists], rtol=0, atol=0, equal_nan=True)
    given["out"][exists].sum().backward()
    assert changed.grad is not None and not changed.grad[~exists].any()
    for tensor in (changed, *block.parameters()):
        assert tensor.grad is not None and bool(tensor.grad.isfinite().all())


def test_keys_that_nobody_may_attend_change_nothing() -> None:
    names = ["query", "key", "value", "mask"]
    block = MultiHeadAttentionBlock(names, "out", [[2, 4], [3, 4], [3, 4], [2, 3]], num_heads=2)
    query, key, value = draw(2, 4).float(), draw(3, 4, seed=1).float(), draw(3, 4, seed=2).float()
    mask = torch.tensor([[1, 0, 1], [0, 0, 0]])
    expected = block(dict(zip(names, (query, key, value, mask), strict=True)))
    key[1], value[1], query[1] = torch.nan, torch.inf, torch.nan
    key.requires_grad_()
    given = block(dict(zip(names, (query, key, value, mask), strict=True)))
    assert torch.equal(given["out"], expected["out"]) and not given["out"][1].any()
    given["out"].sum().backward()
    assert key.grad is not None and bool(key.grad.isfinite().all()) and not key.grad[1].any()


@pytest.mark.parametrize("name", ["heads", "sequence", "image"])
def test_gradients_with_masks_are_those_of_small_changes(name: str) -> None:
    block, shape = masked_blocks()[name]
    mask = torch.tensor([[1, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0]]).reshape(2, *((2, 3) if name == "image" else (6,)))
    block.double()

    def run(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(block({"x": x, "mask": mask}).values())

    assert torch.autograd.gradcheck(run, draw(2, *shape).requires_grad_())


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("name", ["heads", "sequence", "image"])
def test_acting_gives_the_numbers_of_learning(name: str, has_mask: bool) -> None:
    # torch has a faster way for heads of one input where no gradient is asked for
    block, shape = masked_blocks()[name]
    if not has_mask and name == "heads":
        block = MultiHeadAttentionBlock("x", "out", [6, 4], num_heads=2)
    elif not has_mask:
        block = type(block)("x", "out", shape, 2)
    mask = torch.tensor([[1, 0, 1, 1, 0, 1], [0] * 6]).reshape(2, *((2, 3) if name == "image" else (6,)))
    tensors = {"x": draw(2, *shape).float(), "mask": mask}
    expected = block.train()(tensors)
    with torch.no_grad():
        given = block.eval()(tensors)
    for output in given:
        torch.testing.assert_close(given[output], expected[output], rtol=1e-6, atol=1e-6)


HEADS: dict[str, Any] = {"num_heads": 2}
WRONG: list[tuple[type[PerceptionBlock], Any, Any, Any, dict[str, Any], str]] = [
    (MultiHeadAttentionBlock, "x", "o", [5, 4], {"num_heads": 3}, "num_heads that divides E"),
    (MultiHeadAttentionBlock, "x", "o", [4], HEADS, "shapes of [2] dimensions"),
    (MultiHeadAttentionBlock, "x", "o", [5, 4], {**HEADS, "use_key_padding_mask": True}, "a mask (5,)"),
    (MultiHeadAttentionBlock, "x", list("abc"), [5, 4], HEADS, "one output"),
    (MultiHeadAttentionBlock, ["x", "m"], "o", [[5, 4], [5, 4]], HEADS, "a mask (5, 5)"),
    (MultiHeadAttentionBlock, ["x", "m"], "o", [[5, 4], [4]], {**HEADS, "use_key_padding_mask": True}, "a mask (5,)"),
    (MultiHeadAttentionBlock, list("xkv"), "o", [[5, 4], [3, 4], [2, 4]], HEADS, "key (S, K) and value (S, V)"),
    (MultiHeadAttentionBlock, list("xkvmn"), "o", [[5, 4]] * 5, HEADS, "key (S, K) and value (S, V)"),
    (SelfAttentionSeqBlock, "x", "o", [5, 4], {"embed_dim": 0}, "embed_dim to be a whole number of at least 1, not 0"),
    (SelfAttentionSeqBlock, "x", "o", [4], {"embed_dim": 2}, "shapes of [2] dimensions"),
    (SelfAttentionSeqBlock, ["x", "m"], "o", [[5, 4], [4]], {"embed_dim": 2}, "(L, n), maybe a mask (L,)"),
    (SelfAttentionSeqBlock, list("xmn"), "o", [[5, 4], [5], [5]], {"embed_dim": 2}, "(L, n), maybe a mask (L,)"),
    (SelfAttentionSeqBlock, "x", list("abc"), [5, 4], {"embed_dim": 2}, "one output"),
    (
        SelfAttentionConvBlock,
        "x",
        "o",
        [4, 2, 3],
        {"embed_dim": -1},
        "embed_dim to be a whole number of at least 1, not -1",
    ),
    (SelfAttentionConvBlock, ["x", "m"], "o", [[4, 2, 3], [4, 2]], {"embed_dim": 2}, "maybe a mask (H, W)"),
    (SelfAttentionConvBlock, "x", "o", [4, 2], {"embed_dim": 2}, "shapes of [3] dimensions"),
    (SelfAttentionSeqBlock, "x", "o", [5, 4], {"embed_dim": 4, "num_heads": 3}, "num_heads that divides embed_dim=4"),
    (MultiHeadAttentionBlock, "x", "o", [5, 4], {**HEADS, "dropout": 1.0}, "dropout from 0 to below 1, not 1.0"),
]


@pytest.mark.parametrize(("kind", "in_keys", "out_keys", "in_shapes", "options", "message"), WRONG)
def test_invalid_options_are_refused_by_name(
    kind: type[PerceptionBlock], in_keys: Any, out_keys: Any, in_shapes: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as error:
        kind(in_keys, out_keys, in_shapes, **options)
    assert str(error.value).startswith(f"{kind.__name__} from 'x' (") and message in str(error.value)

"""Choosing one of N items that attend to each other: logits by hand and by loops, and what they may not depend on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from maze_pl.perception import AttentionPointerBlock

LOWEST = torch.finfo(torch.float32).min
KEYS = ["items", "mask", "latent"]
SHAPES = [[6, 2], [6], [3]]
OPTIONS: dict[str, Any] = {"mask_key": "mask", "hidden_units": [5, 4], "n_heads": 2, "feed_forward_units": 3}
both_ways = pytest.mark.parametrize("skip_masked", [True, False])


def observation(*leading: int, n: int = 6, seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(*leading, n, generator=generator) < 0.6
    mask[..., 1] = True
    items = torch.randn(*leading, n, 2, generator=generator)
    return {"items": items, "mask": mask.float(), "latent": torch.randn(*leading, 3, generator=generator)}


def pointer(**options: Any) -> AttentionPointerBlock:
    torch.manual_seed(0)
    block = AttentionPointerBlock(KEYS, "choice", SHAPES, **{**OPTIONS, **options})
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    return block


def normalised(x: Any, weights: dict[str, Any], name: str) -> Any:
    centred = x - x.mean()
    return weights[f"{name}.weight"] * centred / math.sqrt((centred**2).mean() + 1e-5) + weights[f"{name}.bias"]


def slow_logits(block: AttentionPointerBlock, observed: dict[str, Tensor], n_heads: int) -> list[float]:
    """Logits of one observation, one item after the other."""
    weights = {name: tensor.detach().double().numpy() for name, tensor in block.state_dict().items()}
    items, mask, latent = (observed[key].double().numpy() for key in KEYS)
    used = [slot for slot in range(len(items)) if mask[slot]]
    hidden = []
    for slot in used:
        first = weights["first.weight"] @ items[slot] + weights["first.bias"] + weights["of_context.weight"] @ latent
        hidden.append(np.maximum(first, 0.0))
    for layer in range(len(block.layers)):
        common = weights[f"layers.{layer}.bias"] + weights[f"means.{layer}.weight"] @ np.mean(hidden, axis=0)
        hidden = [np.maximum(weights[f"layers.{layer}.weight"] @ h + common, 0.0) for h in hidden]
    width = len(hidden[0])
    size = width // n_heads
    for layer in range(len(block.attention)):
        name = f"attention.{layer}"
        projected = []
        for h in hidden:
            projected.append(
                weights[f"{name}.projection.weight"] @ normalised(h, weights, f"{name}.norm_before_attention")
            )
        following = []
        for h, own in zip(hidden, projected, strict=True):
            mixed = np.zeros(width)
            for head in range(n_heads):
                part = np.arange(head * size, (head + 1) * size)
                scores = [own[part] @ other[width + part] / math.sqrt(size) for other in projected]
                shares = np.exp(scores) / np.exp(scores).sum()
                for share, other in zip(shares, projected, strict=True):
                    mixed[part] += share * other[2 * width + part]
            a = h + weights[f"{name}.mixing.weight"] @ mixed
            inner = weights[f"{name}.dense.weight"] @ normalised(a, weights, f"{name}.norm_before_dense")
            inner = np.maximum(inner + weights[f"{name}.dense.bias"], 0.0)
            following.append(a + weights[f"{name}.output.weight"] @ inner + weights[f"{name}.output.bias"])
        hidden = following
    logits = [LOWEST] * len(items)
    for slot, h in zip(used, hidden, strict=True):
        logits[slot] = weights["output.weight"][0] @ normalised(h, weights, "norm") + weights["output.bias"][0]
    return logits


@both_ways
@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("n_heads", [1, 2])
def test_logits_equal_a_slow_reference(skip_masked: bool, n_layers: int, n_heads: int) -> None:
    block = pointer(skip_masked=skip_masked, n_layers=n_layers, n_heads=n_heads)
    for seed in range(4):
        observed = observation(seed=seed)
        logits = block(observed)["choice"]
        expected = slow_logits(block, observed, n_heads)
        np.testing.assert_allclose(logits.detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_logits_by_hand() -> None:
    block = AttentionPointerBlock("items", "choice", [2, 1], hidden_units=[2], n_heads=1, feed_forward_units=1)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.zero_()
        block.first.weight.copy_(torch.tensor([[1.0], [0.0]]))
        layer: Any = block.attention[0]
        layer.norm_before_attention.weight.fill_(1.0)
        layer.projection.weight[4:] = torch.eye(2)  # values; queries and keys are 0, so that all items count equally
        layer.mixing.weight.copy_(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        block.norm.weight.fill_(1.0)
        block.output.weight.copy_(torch.tensor([[3.0, 0.0]]))
    # items become (4, 0) and (0, 0); normalised (1, -1) and (0, 0), with a mean of (1 / 2, -1 / 2)
    # after attention they are (4, 1) and (0, 1); normalised (1, -1) and (-1, 1)
    logits = block({"items": torch.tensor([[4.0], [-7.0]])})["choice"]
    np.testing.assert_allclose(logits.detach().numpy(), [3.0, -3.0], rtol=1e-3)


@both_ways
def test_masked_slots_padding_and_order_have_no_effect(skip_masked: bool) -> None:
    block = pointer(skip_masked=skip_masked, n_layers=2)
    observed = observation(4)
    logits = block(observed)["choice"]
    hidden = {**observed, "items": torch.where(observed["mask"].unsqueeze(-1) > 0, observed["items"], torch.inf)}
    torch.testing.assert_close(block(hidden)["choice"], logits)
    padded = {**observed, "items": nn.functional.pad(observed["items"], (0, 0, 0, 3))}
    padded["mask"] = nn.functional.pad(observed["mask"], (0, 3))
    torch.testing.assert_close(block(padded)["choice"][:, :6], logits)
    assert (block(padded)["choice"][:, 6:] == LOWEST).all()
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    turned = {**observed, "items": observed["items"][:, order], "mask": observed["mask"][:, order]}
    torch.testing.assert_close(block(turned)["choice"], logits[:, order])


@both_ways
def test_gradients_are_finite_without_items_and_with_any_masked_values(skip_masked: bool) -> None:
    block = pointer(skip_masked=skip_masked)
    observed = observation(3)
    observed["mask"][1] = 0.0
    observed["items"][1] = torch.inf
    logits = block(observed)["choice"]
    assert (logits[1] == LOWEST).all()
    logits[[0, 2]].clamp(min=-100.0).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in block.parameters() if parameter.grad is not None)
    assert all(parameter.grad is not None for parameter in block.parameters())


def test_both_ways_of_computing_give_the_same_logits() -> None:
    one, other = pointer(n_layers=2), pointer(n_layers=2, skip_masked=False)
    observed = observation(5, 3)
    torch.testing.assert_close(one(observed)["choice"], other(observed)["choice"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_heads": 3}, "n_heads that divides 4, not 3"),
        ({"n_layers": 0}, "n_layers to be a whole number of at least 1"),
        ({"feed_forward_units": 0}, "feed_forward_units to be a whole number"),
        ({"mask_key": "masks"}, "mask_key to name some of the further inputs"),
        ({"hidden_units": []}, "hidden_units to be a list"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"AttentionPointerBlock from 'items' .* expected .*{message}"):
        AttentionPointerBlock(KEYS, "choice", SHAPES, **{**OPTIONS, **options})

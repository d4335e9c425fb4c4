"""Choosing one of N items: logits by hand and by loops, and what they may not depend on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from maze_pl.modules.optimization.trace_graph import check_shapes_are_fixed
from maze_pl.perception import DeepSetBlock, PointerBlock

LOWEST = torch.finfo(torch.float32).min
KEYS = ["items", "mask", "order", "latent", "chosen"]
SHAPES = [[6, 2], [6], [2], [3], [2]]
NUMBERS: dict[str, Any] = {"mask_key": "mask", "chosen_keys": ["chosen"], "hidden_units": [5, 4]}
WHOLE: dict[str, Any] = {**NUMBERS, "compare_keys": ["order"], "levels": 4, "any_order": True}
OPTIONS: dict[str, dict[str, Any]] = {
    "additive": NUMBERS,
    "linear": {**NUMBERS, "score": "linear"},
    "glimpses": {**NUMBERS, "score": "dot", "n_glimpses": 2, "n_heads": 2, "clip": 1.5},
    "all_slots": {**NUMBERS, "score": "dot", "n_glimpses": 1, "n_heads": 4, "skip_masked": False},
    "whole_numbers": {**WHOLE, "n_glimpses": 1, "skip_zeros": True},
    "whole_numbers_all_slots": {**WHOLE, "skip_masked": False, "skip_zeros": True},
}


def observation(*leading: int, n: int = 6, seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    items = torch.randint(0, 5, (*leading, n, 2), generator=generator).float()
    mask = torch.rand(*leading, n, generator=generator) < 0.6
    mask[..., 1] = True
    items[..., 1, :] += 1.0
    return {
        "items": items,
        "mask": mask.float(),
        "order": torch.randint(0, 5, (*leading, 2), generator=generator).float(),
        "latent": torch.randn(*leading, 3, generator=generator),
        "chosen": torch.randint(-1, n + 1, (*leading, 2), generator=generator),
    }


def randomised(block: nn.Module) -> Any:
    torch.manual_seed(0)
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    return block


def pointer(**options: Any) -> PointerBlock:
    block: PointerBlock = randomised(PointerBlock(KEYS, "choice", SHAPES, **options))
    return block


def every(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())(test)


# ---------------------------------------------------------------------------------------------- what it computes


def one_hot(x: np.ndarray[Any, Any], lowest: int, highest: int) -> np.ndarray[Any, Any]:
    parts = []
    for number in x:
        part = np.zeros(highest - lowest + 1)
        if min(number, highest) >= lowest:
            part[int(min(number, highest)) - lowest] = 1.0
        parts.append(part)
    return np.concatenate(parts)


def by_loops(block: Any, observed: dict[str, Tensor]) -> tuple[list[int], Any, dict[str, Any]]:
    """The items in use, their embeddings and the context of one observation, one item after the other."""
    weights = {name: tensor.detach().double().numpy() for name, tensor in block.state_dict().items()}
    seen = {name: tensor.double().numpy() for name, tensor in observed.items()}
    items, order = seen["items"], seen["order"]
    if block.any_order:
        items, order = np.sort(items), np.sort(order)

    def numbers(item: Any) -> Any:
        return item if block.levels is None else one_hot(item, 0, block.levels - 1)

    context = [seen["latent"]] if block.compare_keys else [order, seen["latent"]]
    for index in observed["chosen"].tolist():
        known = 0 <= index < len(items)
        context.append(np.append(numbers(items[index]), 1.0) if known else 0 * np.append(numbers(items[0]), 1.0))
    if block.compare_keys:
        context.append(numbers(order))
    joined = np.concatenate(context)
    used = [i for i in range(len(items)) if seen["mask"][i] and (items[i].any() or not block.skip_zeros)]
    hidden = []
    for i in used:
        x = numbers(items[i])
        if block.compare_keys:
            differences = np.array([a - b for a in items[i] for b in order])
            x = np.concatenate([x, one_hot(differences, 1 - block.levels, block.levels - 1)])
        first = weights["first.weight"] @ x + weights["first.bias"] + weights["of_context.weight"] @ joined
        hidden.append(np.maximum(first, 0.0))
    for layer in range(len(block.layers)):
        mean = np.mean(hidden or [np.zeros(weights["first.bias"].shape)], axis=0)
        common = weights[f"layers.{layer}.bias"] + weights[f"means.{layer}.weight"] @ mean
        hidden = [np.maximum(weights[f"layers.{layer}.weight"] @ h + common, 0.0) for h in hidden]
    return used, np.array(hidden), {"context": joined, **weights}


def slow_logits(block: PointerBlock, observed: dict[str, Tensor]) -> list[float]:
    used, hidden, weights = by_loops(block, observed)
    logits = [LOWEST] * len(observed["items"])
    query = 0.0
    if block.score != "linear":
        query = weights["query_of_mean.weight"] @ hidden.mean(0) + weights["query_of_mean.bias"]
        query = query + weights["query_of_context.weight"] @ weights["context"]
    for number in range(len(block.glimpses)):
        key, value, output = (weights[f"glimpses.{number}.{name}.weight"] for name in ("key", "value", "output"))
        size = hidden.shape[1] // block.n_heads
        heads = []
        for head in range(block.n_heads):
            part = slice(head * size, (head + 1) * size)
            scores = np.array([(key @ h)[part] @ query[part] / math.sqrt(size) for h in hidden])  # type: ignore[index]
            attention = np.exp(scores) / np.exp(scores).sum()
            heads.append(sum(a * (value @ h)[part] for a, h in zip(attention, hidden, strict=True)))
        query = query + output @ np.concatenate(heads)
    for slot, h in zip(used, hidden, strict=True):
        if block.score == "linear":
            logit = weights["output.weight"][0] @ h + weights["output.bias"][0]
        elif block.score == "dot":
            logit = (weights["key.weight"] @ h) @ query / math.sqrt(len(h))
        else:
            hyperbolic = np.tanh(weights["key.weight"] @ h + query)
            logit = weights["output.weight"][0] @ hyperbolic + weights["output.bias"][0]
        logits[slot] = logit if block.clip is None else block.clip * math.tanh(logit)
    return logits


@every
def test_logits_are_those_of_the_equations(options: dict[str, Any]) -> None:
    block, observed = pointer(**options), observation(20)
    logits = block(observed)["choice"]
    wanted = [slow_logits(block, {name: x[i] for name, x in observed.items()}) for i in range(20)]
    torch.testing.assert_close(logits, torch.tensor(wanted).float(), rtol=1e-4, atol=1e-4)
    allowed = logits > LOWEST
    assert bool((allowed <= (observed["mask"] != 0)).all()) and int(allowed.sum()) > 40


@pytest.mark.parametrize("pooling_func", ["mean", "sum", "max"])
@pytest.mark.parametrize("options", [NUMBERS, {**WHOLE, "skip_masked": False, "skip_zeros": True}])
def test_a_set_is_pooled_over_its_items(options: dict[str, Any], pooling_func: Any) -> None:
    block = randomised(DeepSetBlock(KEYS, "set", SHAPES, pooling_func=pooling_func, **options))
    observed = observation(10)
    observed["mask"][0] = 0.0
    vectors = block(observed)["set"]
    for i in range(10):
        one = {name: x[i] for name, x in observed.items()}
        _, hidden, weights = by_loops(block, one)
        pooled = getattr(hidden, pooling_func)(0) if len(hidden) else np.zeros(4)
        n_chosen = 2 * (2 * (block.levels or 1) + 1)
        end = None if not block.compare_keys else -8
        chosen = weights["context"][:end][-n_chosen:]
        wanted = torch.tensor(np.concatenate([pooled, chosen])).float()
        torch.testing.assert_close(vectors[i], wanted, rtol=1e-4, atol=1e-4)


def test_a_logit_by_hand() -> None:
    block = PointerBlock(["items", "order"], "choice", [[2, 1], [1]], hidden_units=[1])
    values = {
        "first.weight": [[2.0]],
        "first.bias": [0.5],
        "of_context.weight": [[3.0]],
        "query_of_mean.weight": [[0.1]],
        "query_of_mean.bias": [0.2],
        "query_of_context.weight": [[-0.3]],
        "key.weight": [[0.05]],
        "output.weight": [[4.0]],
        "output.bias": [1.0],
    }
    block.load_state_dict({name: torch.tensor(value) for name, value in values.items()})
    # Embeddings: 2 * 1 + 0.5 + 3 * 2 = 8.5 and 2 * 3 + 0.5 + 3 * 2 = 12.5; query: 0.1 * 10.5 + 0.2 - 0.3 * 2 = 0.65
    logits = block({"items": torch.tensor([[1.0], [3.0]]), "order": torch.tensor([2.0])})["choice"]
    wanted = [4 * math.tanh(0.05 * 8.5 + 0.65) + 1, 4 * math.tanh(0.05 * 12.5 + 0.65) + 1]
    torch.testing.assert_close(logits, torch.tensor(wanted))


# ----------------------------------------------------------------------------------------- what it may not depend on


def padded(observed: dict[str, Tensor], n: int, fill: float) -> dict[str, Tensor]:
    """The same sets in n slots; what the masked ones hold does not matter."""
    items, mask = observed["items"], observed["mask"]
    more = torch.full((*items.shape[:-2], n - items.shape[-2], items.shape[-1]), fill)
    return {
        **observed,
        "items": torch.cat([items, more], -2),
        "mask": torch.cat([mask, torch.zeros(more.shape[:-1])], -1),
    }


@every
@pytest.mark.parametrize("fill", [3.0, math.nan, math.inf])
def test_logits_do_not_depend_on_padding(options: dict[str, Any], fill: float) -> None:
    block, observed = pointer(**options), observation(7)
    observed["chosen"].clamp_(max=5)
    logits = block(observed)["choice"]
    more = block(padded(observed, 11, fill))["choice"]
    torch.testing.assert_close(more[:, :6], logits)
    assert bool((more[:, 6:] == LOWEST).all())
    observed["items"][observed["mask"] == 0] = 7.0
    without = {**options, "chosen_keys": []}
    block = pointer(**without)
    torch.testing.assert_close(
        block(observed)["choice"], block(observation(7) | {"chosen": observed["chosen"]})["choice"]
    )


@every
def test_items_that_change_places_take_their_logits_with_them(options: dict[str, Any]) -> None:
    block, observed = pointer(**options), observation(7)
    observed["chosen"].fill_(-1)
    order = torch.tensor([4, 2, 0, 3, 5, 1])
    moved = {**observed, "items": observed["items"][:, order], "mask": observed["mask"][:, order]}
    torch.testing.assert_close(block(moved)["choice"], block(observed)["choice"][:, order])
    chosen = torch.randint(0, 6, (7, 2))
    places = torch.argsort(order)[chosen]
    logits = block({**observed, "chosen": chosen})["choice"]
    torch.testing.assert_close(block({**moved, "chosen": places})["choice"], logits[:, order])


@every
def test_sets_of_other_sizes_in_one_batch_and_alone_give_the_same(options: dict[str, Any]) -> None:
    block = pointer(**options)  # made for 6 slots
    for n in (2, 6, 13):
        one = observation(3, n=n, seed=n)
        alone = block(one)["choice"]
        assert alone.shape == (3, n)
        one["chosen"].clamp_(max=n - 1)
        together = block(padded(one, 20, 1.0))["choice"]
        torch.testing.assert_close(together[:, :n], block(one)["choice"])


@every
def test_computing_all_slots_gives_the_same(options: dict[str, Any]) -> None:
    observed = observation(9)
    observed["mask"][2] = 0.0
    results = []
    for skip_masked in (True, False):
        block = pointer(**{**options, "skip_masked": skip_masked})
        logits = block(observed)["choice"]
        log_probs = logits.log_softmax(-1).clamp(min=-100.0)
        gradients = torch.autograd.grad((log_probs * log_probs.detach().exp()).sum(), [*block.parameters()])
        assert bool((logits[2] == LOWEST).all())
        assert all(bool(gradient.isfinite().all()) for gradient in gradients)
        results.append([logits, *gradients])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@every
def test_a_trace_holds_for_other_masks_if_all_slots_are_computed(options: dict[str, Any]) -> None:
    observed, others = observation(4), observation(4, seed=7)
    block = pointer(**{**options, "skip_masked": False})

    def logits(*tensors: Tensor) -> Tensor:
        return block(dict(zip(observed, tensors, strict=True)))["choice"]

    graph = make_fx(logits)(*observed.values())
    check_shapes_are_fixed(graph)
    assert not torch.equal(observed["mask"], others["mask"])
    torch.testing.assert_close(graph(*others.values()), block(others)["choice"])
    block.skip_masked = True
    with pytest.raises(ValueError, match="select entries by their values"):
        check_shapes_are_fixed(make_fx(logits)(*observed.values()))


@every
def test_accelerators_compute_all_slots_instead_of_looking_for_items(options: dict[str, Any]) -> None:
    block, observed = pointer(**options).to("meta"), observation(4)
    outputs = block({name: tensor.to("meta") for name, tensor in observed.items()})
    assert outputs["choice"].shape == (4, 6)


# ------------------------------------------------------------------------------------------------ what options change


def test_logits_depend_on_the_items_chosen_before_even_if_they_are_masked() -> None:
    block, observed = pointer(**NUMBERS), observation(1)
    observed["mask"][:] = torch.tensor([0.0, 1, 1, 0, 1, 1])
    observed["items"][0, 3] = torch.tensor([2.0, 0.0])
    by_choice = []
    for chosen in ([0, 3], [3, 0], [-1, 3], [6, 3], [0, -1]):
        by_choice.append(block({**observed, "chosen": torch.tensor([chosen])})["choice"])
    first, turned, none, beyond, other = by_choice
    assert not torch.allclose(first, turned) and not torch.allclose(first, none) and not torch.allclose(first, other)
    assert torch.equal(none, beyond)
    zero = {**observed, "items": observed["items"].clone()}
    zero["items"][0, 0] = 0.0  # an item of zeros is not the same as no item
    assert not torch.allclose(block({**zero, "chosen": torch.tensor([[0, 3]])})["choice"], none)


def test_clipping_limits_the_logits_of_what_may_be_chosen() -> None:
    observed = observation(30)
    allowed = observed["mask"] != 0
    free, clipped = pointer(**NUMBERS), pointer(**NUMBERS, clip=0.25)
    with torch.no_grad():
        logits, limited = free(observed)["choice"], clipped(observed)["choice"]
    assert float(logits[allowed].abs().max()) > 0.5
    torch.testing.assert_close(limited[allowed], 0.25 * logits[allowed].tanh())
    assert bool((limited[~allowed] == LOWEST).all())


def test_numbers_in_another_order_are_the_same_item_if_they_shall_be() -> None:
    for any_order in (False, True):
        block, observed = pointer(**{**WHOLE, "any_order": any_order}), observation(5)
        turned = {**observed, "items": observed["items"].flip(-1), "order": observed["order"].flip(-1)}
        assert torch.allclose(block(turned)["choice"], block(observed)["choice"], atol=1e-5) == any_order


def test_differences_to_what_is_compared_tell_equal_from_unequal() -> None:
    """One linear unit on differences singles out the item that equals the order."""
    block = PointerBlock(
        ["items", "order"], "choice", [[4, 1], [1]], compare_keys=["order"], levels=5, hidden_units=[1], score="linear"
    )
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    block.first.weight.data[0, 5 + 4] = 1.0  # the difference 0
    block.output.weight.data[:] = 1.0
    observed = {"items": torch.tensor([[0.0], [1], [2], [3]]), "order": torch.tensor([2.0])}
    assert block(observed)["choice"].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert block({**observed, "order": torch.tensor([0.0])})["choice"].tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask_key": "maks"}, r"mask_key to name some of the further inputs \['mask', 'order', 'latent', 'chosen'\]"),
        ({"mask_key": "order"}, r"the mask 'order' of shape \(6,\)"),
        ({"compare_keys": ["order"]}, "'order' to be a vector, and levels"),
        ({"chosen_keys": ["items"]}, "chosen_keys to name some of the further inputs"),
        ({"chosen_keys": ["order"], "compare_keys": ["order"], "levels": 3}, "each key to have one role"),
        ({"score": "linear", "n_glimpses": 1}, "no glimpses with the score linear"),
        ({"score": "bilinear"}, "score linear, additive, dot, not 'bilinear'"),
        ({"n_heads": 3}, "n_heads that divides 64, not 3"),
        ({"clip": 0.0}, "clip to be a number above 0 or None, not 0.0"),
        ({"levels": 1}, "levels to be a whole number of at least 2, not 1"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"PointerBlock from 'items' .* expected .*{message}"):
        PointerBlock(KEYS, "choice", SHAPES, **options)


def test_items_that_are_not_a_matrix_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected first the items, \(N, F\)"):
        PointerBlock("items", "choice", [5])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["glimpses", "all_slots", "whole_numbers"])
@pytest.mark.parametrize("form", ["torch", "onnx"])
def test_a_network_is_exported_for_any_number_of_slots(name: str, form: str) -> None:
    block = pointer(**OPTIONS[name]).eval()
    traced = observation(3)
    batch, slots = torch.export.Dim("batch"), torch.export.Dim("slots")
    sizes = {key: {0: batch, 1: slots} if key in ("items", "mask") else {0: batch} for key in traced}
    program = torch.export.export(block, (traced,), dynamic_shapes=({**sizes},), strict=False)
    if form == "onnx":  # made once, since the exporter cannot convert such a program twice
        onnxruntime = pytest.importorskip("onnxruntime")
        model = torch.onnx.export(program, dynamo=True, verbose=False).model_proto.SerializeToString()
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for size, n in ((2, 6), (5, 9), (1, 4)):
        inputs = observation(size, n=n)
        expected = block(inputs)["choice"]
        if form == "torch":
            found = program.module()(inputs)["choice"]
        else:
            arrays = [tensor.numpy() for tensor in inputs.values()]
            named = dict(zip((node.name for node in session.get_inputs()), arrays, strict=True))
            found = torch.from_numpy(session.run(None, named)[0])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)

"""Networks for sets of items: what they may depend on, and what they may not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from maze_pl.perception import ItemSetPolicyNet, ItemSetStateValueNet
from maze_pl.perception.models.built_in import count_kinds

SHAPES = {"items": (5, 2), "order": (2,), "size": (1,), "mask": (5,)}
LOWEST = torch.finfo(torch.float32).min


def observation(*leading: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    items = torch.randint(1, 5, (*leading, 5, 2), generator=generator).float()
    mask = torch.tensor([1.0, 1, 0, 1, 0]).expand(*leading, 5).clone()
    order = torch.randint(1, 5, (*leading, 2), generator=generator).float()
    return {"items": items, "order": order, "size": torch.full((*leading, 1), 3.0), "mask": mask}


def policy(hidden_units: tuple[int, ...] = (8, 8)) -> ItemSetPolicyNet:
    torch.manual_seed(0)
    network = ItemSetPolicyNet(SHAPES, {"choice": (5,)}, "items", "mask", 5, hidden_units)
    nn.init.normal_(network.score.weight)
    return network


def test_items_that_change_places_take_their_logits_with_them() -> None:
    network, seen = policy(), observation(3)
    order = torch.tensor([4, 2, 0, 3, 1])
    logits = network(seen)["choice"]
    moved = network({**seen, "items": seen["items"][:, order], "mask": seen["mask"][:, order]})["choice"]
    torch.testing.assert_close(moved, logits[:, order])
    assert len(logits[0].unique()) == 4  # three different scores, and the one of what is ruled out


def test_masked_items_get_the_lowest_logit_and_influence_nothing() -> None:
    network, seen = policy(), observation(3)
    logits = network(seen)["choice"]
    assert bool((logits[:, [2, 4]] == LOWEST).all())
    changed = seen["items"].clone()
    changed[:, [2, 4]] = 4.0
    assert torch.equal(network({**seen, "items": changed})["choice"], logits)
    changed[:, 0] = torch.tensor([4.0, 1.0])
    assert not torch.equal(network({**seen, "items": changed})["choice"][:, 1], logits[:, 1])  # by the mean


def test_a_score_by_hand() -> None:
    shapes = {"items": (2, 1), "order": (1,), "mask": (2,)}
    network = ItemSetPolicyNet(shapes, {"choice": (2,)}, "items", "mask", 4, [1, 1])
    first = [0.0, 1.0, 2.0, 3.0, 0.0, 10.0, 20.0, 30.0]  # the number itself of the item, ten times that of the order
    for parameter, value in zip(
        network.parameters(), [[first], [0.5], [[2.0]], [1.0], [[3.0]], [[1.0]], [0.0]], strict=True
    ):
        parameter.data = torch.tensor(value)
    # First layer: 1 + 10 * 2 + 0.5 and 3 + 10 * 2 + 0.5, mean 22.5; second: 2 * x + 1 + 3 * 22.5.
    seen = {"items": torch.tensor([[[1.0], [3.0]]]), "order": torch.tensor([[2.0]]), "mask": torch.ones(1, 2)}
    assert network(seen)["choice"].tolist() == [[2 * 21.5 + 1 + 67.5, 2 * 23.5 + 1 + 67.5]]


def test_any_leading_dimensions_and_nothing_to_choose() -> None:
    network, seen = policy(), observation(2, 3)
    logits = network(seen)["choice"]
    assert logits.shape == (2, 3, 5)
    torch.testing.assert_close(network({name: x[1, 2][None] for name, x in seen.items()})["choice"][0], logits[1, 2])
    seen["mask"][0, 0] = 0.0
    assert bool((network(seen)["choice"][0, 0] == LOWEST).all())
    assert network({name: x[:0] for name, x in seen.items()})["choice"].shape == (0, 3, 5)


def test_levels_tell_apart_what_numbers_cannot() -> None:
    """A linear layer of 1 level each can prefer the middle one."""
    network = policy(hidden_units=(1,))
    assert network.layers[0].in_features == 5 * (2 + 2 + 1)
    seen = observation(1)
    seen["size"][:] = 7.0  # counts as the largest
    same = {**seen, "size": torch.full((1, 1), 4.0)}
    assert torch.equal(network(seen)["choice"], network(same)["choice"])


@pytest.mark.parametrize("any_order", [False, True])
def test_value_does_not_depend_on_places_and_counts_items(any_order: bool) -> None:
    torch.manual_seed(0)
    network, seen = ItemSetStateValueNet(SHAPES, "items", 5, any_order, (8,)), observation(2, 3)
    value = network(seen)["value"]
    assert value.shape == (2, 3, 1)
    torch.testing.assert_close(network({**seen, "items": seen["items"].flip(-2)})["value"], value)
    assert torch.equal(network({**seen, "mask": 1 - seen["mask"]})["value"], value)  # has one entry for each item
    assert torch.allclose(network({**seen, "items": seen["items"].flip(-1)})["value"], value) == any_order
    fewer = torch.cat([seen["items"][..., 1:, :], torch.zeros(2, 3, 1, 2)], -2)
    assert not torch.allclose(network({**seen, "items": fewer})["value"], value)
    assert not torch.allclose(network({**seen, "size": seen["size"] - 1})["value"], value)
    value.sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in network.parameters())


def test_kinds_are_counted_without_empty_places() -> None:
    items = torch.tensor([[5.0, 3], [3, 5], [1, 3], [0, 0], [2, 2]]).expand(2, 5, 2)

    def counted(any_order: bool) -> dict[int, int]:
        return {index: int(n) for index, n in enumerate(count_kinds(items, 7, any_order)[1].tolist()) if n}

    assert count_kinds(items, 7).shape == (2, 49)
    assert counted(any_order=False) == {5 * 7 + 3: 1, 3 * 7 + 5: 1, 1 * 7 + 3: 1, 2 * 7 + 2: 1}
    assert counted(any_order=True) == {3 * 7 + 5: 2, 1 * 7 + 3: 1, 2 * 7 + 2: 1}


@pytest.mark.parametrize("items_key", ["stock", "order"])
def test_observations_that_do_not_fit_are_refused(items_key: str) -> None:
    with pytest.raises(ValueError, match=r"must name an observation \[n, size\]; there are .*'items': \(5, 2\)"):
        ItemSetPolicyNet(SHAPES, {"choice": (5,)}, items_key, "mask", 5)
    with pytest.raises(ValueError, match=f"items_key='{items_key}' must name"):
        ItemSetStateValueNet(SHAPES, items_key, levels=5)


def test_gradients_are_finite() -> None:
    network, seen = policy(), observation(4)
    log_probs = network(seen)["choice"].log_softmax(-1)
    (log_probs.exp() * log_probs.clamp(min=-100)).sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in network.parameters())

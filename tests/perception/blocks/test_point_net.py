"""PointNet against a loop over points, and what a set must not depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from maze_pl.perception import PointNetFeatureBlock

Layers = list[nn.Linear]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build(has_mask: bool = True) -> PointNetFeatureBlock:
    """A block in double precision whose transform is not the identity."""
    names, shapes = ["points", "mask"][: 1 + has_mask], [(6, 3), (6,)][: 1 + has_mask]
    block = PointNetFeatureBlock(names, "out", shapes, 8, "torch.nn.Tanh").double()
    for seed, parameter in enumerate(block.parameters()):
        parameter.data = 0.2 * draw(*parameter.shape, seed=seed)
    return block


def dense(x: np.ndarray, layers: nn.Sequential) -> np.ndarray:
    """One layer after the other, of one point."""
    for layer in layers:
        x = (
            np.tanh(x)
            if isinstance(layer, nn.Tanh)
            else layer.weight.detach().numpy() @ x + layer.bias.detach().numpy()
        )
    return x


def embedded(points: list[np.ndarray], block: PointNetFeatureBlock) -> np.ndarray:
    if not points:
        return np.zeros(8)
    largest = np.max([dense(point, block.all_points) for point in points], 0)
    matrix = dense(largest, block.matrix[:-1]).reshape(3, 3) + np.eye(3)
    return np.max([dense(point @ matrix, block.embed) for point in points], 0)


@pytest.mark.parametrize("has_mask", [False, True])
def test_points_are_embedded_one_by_one_and_pooled(has_mask: bool) -> None:
    block, points = build(has_mask), draw(4, 6, 3)
    mask = torch.tensor([[1, 0, 1, 1, 0, 0], [1] * 6, [0] * 6, [0, 0, 0, 0, 0, 1]]) if has_mask else torch.ones(4, 6)
    output = block({"points": points, "mask": mask})["out"].detach().numpy()
    for b in range(4):
        there = [points[b, index].numpy() for index in range(6) if mask[b, index]]
        np.testing.assert_allclose(output[b], embedded(there, block), atol=1e-12)


def test_one_layer_by_hand() -> None:
    block = PointNetFeatureBlock("points", "out", [3, 1], 4, nn.Identity)
    for layer in block.embed:
        if isinstance(layer, nn.Linear):
            nn.init.constant_(layer.weight, 1 / layer.in_features)
            nn.init.zeros_(layer.bias)
    # the transform starts as the identity, and means of equal numbers are what they are
    output = block({"points": torch.tensor([[1.0], [2.0], [4.0]])})["out"]
    torch.testing.assert_close(output, torch.full((4,), 4.0))


def test_the_order_of_points_does_not_matter() -> None:
    block, points, mask = build(), draw(6, 3), torch.tensor([1, 0, 1, 1, 0, 1])
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    expected = block({"points": points, "mask": mask})["out"]
    torch.testing.assert_close(block({"points": points[order], "mask": mask[order]})["out"], expected)


@pytest.mark.parametrize("other", [5.0, -1e30, torch.inf, torch.nan])
def test_points_that_do_not_exist_change_nothing(other: float) -> None:
    block, points, mask = build(), draw(3, 6, 3), torch.tensor([[1, 0, 1, 1, 0, 0], [0] * 6, [1] * 6])
    expected = block({"points": points, "mask": mask})["out"]
    changed = torch.where(mask.unsqueeze(-1) != 0, points, other).requires_grad_()
    given = block({"points": changed, "mask": mask})["out"]
    assert torch.equal(given, expected) and not given[1].any()
    given.sum().backward()
    assert changed.grad is not None and not changed.grad[mask == 0].any()
    for tensor in (changed, *block.parameters()):
        assert tensor.grad is not None and bool(tensor.grad.isfinite().all())


def test_gradients_with_masks_are_those_of_small_changes() -> None:
    block, mask = build(), torch.tensor([[1, 0, 1, 1, 0, 0], [0] * 6])

    def run(points: Tensor) -> Tensor:
        return block({"points": points, "mask": mask})["out"]

    assert torch.autograd.gradcheck(run, draw(2, 6, 3).requires_grad_())


WRONG: list[tuple[Any, Any, Any, dict[str, Any], str]] = [
    ("points", "o", [3], {}, "points (P, D), maybe a mask (P,), and one output"),
    (["points", "mask"], "o", [[6, 3], [3]], {}, "maybe a mask (P,)"),
    (["points", "mask", "more"], "o", [[6, 3], [6], [6]], {}, "maybe a mask (P,)"),
    ("points", ["o", "p"], [6, 3], {}, "one output"),
    ("points", "o", [6, 3], {"embedding_dim": 3}, "embedding_dim to be a whole number of at least 4, not 3"),
]


@pytest.mark.parametrize(("in_keys", "out_keys", "in_shapes", "options", "message"), WRONG)
def test_what_cannot_work_is_refused_by_name(
    in_keys: Any, out_keys: Any, in_shapes: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match="Block from 'points' ") as error:
        PointNetFeatureBlock(in_keys, out_keys, in_shapes, **{"embedding_dim": 8, **options})
    assert message in str(error.value)

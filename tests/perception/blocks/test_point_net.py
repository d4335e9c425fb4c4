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


POOLING = {"max": np.max, "mean": np.mean, "sum": np.sum}


@pytest.mark.parametrize("pooling", POOLING)
@pytest.mark.parametrize("has_transform", [False, True])
def test_pooling_and_the_transform_of_features_are_those_of_a_loop(pooling: Any, has_transform: bool) -> None:
    options: Any = {"pooling_func_name": pooling, "use_feature_transform": has_transform}
    block = PointNetFeatureBlock(["points", "mask"], "out", [(6, 3), (6,)], 8, "torch.nn.Tanh", **options).double()
    for seed, parameter in enumerate(block.parameters()):
        parameter.data = 0.2 * draw(*parameter.shape, seed=seed)
    points, mask = draw(4, 6, 3), torch.tensor([[1, 0, 1, 1, 0, 0], [1] * 6, [0] * 6, [0, 0, 0, 0, 0, 1]])
    output = block({"points": points, "mask": mask})["out"].detach().numpy()

    def transformed(there: list[np.ndarray], layers: Any, matrix: Any) -> list[np.ndarray]:
        pooled = POOLING[pooling]([dense(point, layers) for point in there], axis=0)
        size = len(there[0])
        change = dense(pooled, matrix[:-1]).reshape(size, size) + np.eye(size)
        return [point @ change for point in there]

    for b in range(4):
        there = [points[b, index].numpy() for index in range(6) if mask[b, index]]
        if not there:
            assert not output[b].any()
            continue
        there = transformed(there, block.all_points, block.matrix)
        if has_transform:
            there = [dense(point, block.embed[:2]) for point in there]
            there = transformed(there, block.all_features, block.feature_matrix)
        last = block.embed[2:] if has_transform else block.embed
        expected = POOLING[pooling]([dense(point, last) for point in there], axis=0)
        np.testing.assert_allclose(output[b], expected, atol=1e-12)


def test_the_transform_of_features_starts_as_the_identity() -> None:
    torch.manual_seed(0)
    block = PointNetFeatureBlock("points", "out", [6, 3], 8, use_feature_transform=True)
    plain = PointNetFeatureBlock("points", "out", [6, 3], 8)
    plain.load_state_dict({name: value for name, value in block.state_dict().items() if "feature" not in name})
    points = draw(4, 6, 3).float()
    torch.testing.assert_close(block({"points": points})["out"], plain({"points": points})["out"])


def test_points_that_do_not_exist_are_not_part_of_batch_statistics() -> None:
    options: Any = {"normalization": "batch", "use_feature_transform": True}
    torch.manual_seed(0)
    masked = PointNetFeatureBlock(["points", "mask"], "out", [(5, 3), (5,)], 8, **options)
    plain = PointNetFeatureBlock("points", "out", [3, 3], 8, **options)
    plain.load_state_dict(masked.state_dict())
    points = draw(4, 5, 3).float()
    points[:, 3:] = torch.nan
    for _ in range(2):
        given = masked({"points": points, "mask": torch.tensor([1, 1, 1, 0, 0]).expand(4, 5)})["out"]
        torch.testing.assert_close(given, plain({"points": points[:, :3]})["out"], rtol=1e-4, atol=1e-5)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(masked.state_dict()[name], value, rtol=1e-4, atol=1e-5)
    batch_norms = [part for part in masked.modules() if isinstance(part, nn.BatchNorm1d)]
    assert len(batch_norms) == 3 + 2 + 3 + 3 + 2


def test_each_embedding_layer_has_its_own_activation() -> None:
    block = PointNetFeatureBlock("points", "out", [6, 3], 8, [nn.ReLU, nn.Tanh, nn.SELU])
    assert [type(layer) for layer in block.embed[1::2]] == [nn.ReLU, nn.Tanh, nn.SELU]
    assert [type(layer) for layer in block.matrix[1:4:2]] == [nn.ReLU, nn.Tanh]


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
    ("points", "o", [6, 3], {"pooling_func_name": "min"}, "pooling_func_name 'max', 'mean' or 'sum', not 'min'"),
    ("points", "o", [6, 3], {"non_lin": [nn.ReLU]}, "non_lin to be one class, or a list of 3, one for each layer"),
    ("points", "o", [6, 3], {"embedding_dim": 3}, "embedding_dim to be a whole number of at least 4, not 3"),
]


@pytest.mark.parametrize(("in_keys", "out_keys", "in_shapes", "options", "message"), WRONG)
def test_invalid_options_are_refused_by_name(
    in_keys: Any, out_keys: Any, in_shapes: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match="Block from 'points' ") as error:
        PointNetFeatureBlock(in_keys, out_keys, in_shapes, **{"embedding_dim": 8, **options})
    assert message in str(error.value)

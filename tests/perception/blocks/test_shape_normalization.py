"""Leading dimensions are folded into one and unfolded again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from maze_pl.perception import ShapeNormalizationBlock


class Weighted(ShapeNormalizationBlock):
    """Rows times weights [B, n], with the number of dimensions of what it has seen."""

    def __init__(self, in_shapes: Any, in_num_dims: Any = (3, 2), out_num_dims: Any = (3, 1)) -> None:
        super().__init__(["rows", "weights"], ["rows", "sum"], in_shapes, in_num_dims, out_num_dims)
        self.seen: list[tuple[int, ...]] = []

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        rows, weights = block_input["rows"], block_input["weights"]
        self.seen = [tuple(rows.shape), tuple(weights.shape)]
        weighted = rows * weights[:, None]
        return {"rows": weighted, "sum": weighted.sum((1, 2))}


@pytest.mark.parametrize(("leading", "folded"), [((), 1), ((4,), 4), ((2, 3), 6), ((2, 1, 3), 6), ((2, 0), 0)])
def test_the_block_sees_one_leading_dimension_and_gives_all(leading: tuple[int, ...], folded: int) -> None:
    block = Weighted([[2, 3], [3]])
    rows, weights = torch.rand(*leading, 2, 3), torch.rand(*leading, 3)
    output = block({"rows": rows, "weights": weights, "other": torch.zeros(1)})
    assert block.seen == [(folded, 2, 3), (folded, 3)]
    expected = rows * weights[..., None, :]
    assert torch.equal(output["rows"], expected)
    torch.testing.assert_close(output["sum"], expected.sum((-1, -2)))


def test_inputs_that_are_not_contiguous_are_folded_by_value() -> None:
    rows, weights = torch.rand(3, 2, 2, 3).transpose(0, 1), torch.ones(2, 3, 3)
    assert torch.equal(Weighted([[2, 3], [3]])({"rows": rows, "weights": weights})["rows"], rows)


def test_a_shape_may_have_further_dimensions_that_all_have() -> None:
    assert Weighted([[2, 3], [3]]).out_shapes() == [(2, 3), ()]
    assert Weighted([[5, 4, 2, 3], [5, 4, 3]]).out_shapes() == [(5, 4, 2, 3), (5, 4)]


@pytest.mark.parametrize("in_shapes", [[[3], [3]], [[2, 3], []], [[4, 2, 3], [3]], [[4, 2, 3], [5, 3]]])
def test_shapes_that_do_not_fit_are_refused(in_shapes: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=r"Weighted from 'rows' .* expected shapes of \[2, 1\] dimensions"):
        Weighted(in_shapes)


@pytest.mark.parametrize("num_dims", [{"in_num_dims": [3]}, {"out_num_dims": (3, 1, 1)}])
def test_there_is_one_number_of_dimensions_for_each_key(num_dims: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected as many numbers as keys; got in_num_dims="):
        Weighted([[2, 3], [3]], **num_dims)


def test_one_number_counts_for_all_keys() -> None:
    block = Weighted([[3], [3]], in_num_dims=2, out_num_dims=2)
    assert (block.in_num_dims, block.out_num_dims) == ([2, 2], [2, 2])
